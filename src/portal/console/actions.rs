//! The list of operator actions, made in the console or through the operator API.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::SignedInOperator,
    account_names::AccountNames,
    changes,
    frame::{self, Place},
    paging,
};
use crate::{
    backoffice::RecordedAction,
    gateway::Gateway,
    portal::{
        error::PortalError,
        formatting::moment,
        layout::{self, Page},
        query::{ReadQuery, non_empty},
        table::scrolled,
    },
};

#[derive(Deserialize)]
pub(crate) struct ActionsQuery {
    subject: Option<String>,
    before: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<ActionsQuery>,
) -> Result<Page, PortalError> {
    let subject = non_empty(query.subject.as_ref());
    let before = paging::cursor(query.before.as_ref(), "actions", |text| text.parse().ok())?;
    let page = gateway
        .backoffice
        .actions_page(subject, before, paging::QUERIED);
    let mut actions = page.await?;
    let wanted = layout::encoded(subject.unwrap_or_default());
    let newest = format!("/portal/console/actions?subject={wanted}");
    let older = paging::cut(&mut actions).map(|last| format!("{newest}&before={}", last.seq));
    let newest = before.is_some().then_some(newest);
    let names = names(&gateway, &actions).await?;
    let content = html! {
        h1 { "Actions" }
        p.muted {
            "What operators changed, here and through the operator API, and what people changed in their accounts: members, budgets, \
             top-up, how they sign in. Entries are not deleted; when an account is, its names and email addresses in them are replaced."
        }
        form.inline method="get" action="/portal/console/actions" role="search" {
            label { "Target " span.muted { "(the ID of an account, a person, a key or a model)" }
                input type="search" name="subject" value=(subject.unwrap_or_default()) autocomplete="off";
            }
            button.primary type="submit" { "Show" }
            @if subject.is_some() { a.button href="/portal/console/actions" { "Show all" } }
        }
        (table(&actions, &names))
        (paging::links("actions", newest.as_deref(), older.as_deref()))
    };
    Ok(frame::page(&me, Place::Actions, "Actions", &content))
}

/// The names of the accounts to which these actions were done.
pub(crate) async fn names(
    gateway: &Gateway,
    actions: &[RecordedAction],
) -> Result<AccountNames, PortalError> {
    let subjects = actions
        .iter()
        .map(|recorded| recorded.action.subject.as_str());
    let ids = subjects.filter(|id| is_account(id));
    Ok(AccountNames::read(gateway, ids).await?)
}

fn is_account(subject: &str) -> bool {
    subject.starts_with("acct_")
}

pub(crate) fn table(actions: &[RecordedAction], names: &AccountNames) -> Markup {
    if actions.is_empty() {
        return html! { p.empty { "No actions yet." } };
    }
    let table = html! {
        table {
            caption { "Actions, newest first" }
            thead { tr {
                th scope="col" { "Time" }
                th scope="col" { "By" }
                th scope="col" { "Action" }
                th scope="col" { "Target" }
                th scope="col" { "Change" }
            } }
            tbody {
                @for RecordedAction { action, .. } in actions {
                    tr {
                        td { (moment(action.at_ms.div_euclid(1_000))) }
                        td { (action.actor) }
                        th scope="row" { code { (action.what) } }
                        td { (subject(&action.subject, names)) }
                        td { (changes::list(action.before.as_deref(), action.after.as_deref())) }
                    }
                }
            }
        }
    };
    scrolled("Actions", &table)
}

fn subject(id: &str, names: &AccountNames) -> Markup {
    html! {
        @if is_account(id) { (names.link(id)) }
        @else { code { (id) } }
    }
}
