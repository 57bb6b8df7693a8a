//! Sums by the session of a coding agent, on both backends.

use super::*;
use crate::{
    ledger::{SessionUse, SessionsPage},
    wire::agent::Agent,
};

contract!(
    the_agent_is_stored_with_its_call,
    sums_are_by_session,
    pages_go_through_all_sessions,
);

const USAGE: Usage = Usage {
    prompt: 100,
    cached: 40,
    cache_write: 10,
    cache_write_1h: 0,
    completion: 10,
    reasoning: 4,
};

fn agent(session: &str) -> Agent {
    Agent {
        client: Some("claude-code".into()),
        session: Some(session.into()),
        ..Agent::default()
    }
}

async fn hold_by(paying: &Paying, agent: Agent) -> Held {
    let request = HoldRequest {
        agent: Some(Arc::new(agent)),
        ..paying.request(COST, COST, 0)
    };
    paying.ledger.hold(request).await.unwrap()
}

async fn pay_by(paying: &Paying, session: &str) -> Call {
    let mut held = hold_by(paying, agent(session)).await;
    let charged = charge_for(&mut held, USAGE, Outcome::Answered);
    charged.await.unwrap()
}

fn all() -> SessionsPage {
    SessionsPage {
        to_ms: i64::MAX,
        limit: 100,
        ..SessionsPage::default()
    }
}

async fn the_agent_is_stored_with_its_call(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let sender = Agent {
        client: Some("codex\"cli".into()),
        session: Some("s:1".into()),
        id: Some("a'2".into()),
        parent_id: Some("\\u0000".into()),
        role: Some("review".into()),
    };
    let mut held = hold_by(&paying, sender.clone()).await;
    let charged = charge_for(&mut held, USAGE, Outcome::Answered);
    let charged = charged.await.unwrap();
    let found = paying.ledger.call(charged.id).await.unwrap().unwrap();
    assert_eq!(found.agent.as_deref(), Some(&sender));

    let released = hold_by(&paying, sender.clone()).await;
    let id = released.id();
    released.release(Outcome::ProviderFailed, None);
    let found = paying.ledger.call(id).await.unwrap().unwrap();
    assert_eq!(found.agent.as_deref(), Some(&sender));

    let plain = paying.pay().await.unwrap();
    let found = paying.ledger.call(plain.id).await.unwrap().unwrap();
    assert_eq!(found.agent, None);
}

async fn sums_are_by_session(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    let start = paying.now() * 1_000;
    pay_by(&paying, "first").await;
    paying.advance(5);
    pay_by(&paying, "second").await;
    pay_by(&neighbour, "first").await;
    paying.pay().await.unwrap();
    paying.advance(5);
    pay_by(&paying, "first").await;
    let failed = hold_by(&paying, agent("first")).await;
    paying.advance(5);
    failed.release(Outcome::ProviderFailed, None);
    let unnamed = Agent {
        session: None,
        ..agent("")
    };
    drop(hold_by(&paying, unnamed).await);

    let sums = |payer: &Paying, session: &str, calls: u64, charged: u32| SessionUse {
        account_id: payer.account_id.clone(),
        session: session.into(),
        client: Some("claude-code".into()),
        calls,
        charged: charged.into(),
        prompt: (charged * USAGE.prompt).into(),
        cached: (charged * USAGE.cached).into(),
        cache_write: (charged * USAGE.cache_write).into(),
        completion: (charged * USAGE.completion).into(),
        reasoning: (charged * USAGE.reasoning).into(),
        // A nano-dollar for each token that was not cached.
        cost: NanoUsd::new((charged * (USAGE.prompt - USAGE.cached)).into()),
        first_ms: start + 5_000,
        last_ms: start + 5_000,
    };
    let first = SessionUse {
        first_ms: start,
        last_ms: start + 15_000,
        ..sums(&paying, "first", 3, 2)
    };
    let second = sums(&paying, "second", 1, 1);
    let of_neighbour = sums(&neighbour, "first", 1, 1);
    let sessions = |page| async { paying.ledger.sessions(page).await.unwrap() };
    let of_account = SessionsPage {
        account_id: Some(paying.account_id.clone()),
        ..all()
    };
    assert_eq!(sessions(of_account).await, [first.clone(), second.clone()]);
    let found = sessions(all()).await;
    assert_eq!(found.len(), 3);
    assert_eq!(found[0], first);
    assert!(found.contains(&second) && found.contains(&of_neighbour));

    let before_last = SessionsPage {
        to_ms: start + 5_000,
        ..all()
    };
    let once = SessionUse {
        first_ms: start,
        last_ms: start,
        ..sums(&paying, "first", 1, 1)
    };
    assert_eq!(sessions(before_last).await, [once], "calls of that time");
    for nobody in ["acct_0", "odd\0"] {
        let page = SessionsPage {
            account_id: Some(nobody.into()),
            ..all()
        };
        assert_eq!(sessions(page).await, []);
    }
}

async fn pages_go_through_all_sessions(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let neighbour = paying.neighbour(DOLLAR).await;
    for at in 0..24 {
        let payer = if at % 3 == 0 { &neighbour } else { &paying };
        pay_by(payer, &format!("S{}-{}", at % 2, at % 9)).await;
        // Most of them at the same time as others.
        paying.advance(i64::from(at % 6 == 5));
    }
    let whole = paying.ledger.sessions(all()).await.unwrap();
    assert!(whole.len() > 10);
    assert!(whole.is_sorted_by(|one, next| one.cursor() > next.cursor()));
    for limit in [1, 2, 5] {
        let mut seen = Vec::new();
        let mut page = SessionsPage { limit, ..all() };
        loop {
            let found = paying.ledger.sessions(page.clone()).await.unwrap();
            let Some(last) = found.last() else { break };
            assert!(found.len() <= limit);
            page.before = Some(last.cursor());
            seen.extend(found);
        }
        assert_eq!(seen, whole, "{limit} at a time");
    }
}
