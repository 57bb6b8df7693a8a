//! Warnings to customers before their requests are refused for lack of credit.

use maud::{Markup, html};

use super::formatting::{moment, money};
use crate::{base::timestamp, gateway::alerts::Alerts, ledger::Balances};

/// Warns if little credit is left or some expires soon. `is_used` is whether the account ever had credit or
/// made requests; without either there is nothing to warn about.
pub(crate) fn credit(alerts: &Alerts, balances: &Balances, is_used: bool) -> Markup {
    let settings = &alerts.settings;
    if !settings.enabled || !is_used {
        return html! {};
    }
    let low = settings.low_balance;
    let low = low.filter(|low| balances.available < *low);
    let soon = settings.expiring_within.and_then(|within| {
        let until = timestamp::now().saturating_add(within);
        balances.expires_at.filter(|at| *at <= until)
    });
    html! {
        @if let Some(low) = low {
            p.notice role="status" {
                "Less than " (money(low)) " is left. Once it is used up, requests are refused: "
                a href="/portal/billing" { "add credit" } "."
            }
        }
        @if let Some(at) = soon {
            p.notice role="status" {
                "Some of your credit expires " (moment(at)) ": see " a href="/portal/billing" { "what is left" } "."
            }
        }
    }
}
