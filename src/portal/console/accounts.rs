//! The list of all accounts with search, and the form to create one.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::SignedInOperator,
    frame::{self, Place, search},
    paging,
};
use crate::{
    catalog::{Plan, Tier, Track},
    gateway::Gateway,
    ledger::{Account, AccountFound},
    portal::{
        error::PortalError,
        formatting::{moment, money, money_rounded},
        layout::{self, Page},
        query::{ReadQuery, non_empty},
        table::scrolled,
    },
};

#[derive(Deserialize)]
pub(crate) struct AccountsQuery {
    text: Option<String>,
    before: Option<String>,
}

/// The path of an account's page.
pub(crate) fn path(id: &str) -> String {
    format!("/portal/console/accounts/{}", layout::encoded(id))
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<AccountsQuery>,
) -> Result<Page, PortalError> {
    let text = non_empty(query.text.as_ref()).unwrap_or_default();
    let before = paging::cursor(query.before.as_ref(), "accounts", paging::position)?;
    let is_first = before.is_none();
    let page = gateway.ledger.find_accounts(text, before, paging::QUERIED);
    let mut found = page.await?;
    let newest = format!("/portal/console/accounts?text={}", layout::encoded(text));
    let older = paging::cut(&mut found).map(|AccountFound { account, .. }| {
        let (since, id) = (account.created_at, layout::encoded(&account.id));
        format!("{newest}&before={since}-{id}")
    });
    let newest = (!is_first).then_some(newest);
    let content = html! {
        h1 { "Accounts" }
        (search("/portal/console/accounts", "Start of an ID, or part of an email or a name", text))
        @if found.is_empty() {
            p.empty { @if is_first { "No matching accounts." } @else { "No older accounts." } }
        } @else {
            (scrolled("Accounts", &table(&found)))
        }
        (paging::links("accounts", newest.as_deref(), older.as_deref()))
        (new_account(&me))
    };
    Ok(frame::page(&me, Place::Accounts, "Accounts", &content))
}

fn table(found: &[AccountFound]) -> Markup {
    html! {
        table {
            caption { "Accounts, newest first" }
            thead { tr {
                th scope="col" { "Email" }
                th scope="col" { "ID" }
                th scope="col" { "Plan" }
                th.number scope="col" { "Balance" }
                th scope="col" { "State" }
                th scope="col" { "Created" }
            } }
            tbody {
                @for AccountFound { account, balances, frozen } in found {
                    tr {
                        th scope="row" {
                            a href=(path(&account.id)) { (account.email) }
                            @if let Some(name) = &account.name { " " span.muted { (name) } }
                        }
                        td { code { (account.id) } }
                        td { (plan_name(account.plan)) }
                        td.number title=(money(balances.balance)) { (money_rounded(balances.balance)) }
                        td { (state(account, *frozen)) }
                        td { (moment(account.created_at)) }
                    }
                }
            }
        }
    }
}

pub(crate) fn state(account: &Account, frozen: bool) -> Markup {
    html! {
        @if account.is_deleted() { span.badge.bad { "deleted" } }
        @else if account.closed { span.badge.bad { "closed" } }
        @else { span.badge.good { "open" } }
        @if frozen { " " span.badge.bad { "frozen" } }
    }
}

pub(crate) fn plan_name(plan: Plan) -> String {
    format!("{}/{}", plan.track().as_str(), plan.tier().as_str())
}

fn new_account(me: &SignedInOperator) -> Markup {
    html! {
        details {
            summary { "New account" }
            form.stack method="post" action="/portal/console/accounts" {
                (me.token_field())
                label { "Email" input type="email" name="email" required maxlength="254" autocomplete="off"; }
                label { "Name " span.muted { "(optional)" } input type="text" name="name" maxlength="100" autocomplete="off"; }
                (plans(Plan::ANONYMOUS))
                button.primary type="submit" { "Create account" }
            }
        }
    }
}

/// A select field of all plans.
pub(crate) fn plans(chosen: Plan) -> Markup {
    let tracks = [Track::Personal, Track::Business].into_iter();
    let plans = tracks.flat_map(|track| Tier::ALL.map(|tier| Plan::new(track, tier)));
    html! {
        label { "Plan"
            select name="plan" {
                @for plan in plans.flatten() {
                    option value=(plan_name(plan)) selected[plan == chosen] { (plan_name(plan)) }
                }
            }
        }
    }
}

/// Parses a plan as [`plan_name`] writes it.
pub(crate) fn read_plan(text: &str) -> Result<Plan, PortalError> {
    let plan = text
        .split_once('/')
        .and_then(|(track, tier)| Plan::new(Track::parse(track)?, Tier::parse(tier)?));
    plan.ok_or_else(|| PortalError::Invalid("There is no such plan.".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_is_written() {
        for plan in [Plan::ANONYMOUS, Plan::ALL] {
            assert_eq!(read_plan(&plan_name(plan)).unwrap(), plan);
        }
        for wrong in ["", "personal", "personal/flex", "business/free", "a/b/c"] {
            assert!(read_plan(wrong).is_err(), "{wrong}");
        }
        assert_eq!(plans(Plan::ALL).into_string().matches("<option").count(), 6);
    }
}
