//! Filters of pages of calls, and sums by hour and minute, on both backends.
//!
//! In tests a page looks at few calls for filters without an index, so that these lists go on where the search ended.

use super::*;
use crate::{
    ledger::{CallId, DEFAULT_PROJECT, SeenCalls, SpansPage},
    wire::agent::Agent,
};

contract!(
    calls_are_found_by_what_they_belong_to,
    calls_are_found_by_their_end,
    spans_add_up_to_the_days,
    spans_are_of_one_account_and_of_what_a_member_sees,
    latencies_are_those_of_answered_calls,
);

const OUTCOMES: [Outcome; 6] = [
    Outcome::Answered,
    Outcome::ClientLeft,
    Outcome::ProviderFailed,
    Outcome::Answered,
    Outcome::NoUsage,
    Outcome::Lost,
];

/// A call that was made.
#[derive(Clone)]
struct Made {
    id: CallId,
    ended_ms: i64,
    project: Option<&'static str>,
    member: Option<&'static str>,
    session: Option<&'static str>,
    upstream: &'static str,
    outcome: Outcome,
}

/// Makes calls of all kinds, several at each of these times; the newest comes last.
async fn made(paying: &Paying, times: &[i64]) -> Vec<Made> {
    let mut made = Vec::new();
    let start = paying.now();
    for (round, at) in times.iter().enumerate() {
        paying.advance(start + at - paying.now());
        for number in 0..12 {
            let of = number + round;
            let mut call = Made {
                id: CallId(0),
                ended_ms: paying.now() * 1_000,
                project: [None, Some("proj_1"), Some("proj_2")][of % 3],
                member: [None, Some("person_1"), Some("person'2")][of / 2 % 3],
                session: [None, Some("s 1"), Some("%")][of / 3 % 3],
                upstream: ["one", "two"][of % 2],
                outcome: OUTCOMES[of % OUTCOMES.len()],
            };
            call.id = make(paying, &call).await;
            made.push(call);
        }
    }
    made
}

async fn make(paying: &Paying, call: &Made) -> CallId {
    let payer = Arc::new(Payer {
        key_id: paying.key_id.clone(),
        project_id: call.project.map(str::to_owned),
        member_id: call.member.map(str::to_owned),
    });
    let agent = call.session.map(|session| {
        Arc::new(Agent {
            session: Some(session.into()),
            ..Agent::default()
        })
    });
    let request = HoldRequest {
        payer: &payer,
        agent,
        stream: call.upstream == "one",
        ..paying.request(COST, COST, 0)
    };
    let mut held = paying.ledger.hold(request).await.unwrap();
    held.set_deployment(&Arc::from(call.upstream));
    let id = held.id();
    if call.outcome.is_error() {
        held.release(call.outcome, None);
    } else {
        held.first_byte();
        charge_for(&mut held, tokens(COST), call.outcome)
            .await
            .unwrap();
    }
    id
}

fn found(made: &[Made], is_wanted: impl Fn(&Made) -> bool) -> Vec<CallId> {
    let wanted = made.iter().rev().filter(|call| is_wanted(call));
    wanted.map(|call| call.id).collect()
}

