//! A provider that reports the largest possible usage, and a customer who sends as many requests at once as are
//! admitted: the balance stays within its bound, whichever gateways serve the requests.

use futures_util::future::join_all;
use serde_json::json;

use crate::{
    gateways::{Fleet, Outcome, TIMEOUT, ask, within},
    support::{bodies::hello_with, turns::Turn},
};

/// Costs 2.00 / 10.00 dollars per million tokens, without a minimum: a response without a cap can cost 0.66.
const MODEL: &str = "svc-max-coding";
const CONTEXT: u32 = 1_050_000;
const MAX_OUTPUT: u32 = 66_000;
const DOLLAR: i64 = 1_000_000_000;
/// The default of `credit.max_overdraft`.
const MAX_OVERDRAFT: i64 = 5 * DOLLAR;

#[tokio::test(flavor = "multi_thread")]
async fn three_gateways_keep_an_account_within_its_bound() {
    let fleet = Fleet::of(3).await;
    fleet
        .upstream
        .converse([Turn::says("Hi").using(CONTEXT, MAX_OUTPUT)]);
    for more in [
        json!({ "max_tokens": 10 }),
        json!({}),
        json!({ "n": 128, "max_tokens": 200 }),
    ] {
        let account = fleet.account("1").await;
        let body = hello_with(MODEL, more.clone());
        let requests = (0..90).map(|number| {
            let public = fleet.gateways[number % 3].public;
            ask(&fleet.client, public, &account.key, &body)
        });
        let outcomes = join_all(requests).await;
        let answered = outcomes
            .iter()
            .filter(|one| matches!(one, Outcome::Answered));
        let answered = answered.count();
        for outcome in &outcomes {
            if let Outcome::Refused(answer) = outcome {
                answer.assert_error(402, "insufficient_credits", Some("payment_required"), None);
            }
        }
        assert!(answered > 0, "{more}: nothing was tried");
        within(TIMEOUT, "nothing is held", async || {
            fleet.spent_and_held(1, &account).await.1 == 0
        })
        .await;
        let (spent, _) = fleet.spent_and_held(1, &account).await;
        assert!(spent <= DOLLAR + MAX_OVERDRAFT, "{more}: {spent}");
        assert_eq!(fleet.charged(2, &account).await.len(), answered, "{more}");
    }
    fleet.ends_clean().await;
}
