//! The audit page: recomputes every balance on demand and lists the violations.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    access::{OperatorForm, SignedInOperator},
    account_names::AccountNames,
    frame::{self, Place},
};
use crate::{
    gateway::Gateway,
    ledger::{Audit, Violation},
    portal::{
        error::PortalError,
        form::EmptyForm,
        formatting::{count, duration},
        layout::Page,
        table::scrolled,
    },
};

pub(crate) async fn show(me: SignedInOperator) -> Page {
    page(&me, &html! {})
}

pub(crate) async fn run(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form: _ }: OperatorForm<EmptyForm>,
) -> Result<Page, PortalError> {
    let audit = me.actions(&gateway).audit().await?;
    let ids = audit.violations.iter().map(|one| one.account_id.as_str());
    let names = AccountNames::read(&gateway, ids).await?;
    Ok(page(&me, &result(&audit, &names)))
}

fn page(me: &SignedInOperator, result: &Markup) -> Page {
    let content = html! {
        h1 { "Audit" }
        p.muted { "Recomputes every balance from the account's entries. Accounts that changed are audited every minute anyway; an account whose entries do not add up is frozen." }
        form method="post" action="/portal/console/audit" {
            (me.token_field())
            button.primary type="submit" { "Run audit" }
        }
        (result)
    };
    frame::page(me, Place::Audit, "Audit", &content)
}

fn result(audit: &Audit, names: &AccountNames) -> Markup {
    let took = i64::try_from(audit.took.as_millis()).unwrap_or(i64::MAX);
    let accounts = u64::try_from(audit.accounts.len()).unwrap_or(u64::MAX);
    html! {
        section role="status" {
            h2 { @if audit.violations.is_empty() { "Everything adds up" } @else { "Some entries do not add up" } }
            dl {
                dt { "Accounts" } dd { (count(accounts)) }
                dt { "Entries" } dd { (count(audit.entries)) }
                dt { "Charges" } dd { (count(audit.charges)) }
                dt { "Duration" } dd { (duration(took)) }
                @if !audit.stray_holds.is_empty() {
                    dt { "Released reservations without a running call" }
                    @for stray in &audit.stray_holds { dd { code { (stray.call) } } }
                }
            }
            @if !audit.violations.is_empty() { (scrolled("Violations", &violations(&audit.violations, names))) }
        }
    }
}

fn violations(violations: &[Violation], names: &AccountNames) -> Markup {
    html! {
        table {
            caption { "Mismatches" }
            thead { tr { th scope="col" { "Account" } th scope="col" { "Problem" } } }
            tbody {
                @for violation in violations {
                    tr {
                        th scope="row" { (names.link(&violation.account_id)) }
                        td.failure { (violation.what) }
                    }
                }
            }
        }
    }
}
