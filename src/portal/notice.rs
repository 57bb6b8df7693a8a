//! Notices about money: credit that runs out, and credit that expires.

use maud::{Markup, html};

use super::formatting::{moment, money};
use crate::{
    base::{money::NanoUsd, timestamp},
    gateway::alerts::Alerts,
    ledger::{Balances, GrantLeft},
};

/// Expiries that a notice lists; the billing page has them all.
const MAX_LISTED: usize = 3;

/// Warns if little credit is left or some expires soon. `is_used` is whether the account ever had credit or
/// made requests; without either there is nothing to warn about.
pub(crate) fn credit(
    alerts: &Alerts,
    balances: &Balances,
    left: &[GrantLeft],
    is_used: bool,
) -> Markup {
    let settings = &alerts.settings;
    if !settings.enabled || !is_used {
        return html! {};
    }
    let low = settings.low_balance;
    let low = low.filter(|low| balances.available < *low);
    let until = settings
        .expiring_within
        .map(|within| timestamp::now().saturating_add(within));
    let mut soon = expiries(left);
    soon.retain(|(_, at)| until.is_some_and(|until| *at <= until));
    html! {
        @if low.is_some() {
            (warning(&html! {
                strong { "Low balance: " (money(balances.available)) " left for new requests." }
                " Requests are refused once it is used up. "
                a href="/portal/billing#add-credit" { "Add credit" }
            }))
        }
        @if !soon.is_empty() {
            (warning(&html! {
                strong { "Credit expires soon: " (listed(&soon)) "." }
                " " a href="/portal/billing" { "Billing" }
            }))
        }
    }
}

/// A warning, with a sign so that it does not depend on its colour.
pub(crate) fn warning(text: &Markup) -> Markup {
    html! {
        div.warning role="status" {
            span.sign aria-hidden="true" { "!" }
            p { span.unseen { "Warning: " } (text) }
        }
    }
}

/// When how much of the credit expires, in one or two sentences.
pub(crate) fn expiry(left: &[GrantLeft]) -> Markup {
    let dated = expiries(left);
    let lasting = left.iter().any(|grant| grant.expires_at.is_none());
    html! {
        @if !dated.is_empty() { (listed(&dated)) ". " }
        @if lasting { @if dated.is_empty() { "Does not expire." } @else { "The rest does not expire." } }
    }
}

/// How much expires when, by time.
fn expiries(left: &[GrantLeft]) -> Vec<(NanoUsd, i64)> {
    let mut sums: Vec<(NanoUsd, i64)> = Vec::new();
    for grant in left {
        let Some(at) = grant.expires_at else { continue };
        match sums.iter_mut().find(|(_, other)| *other == at) {
            Some((sum, _)) => *sum = sum.checked_add(grant.left).unwrap_or(*sum),
            None => sums.push((grant.left, at)),
        }
    }
    sums.sort_unstable_by_key(|(_, at)| *at);
    sums
}

/// `$4.65 expires 20 Nov 2026, 08:00 UTC, $2.00 expires …`
fn listed(expiries: &[(NanoUsd, i64)]) -> Markup {
    let more = expiries.len().saturating_sub(MAX_LISTED);
    html! {
        @for (number, (amount, at)) in expiries.iter().take(MAX_LISTED).enumerate() {
            @if number > 0 { "; " }
            (money(*amount)) " expires " (moment(*at))
        }
        @if more > 0 { "; " (more) " more expire later" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(cents: i64, expires_at: Option<i64>) -> GrantLeft {
        GrantLeft {
            grant_id: String::new(),
            left: NanoUsd::from_cents(cents).unwrap(),
            held: NanoUsd::default(),
            expires_at,
        }
    }

    fn told(left: &[GrantLeft]) -> String {
        let html = expiry(left).into_string();
        let html = html.trim();
        let parts = html.split('<').map(|part| match part.split_once('>') {
            Some((_, text)) => text,
            None => part,
        });
        parts.collect()
    }

    #[test]
    fn only_what_expires_is_said_to_expire() {
        let (soon, late) = (Some(1_795_132_800), Some(1_796_342_400));
        assert_eq!(told(&[]), "");
        assert_eq!(told(&[grant(5_000, None)]), "Does not expire.");
        let some = [grant(400, soon), grant(65, soon), grant(5_000, None)];
        assert_eq!(
            told(&some),
            "$4.65 expires 20 Nov 2026, 00:00:00 UTC. The rest does not expire."
        );
        let all = [grant(465, soon), grant(200, late)];
        assert_eq!(
            told(&all),
            "$4.65 expires 20 Nov 2026, 00:00:00 UTC; $2.00 expires 4 Dec 2026, 00:00:00 UTC."
        );
        let later = |days: i64| Some(1_796_342_400 + days * 86_400);
        let five = [
            grant(465, soon),
            grant(200, late),
            grant(3, later(1)),
            grant(4, later(2)),
            grant(1, None),
        ];
        let told = told(&five);
        assert!(
            told.ends_with("; $0.03 expires 5 Dec 2026, 00:00:00 UTC; 1 more expire later. The rest does not expire."),
            "{told}"
        );
    }
}
