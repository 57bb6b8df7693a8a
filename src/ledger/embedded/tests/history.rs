//! Queries of a history of many calls, compared with the calls that were made.

use std::cmp::Reverse;

use super::*;
use crate::{
    base::keys::rising_id,
    ledger::{AnalyticsFilter, Call, CallId, CallsPage, HoldRequest, tests::walk},
};

const CALLS: usize = 700;

struct Past {
    paying: Paying,
    neighbour: Paying,
    /// In the order in which they ended.
    calls: Vec<Call>,
}

/// The clock stands still, advances, and goes back; some calls take long, some fail.
async fn past() -> Past {
    let paying = with(DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let (mut calls, mut long) = (Vec::new(), Vec::new());
    for (n, seconds) in (0..CALLS).zip([0, 0, 1, 0, 3, -2, 0, 45, -20].into_iter().cycle()) {
        paying.advance(seconds);
        let payer = if n % 5 == 0 { &neighbour } else { &paying };
        let mut held = payer.hold(COST, COST, 0).await.unwrap();
        match n {
            _ if n % 11 == 0 => calls.extend(held.release(Outcome::ProviderFailed, None)),
            _ if n % 13 == 0 => long.push(held),
            _ => calls.push(held.charge(tokens(COST), Outcome::Answered).await.unwrap()),
        }
        if n % 50 == 0 {
            for mut held in long.drain(..) {
                let charged = held.charge(tokens(COST), Outcome::ClientLeft).await;
                calls.push(charged.unwrap());
            }
        }
        if n % 97 == 0 {
            paying.days().await; // posts the redo log
        }
    }
    for held in long {
        calls.extend(held.release(Outcome::Stopped, None));
    }
    paying.assert_sound().await;
    Past {
        paying,
        neighbour,
        calls,
    }
}

impl Past {
    /// The IDs of the calls that match, newest first.
    fn wanted(&self, is_wanted: impl Fn(&Call) -> bool) -> Vec<CallId> {
        let mut wanted: Vec<_> = self.calls.iter().filter(|call| is_wanted(call)).collect();
        wanted.sort_by_key(|call| Reverse((call.ended_ms, call.id)));
        wanted.iter().map(|call| call.id).collect()
    }

    fn paid_by_account(&self) -> Vec<&Call> {
        let own = |call: &&Call| call.account_id == self.paying.account_id;
        let calls = self.calls.iter().filter(own);
        calls.filter(|call| call.charged.is_some()).collect()
    }
}

#[tokio::test]
async fn pages_are_those_of_all_calls() {
    let past = past().await;
    let (ledger, own) = (&past.paying.ledger, Some(&*past.paying.account_id));
    for outcome in Outcome::ALL.into_iter().map(Some).chain([None]) {
        for account_id in [own, Some(&*past.neighbour.account_id), None] {
            let expected = past.wanted(|call| {
                account_id.is_none_or(|id| call.account_id == id)
                    && outcome.is_none_or(|outcome| call.outcome == outcome)
            });
            for limit in [7, 100, CALLS] {
                let page = CallsPage {
                    account_id,
                    outcome,
                    limit,
                    ..CallsPage::default()
                };
                assert_eq!(walk(ledger, page).await, expected, "{page:?}");
            }
        }
    }
}

#[tokio::test]
async fn every_call_is_found_by_its_number() {
    let past = past().await;
    let ledger = &past.paying.ledger;
    for call in &past.calls {
        let found = ledger.call(call.id).await.unwrap().unwrap();
        let facts = |call: &Call| (call.id, call.ended_ms, call.outcome, call.charged);
        assert_eq!(facts(&found), facts(call));
        for other in [call.id.0 - 1, call.id.0 + 1].map(CallId) {
            let is_one = past.calls.iter().any(|call| call.id == other);
            let found = ledger.call(other).await.unwrap();
            assert_eq!(found.is_some(), is_one, "{other}");
        }
    }
}

#[tokio::test]
async fn lists_between_two_times_are_whole() {
    let past = past().await;
    let (ledger, own) = (&past.paying.ledger, &*past.paying.account_id);
    let times = past.calls.iter().map(|call| call.ended_ms / 1_000);
    let (first, last) = (times.clone().min().unwrap(), times.max().unwrap());
    for from in (first - 10..last + 10).step_by(173) {
        for to in [from, from + 1, from + 90, last + 1] {
            let in_range = |call: &Call| (from * 1_000..to * 1_000).contains(&call.ended_ms);
            let expected = past
                .wanted(|call| in_range(call) && call.account_id == own && call.charged.is_some());
            let found = ledger.usage(own, from, to).await.unwrap();
            let found: Vec<_> = found.iter().map(|call| call.id).collect();
            assert_eq!(found, expected, "{from} to {to}");
            let filter = AnalyticsFilter {
                from_ms: from * 1_000,
                to_ms: to * 1_000,
                account_id: Some(own.to_owned()),
                model: None,
            };
            let rows = ledger.analytics(filter).await.unwrap();
            let charged: u64 = rows.iter().map(|row| row.charged).sum();
            assert_eq!(usize::try_from(charged).unwrap(), expected.len());
        }
    }
}

#[tokio::test]
async fn entries_have_every_charge_in_the_order_of_payment() {
    let past = past().await;
    let (ledger, own) = (&past.paying.ledger, &*past.paying.account_id);
    let mut expected: Vec<_> = past.paid_by_account();
    expected.reverse();
    for limit in [7, 100, CALLS] {
        let (mut entries, mut before) = (Vec::new(), None);
        loop {
            let page = ledger.entries_page(own, before, limit).await.unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.seq);
            entries.extend(page);
        }
        assert!(entries.is_sorted_by(|one, next| one.seq > next.seq));
        let grant = entries.pop().unwrap();
        assert_eq!(grant.delta.nanos(), DOLLAR);
        assert_eq!(entries.len(), expected.len());
        for (entry, call) in entries.iter().zip(&expected) {
            let after = call.charged.unwrap().balance_after;
            assert_eq!(entry.reference, call.id.to_string());
            assert_eq!((entry.delta.nanos(), entry.balance_after), (-COST, after));
        }
    }
}