async fn calls_are_found_by_what_they_belong_to(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    neighbour.pay().await.unwrap();
    let made = made(&paying, &[0, 1, 90_000]).await;
    let all = CallsPage {
        account_id: Some(&paying.account_id),
        limit: 5,
        ..CallsPage::default()
    };
    let walked = async |page: CallsPage<'_>| walk(&paying.ledger, page).await;
    for project in [DEFAULT_PROJECT, "proj_1", "proj_3", "%"] {
        let page = CallsPage {
            project_id: Some(project),
            ..all
        };
        let wanted = found(&made, |call| {
            call.project.unwrap_or(DEFAULT_PROJECT) == project
        });
        assert_eq!(walked(page).await, wanted, "{project}");
    }
    for member in ["person_1", "person'2", "person_3", ""] {
        let page = CallsPage {
            member_id: Some(member),
            ..all
        };
        let wanted = found(&made, |call| call.member == Some(member));
        assert_eq!(walked(page).await, wanted, "{member}");
    }
    for session in ["s 1", "%", "s", "\0"] {
        let page = CallsPage {
            session: Some(session),
            ..all
        };
        let wanted = found(&made, |call| call.session == Some(session));
        assert_eq!(walked(page).await, wanted, "{session}");
    }
    for upstream in ["one", "two", "three"] {
        let page = CallsPage {
            upstream: Some(upstream),
            project_id: Some("proj_1"),
            ..all
        };
        let wanted = found(&made, |call| {
            call.upstream == upstream && call.project == Some("proj_1")
        });
        assert_eq!(walked(page).await, wanted, "{upstream}");
    }
    for account_id in [Some(paying.account_id.as_str()), None] {
        let errors = CallsPage {
            account_id,
            errors_only: true,
            ..all
        };
        let wanted = found(&made, |call| call.outcome.is_error());
        assert_eq!(walked(errors).await, wanted);
        let page = CallsPage {
            session: Some("s 1"),
            ..errors
        };
        let wanted = found(&made, |call| {
            call.outcome.is_error() && call.session == Some("s 1")
        });
        assert_eq!(walked(page).await, wanted);
    }
}

async fn calls_are_found_by_their_end(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let start = paying.now();
    let made = made(&paying, &[0, 1, 60, 3_600]).await;
    for account_id in [Some(paying.account_id.as_str()), None] {
        for (from, to) in [
            (None, None),
            (Some(1), None),
            (None, Some(60)),
            (Some(1), Some(60)),
            (Some(0), Some(1)),
            (Some(2), Some(60)),
            (Some(60), Some(60)),
            (Some(9_000), None),
        ] {
            let [from_ms, to_ms] = [from, to].map(|at| at.map(|at: i64| (start + at) * 1_000));
            for errors_only in [false, true] {
                for project_id in [None, Some("proj_1")] {
                    let page = CallsPage {
                        account_id,
                        project_id,
                        errors_only,
                        from_ms,
                        to_ms,
                        limit: 4,
                        ..CallsPage::default()
                    };
                    let wanted = found(&made, |call| {
                        from_ms.is_none_or(|from| call.ended_ms >= from)
                            && to_ms.is_none_or(|to| call.ended_ms < to)
                            && (!errors_only || call.outcome.is_error())
                            && (project_id.is_none() || call.project == project_id)
                    });
                    assert_eq!(walk(&paying.ledger, page).await, wanted, "{page:?}");
                }
            }
        }
    }
}

/// The next two hours, by hour.
fn hours(paying: &Paying) -> SpansPage {
    let from_ms = paying.now() * 1_000;
    SpansPage {
        account_id: paying.account_id.clone(),
        seen: None,
        from_ms,
        to_ms: from_ms + 7_200_000,
        step_ms: 3_600_000,
    }
}

