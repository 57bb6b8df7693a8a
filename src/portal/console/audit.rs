//! Does everything add up?

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    access::{OperatorForm, OperatorIn},
    accounts,
    frame::{self, Place, scrolled},
};
use crate::{
    gateway::Gateway,
    ledger::{Audit, Violation},
    portal::{
        error::PortalError,
        form::Nothing,
        layout::Page,
        words::{count, duration},
    },
};

pub async fn show(me: OperatorIn) -> Page {
    page(&me, None)
}

pub async fn run(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form: _ }: OperatorForm<Nothing>,
) -> Result<Page, PortalError> {
    let audit = me.acts(&gateway).audit().await?;
    Ok(page(&me, Some(&audit)))
}

fn page(me: &OperatorIn, found: Option<&Audit>) -> Page {
    let content = html! {
        h1 { "Audit" }
        p.muted { "Looks at every entry of every account. What has changed is looked at every minute anyway; an account whose books do not add up is frozen." }
        form method="post" action="/portal/console/audit" {
            (me.token_field())
            button.primary type="submit" { "Run the audit" }
        }
        @if let Some(audit) = found { (result(audit)) }
    };
    frame::page(me, Place::Audit, "Audit", &content)
}

fn result(audit: &Audit) -> Markup {
    let took = i64::try_from(audit.took.as_millis()).unwrap_or(i64::MAX);
    let accounts = u64::try_from(audit.accounts.len()).unwrap_or(u64::MAX);
    html! {
        section role="status" {
            h2 { @if audit.violations.is_empty() { "Everything adds up" } @else { "The books do not add up" } }
            dl {
                dt { "Accounts" } dd { (count(accounts)) }
                dt { "Entries" } dd { (count(audit.entries)) }
                dt { "Charges" } dd { (count(audit.charges)) }
                dt { "Took" } dd { (duration(took)) }
                @if !audit.stray_holds.is_empty() {
                    dt { "Holds without a running call, released" }
                    @for stray in &audit.stray_holds { dd { code { (stray.call) } } }
                }
            }
            @if !audit.violations.is_empty() { (scrolled("Violations", &violations(&audit.violations))) }
        }
    }
}

fn violations(violations: &[Violation]) -> Markup {
    html! {
        table {
            caption { "What does not add up" }
            thead { tr { th scope="col" { "Account" } th scope="col" { "What" } } }
            tbody {
                @for violation in violations {
                    tr {
                        th scope="row" { a href=(accounts::path(&violation.account_id)) { code { (violation.account_id) } } }
                        td.failure { (violation.what) }
                    }
                }
            }
        }
    }
}