#[tokio::test]
async fn the_tokens_of_the_window_are_those_of_its_calls() {
    let past = past().await;
    let used = past.paying.ledger.tokens_in_window().await.unwrap();
    let now_ms = past.paying.now_ms.load(Relaxed);
    let mut lately = past.calls.iter().filter(|call| {
        let numbered_ms = i64::try_from(call.id.0 >> 19).unwrap();
        numbered_ms >= now_ms - 70_000
    });
    let charged = |call: &Call| u64::from(call.charged.is_some()) * u64::try_from(COST).unwrap();
    assert!(lately.clone().count() > 5);
    assert!(lately.all(|call| used.get(&call.id.0) == Some(&charged(call))));
    let long_ago = past
        .calls
        .iter()
        .filter(|call| used.contains_key(&call.id.0));
    assert!(long_ago.count() < past.calls.len() / 2);
}

/// By an ID of the gateway's and by one of the client's, which several calls may have.
#[tokio::test]
async fn calls_are_found_by_their_request_id() {
    let paying = with(DOLLAR).await;
    let at = |ms: i64| {
        rising_id(
            "req_",
            u64::try_from(paying.now_ms.load(Relaxed) + ms).unwrap(),
        )
    };
    let names = [
        at(0),
        at(0),
        at(-1_999),
        at(-90_000),
        at(5_000),
        "theirs".into(),
        at(0),
    ];
    let mut ids = Vec::new();
    for name in names.iter().chain(&names[4..6]) {
        let request = HoldRequest {
            request_id: name,
            ..paying.request(COST, COST, 0)
        };
        let mut held = paying.ledger.hold(request).await.unwrap();
        ids.push((
            name,
            held.charge(tokens(COST), Outcome::Answered)
                .await
                .unwrap()
                .id,
        ));
        if ids.len() == 6 {
            paying.days().await; // the later calls stay in the redo log
        }
    }
    for (name, _) in &ids {
        let found = paying.ledger.find_calls(name).await.unwrap();
        let found: Vec<_> = found.iter().map(|call| call.id).collect();
        let mut expected: Vec<_> = ids.iter().filter(|one| one.0 == *name).collect();
        expected.reverse();
        let expected: Vec<_> = expected.into_iter().map(|one| one.1).collect();
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(paying.ledger.find_calls(&at(0)).await.unwrap().len(), 0);
    paying.assert_sound().await;
}
