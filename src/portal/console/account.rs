//! The page of one account: its state, and forms to change it.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    access::{Id, SignedInOperator},
    account_names::AccountNames,
    account_people,
    accounts::{path, plans, state},
    actions,
    frame::{self, Place},
    keys, limits, requests,
};
use crate::{
    base::{keys::random_id, timestamp},
    gateway::Gateway,
    ledger::{Account, Balances, CallsPage, GrantLeft},
    portal::{
        billing::payments,
        error::PortalError,
        formatting::{moment, money},
        layout::{self, Page},
        table::scrolled,
    },
};

const SHOWN_REQUESTS: usize = 10;
const SHOWN_ACTIONS: usize = 10;

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Id(id): Id,
) -> Result<Page, PortalError> {
    let (ledger, backoffice) = (&gateway.ledger, &gateway.backoffice);
    let ((), account) = tokio::try_join!(ledger.refresh(), ledger.account(&id))?;
    let latest = CallsPage {
        account_id: Some(&id),
        limit: SHOWN_REQUESTS,
        ..CallsPage::default()
    };
    let of_ledger = async {
        let read = tokio::try_join!(
            ledger.balances(&id),
            ledger.is_frozen(&id),
            ledger.grants_left(&id),
            ledger.keys_page(keys::newest(&id)),
            ledger.last_used(&id),
            ledger.calls_page(&latest),
        );
        Ok::<_, PortalError>(read?)
    };
    let of_backoffice = async {
        let read = tokio::try_join!(
            backoffice.actions_page(Some(&id), None, SHOWN_ACTIONS),
            backoffice.people_of(&id),
            backoffice.invitations_of(&id, timestamp::now()),
            payments::recent(&gateway, &id),
        );
        Ok::<_, PortalError>(read?)
    };
    let (of_ledger, of_backoffice) = tokio::try_join!(of_ledger, of_backoffice)?;
    let (balances, frozen, left, newest_keys, used, calls) = of_ledger;
    let (done, people, invited, bought) = of_backoffice;
    let calls = calls.calls;
    let names = AccountNames::of([account.clone()]);
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/console/accounts" { "All accounts" } }
        h1 { (account.email) }
        @if frozen {
            p.problem role="alert" { "The entries of this account do not add up, so it starts no new calls. Run the audit to see why." }
        }
        (facts(&account, frozen))
        (cards(&balances))
        div.columns {
            (grant_form(&me, &account))
            (plan_forms(&me, &account))
        }
        (credit(&left))
        (account_people::section(&me, &id, &people, &invited))
        (payments::section(&bought, false))
        (keys::section(&me, &account, &newest_keys, &used))
        section {
            h2 { "Limits per minute" }
            (limits::of_account(&gateway, &me, &id, &names))
        }
        section {
            h2 { "Latest requests" }
            (requests::table(&calls, &names))
            p { a href={ "/portal/console/requests?account=" (layout::encoded(&id)) } { "All requests of this account" } }
        }
        section {
            h2 { "Operator actions" }
            (actions::table(&done, &names))
            p { a href={ "/portal/console/actions?subject=" (layout::encoded(&id)) } { "All actions on this account" } }
        }
    };
    Ok(frame::page(&me, Place::Accounts, &account.email, &content))
}

fn facts(account: &Account, frozen: bool) -> Markup {
    html! {
        dl {
            dt { "ID" } dd { code.whole { (account.id) } }
            @if let Some(name) = &account.name { dt { "Name" } dd { (name) } }
            dt { "State" } dd { (state(account, frozen)) }
            dt { "Created" } dd { (moment(account.created_at)) }
        }
    }
}

fn cards(balances: &Balances) -> Markup {
    let figures = [
        ("Balance", balances.balance),
        ("Reserved", balances.held),
        ("Available", balances.available),
    ];
    html! {
        div.grid {
            @for (name, amount) in figures {
                section.card { h2 { (name) } p.figure { (money(amount)) } }
            }
        }
    }
}

/// The form to grant credit. Its reference is generated with the page, so that submitting it twice grants once.
fn grant_form(me: &SignedInOperator, account: &Account) -> Markup {
    html! {
        section {
            h2 { "Grant credit" }
            form.stack method="post" action={ (path(&account.id)) "/grants" } {
                (me.token_field())
                input type="hidden" name="reference" value=(random_id("console_"));
                label { "US dollars"
                    input type="text" name="amount" required inputmode="decimal" placeholder="10.00" autocomplete="off";
                }
                label { "Reason"
                    input type="text" name="reason" required maxlength="200" placeholder="e.g. paid by transfer" autocomplete="off";
                    span.muted { "The account’s owner sees it too." }
                }
                label { "Expires at the end of " span.muted { "(optional, UTC)" }
                    input type="date" name="until";
                }
                button.primary type="submit" { "Grant credit" }
            }
        }
    }
}

fn plan_forms(me: &SignedInOperator, account: &Account) -> Markup {
    let (verb, explanation) = if account.closed {
        ("Open", "Its keys work again at once.")
    } else {
        ("Close", "Requests with its keys are refused from now on.")
    };
    html! {
        section {
            h2 { "Plan" }
            form.stack method="post" action={ (path(&account.id)) "/plan" } {
                (me.token_field())
                (plans(account.plan))
                button type="submit" { "Change plan" }
            }
            @if account.is_deleted() {
                p.muted { "An owner deleted this account. This cannot be undone. Its ledger entries are kept." }
            } @else { details {
                summary { (verb) " this account" }
                form method="post" action={ (path(&account.id)) "/state" } {
                    (me.token_field())
                    input type="hidden" name="state" value=(if account.closed { "open" } else { "closed" });
                    p.muted { (explanation) }
                    button.bad type="submit" { (verb) " account" }
                }
            } }
        }
    }
}

fn credit(left: &[GrantLeft]) -> Markup {
    let table = html! {
        table {
            caption { "Credit, in the order in which it is used" }
            thead { tr {
                th scope="col" { "Grant" }
                th.number scope="col" { "Remaining" }
                th.number scope="col" { "Reserved" }
                th scope="col" { "Expires" }
            } }
            tbody {
                @for grant in left {
                    tr {
                        th scope="row" { code { (grant.grant_id) } }
                        td.number { (money(grant.left)) }
                        td.number { (money(grant.held)) }
                        td { @match grant.expires_at { Some(at) => { (moment(at)) }, None => { "never" } } }
                    }
                }
            }
        }
    };
    html! {
        @if !left.is_empty() {
            section { h2 { "Remaining credit" } (scrolled("Remaining credit", &table)) }
        }
    }
}