async fn spans_add_up_to_the_days(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    neighbour.pay().await.unwrap();
    let start_ms = paying.now() * 1_000; // 2027-01-15T08:00:00Z
    // Two minutes of one hour, and another hour.
    let all = hours(&paying);
    made(&paying, &[0, 59, 60, 3_600, 7_199]).await;
    let hours = paying.ledger.usage_spans(all.clone()).await.unwrap();
    let by_span = |sums: &[DayUse]| {
        let mut spans = BTreeMap::new();
        for sum in sums {
            let of = spans.entry(sum.day.clone()).or_insert((0, 0, 0));
            of.0 += sum.calls;
            of.1 += sum.charged;
            of.2 += sum.cost.nanos();
        }
        spans.into_iter().collect::<Vec<_>>()
    };
    let time = |text: &str| format!("2027-01-15T{text}Z");
    assert_eq!(
        by_span(&hours),
        [
            (time("08:00:00"), (36, 18, 18 * COST)),
            (time("09:00:00"), (24, 12, 12 * COST))
        ]
    );
    // By key, project and model they are the sums of the day.
    let mut of_day = BTreeMap::new();
    for mut sum in hours {
        sum.day = "2027-01-15".into();
        match of_day.get_mut(&sum.project_id) {
            None => drop(of_day.insert(sum.project_id.clone(), sum)),
            Some(all) => {
                let all: &mut DayUse = all;
                all.calls += sum.calls;
                all.charged += sum.charged;
                all.prompt += sum.prompt;
                all.cost = all.cost.checked_add(sum.cost).unwrap();
                all.last_ms = all.last_ms.max(sum.last_ms);
            }
        }
    }
    let mut days = paying.days().await;
    days.sort_by(|one, other| one.project_id.cmp(&other.project_id));
    assert_eq!(of_day.into_values().collect::<Vec<_>>(), days);

    let minutes = SpansPage {
        to_ms: start_ms + 120_000,
        step_ms: 60_000,
        ..all
    };
    let minutes = paying.ledger.usage_spans(minutes).await.unwrap();
    let counts: Vec<_> = by_span(&minutes)
        .into_iter()
        .map(|(at, of)| (at, of.0))
        .collect();
    assert_eq!(counts, [(time("08:00:00"), 24), (time("08:01:00"), 12)]);
}

async fn spans_are_of_one_account_and_of_what_a_member_sees(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    neighbour.pay().await.unwrap();
    let all = hours(&paying);
    made(&paying, &[0, 1]).await;
    let own = SpansPage {
        seen: Some(SeenCalls {
            member_id: "person_1".into(),
            project_ids: vec!["proj_2".into()],
        }),
        ..all.clone()
    };
    let seen: u64 = paying
        .ledger
        .usage_spans(own.clone())
        .await
        .unwrap()
        .iter()
        .map(|sum| sum.calls)
        .sum();
    let page = CallsPage {
        account_id: Some(&paying.account_id),
        seen: own.seen.as_ref(),
        limit: 7,
        ..CallsPage::default()
    };
    assert_eq!(seen, walk(&paying.ledger, page).await.len() as u64);
    for none in [
        SpansPage {
            account_id: "acct_0".into(),
            ..all.clone()
        },
        SpansPage {
            account_id: "odd\0".into(),
            ..all.clone()
        },
        SpansPage { step_ms: 0, ..all },
    ] {
        assert_eq!(paying.ledger.usage_spans(none).await.unwrap(), []);
    }
}

async fn latencies_are_those_of_answered_calls(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let start_ms = paying.now() * 1_000;
    for (stream, first, total) in [(true, 1, 3), (false, 2, 2), (true, 4, 9)] {
        let request = HoldRequest {
            stream,
            ..paying.request(COST, COST, 0)
        };
        let mut held = paying.ledger.hold(request).await.unwrap();
        paying.advance(first);
        held.first_byte();
        paying.advance(total - first);
        charge(&mut held, COST).await.unwrap();
    }
    paying
        .hold(COST, COST, 0)
        .await
        .unwrap()
        .release(Outcome::ProviderFailed, None);
    let timed = async |seen: Option<&SeenCalls>, to: i64| {
        let timings =
            paying
                .ledger
                .latest_timings(&paying.account_id, seen, start_ms, start_ms + to);
        let timings = timings.await.unwrap();
        assert!(timings.iter().all(|one| one.key_id == paying.key_id));
        let times = timings.iter().map(|one| (one.first_ms, one.total_ms));
        times.collect::<Vec<_>>()
    };
    let all = [(Some(4_000), 9_000), (None, 2_000), (Some(1_000), 3_000)];
    assert_eq!(timed(None, i64::MAX / 2).await, all);
    assert_eq!(timed(None, 5_001).await, all[1..]);
    let other = SeenCalls {
        member_id: "person_1".into(),
        project_ids: vec!["proj_1".into()],
    };
    assert_eq!(timed(Some(&other), i64::MAX / 2).await, []);
}
