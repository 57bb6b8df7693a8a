//! What a developer sees of an account, on both backends: calls with their own keys, and those of projects.

use super::*;
use crate::{
    ledger::{CallId, SeenCalls, SessionsPage},
    wire::agent::Agent,
};

contract!(calls_and_sessions_are_those_that_a_member_sees);

async fn calls_and_sessions_are_those_that_a_member_sees(store: TestStore) {
    let paying = Paying::on_with(store, DOLLAR).await;
    let mut made = Vec::new();
    for (member_id, project_id) in [
        (Some("person_1"), None),
        (Some("person_2"), Some("proj_1")),
        (None, None),
        (None, Some("proj_2")),
        (Some("person_1"), Some("proj_1")),
    ] {
        let payer = Arc::new(Payer {
            key_id: paying.key_id.clone(),
            project_id: project_id.map(str::to_owned),
            member_id: member_id.map(str::to_owned),
        });
        let agent = Agent {
            session: Some(format!("session {}", made.len()).into()),
            ..Agent::default()
        };
        let request = HoldRequest {
            payer: &payer,
            agent: Some(Arc::new(agent)),
            ..paying.request(COST, COST, 0)
        };
        let mut held = paying.ledger.hold(request).await.unwrap();
        made.push(charge(&mut held, COST).await.unwrap().id);
        paying.advance(1);
    }
    let of = |member_id: &str, projects: &[&str]| SeenCalls {
        member_id: member_id.into(),
        project_ids: projects.iter().map(|id| (*id).to_owned()).collect(),
    };
    for (seen, expected) in [
        (None, &[4, 3, 2, 1, 0][..]),
        (Some(of("person_1", &[])), &[4, 0]),
        (Some(of("person_1", &["proj_2"])), &[4, 3, 0]),
        (Some(of("person_2", &["proj_1", "proj_2"])), &[4, 3, 1]),
        (Some(of("person_3", &["default", "%"])), &[]),
    ] {
        let page = CallsPage {
            account_id: Some(&paying.account_id),
            seen: seen.as_ref(),
            limit: 2,
            ..CallsPage::default()
        };
        let wanted: Vec<CallId> = expected.iter().map(|at| made[*at]).collect();
        assert_eq!(walk(&paying.ledger, page).await, wanted, "{seen:?}");
        let page = SessionsPage {
            account_id: Some(paying.account_id.clone()),
            seen: seen.clone(),
            to_ms: i64::MAX,
            limit: 10,
            ..SessionsPage::default()
        };
        let sessions = paying.ledger.sessions(page).await.unwrap();
        let names: Vec<_> = sessions.into_iter().map(|used| used.session).collect();
        let wanted: Vec<_> = expected.iter().map(|at| format!("session {at}")).collect();
        assert_eq!(names, wanted, "{seen:?}");
    }
}
