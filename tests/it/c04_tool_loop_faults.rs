//! Faults between the steps of a request with built-in tools: the request ends in order, and is charged as a whole or
//! not at all.

use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, Customer, FakeUpstream, Gate, LedgerView, Step, TestGateway,
    bodies::{hello_with, long},
    gateway::{hello, until},
    ledger_view::MODEL,
    stores::files_only,
    turns::{CONVERT, Turn, open_events, usage},
    upstream::stream_head,
};

/// A step that calls a tool, then a response that may never be requested.
fn two_steps(first: Turn) -> [Turn; 2] {
    [first, Turn::says("Done.")]
}

fn calls() -> Turn {
    Turn::calls(&[CONVERT])
}

/// Sends a request and runs `meanwhile` during its first step; returns the refusal.
async fn refused_after(
    gateway: &TestGateway,
    customer: &Customer<'_>,
    stream: bool,
    meanwhile: impl Future<Output = ()>,
) -> Answer {
    let gate = Gate::default();
    let before = gateway.upstream.calls();
    gateway.upstream.converse(two_steps(calls().after(&gate)));
    let body = hello(MODEL);
    let asking = customer.send("between", &body, stream);
    let acting = async {
        until("the provider gets the request", || {
            gateway.upstream.calls() > before
        })
        .await;
        meanwhile.await;
        gate.open();
    };
    let (refused, ()) = tokio::join!(asking, acting);
    let details = gateway.details("between").await;
    assert_eq!(details["outcome"], "not_renewed", "{details}");
    assert!(details["failure"].is_string(), "{details}");
    let steps = ["fake tool_calls 11+3", "convert_units done"];
    assert_eq!(gateway.steps("between").await, steps);
    refused.unwrap_err()
}

#[tokio::test]
async fn a_provider_that_fails_at_any_step_is_a_502_and_free() {
    for stream in [false, true] {
        for before in 0..4 {
            let gateway = TestGateway::start().await;
            let customer = gateway.customer().await;
            let mut turns = vec![calls(); before];
            turns.push(Turn::fails(529));
            gateway.upstream.converse(turns);
            let failed = customer.send("failing", &hello(MODEL), stream).await;
            let failed = failed.unwrap_err();
            failed.assert_error(502, "upstream_error", Some("529"), None);
            assert_eq!(gateway.upstream.calls(), before + 1);
            let steps = u32::try_from(before).unwrap();
            assert_eq!(
                customer.ledger_view().await,
                LedgerView::free_after_steps(steps)
            );
            let details = gateway.details("failing").await;
            assert_eq!(details["outcome"], "provider_failed");
            assert_eq!(details["settlement"]["charge"], "0.000000");
            assert_eq!(gateway.steps("failing").await.len(), 2 * before);
        }
    }
}

#[tokio::test]
async fn a_failed_step_fails_over_to_another_upstream() {
    for stream in [false, true] {
        let second = FakeUpstream::start().await;
        let config = format!(
            "[providers.second]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n\
             [[deployments]]\nmodel = \"*\"\nprovider = \"second\"\npriority = 1\n",
            second.address
        );
        let gateway = TestGateway::start_with(&config).await;
        let customer = gateway.customer().await;
        gateway.upstream.converse([calls(), Turn::fails(503)]);
        second.converse([Turn::says("Done.").using(100, 10)]);
        let reply = customer.send("over", &hello(MODEL), stream).await.unwrap();
        assert_eq!(reply.choices, [("Done.".into(), "stop".into())]);
        assert_eq!(reply.usage, usage(111, 13));
        let (asked, again) = (gateway.upstream.messages(), second.messages());
        assert_eq!(again, [asked[1].clone()], "the same question");
        let steps = [
            "fake tool_calls 11+3",
            "convert_units done",
            "second stop 100+10",
        ];
        assert_eq!(gateway.steps("over").await, steps);
        let details = gateway.details("over").await;
        assert_eq!(details["upstream"], "second");
        let attempts = details["failed_attempts"].as_array().unwrap();
        assert_eq!(attempts.len(), 1, "{details}");
        assert_eq!(attempts[0]["upstream"], "fake");
        let expected = LedgerView {
            spent: 111 * 2_000 + 13 * 9_000,
            charges: 1,
            requests: 1,
            tokens: 124,
        };
        assert_eq!(customer.ledger_view().await, expected);
    }
}

/// The caller has received nothing of an incomplete tool call, so failover is possible.
#[tokio::test]
async fn a_stream_that_breaks_before_its_first_byte_fails_over() {
    let second = FakeUpstream::start().await;
    let config = format!(
        "[providers.second]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n\
         [[deployments]]\nmodel = \"*\"\nprovider = \"second\"\npriority = 1\n",
        second.address
    );
    let gateway = TestGateway::start_with(&config).await;
    let customer = gateway.customer().await;
    let mut half = Turn::says_and_calls("Let me see", &[CONVERT]).chunks();
    half.truncate(half.len() - 3);
    let half = Step::Send(open_events(&half));
    let steps = vec![Step::Send(stream_head()), half, Step::Reset];
    gateway.upstream.converse([Turn::plays(steps)]);
    second.converse(two_steps(calls()));
    // Every step tries the first upstream first.
    let reply = customer.send("broken", &hello(MODEL), true).await.unwrap();
    assert_eq!(reply.choices, [("Done.".into(), "stop".into())]);
    assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));
    let steps = [
        "second tool_calls 11+3",
        "convert_units done",
        "second stop 11+3",
    ];
    assert_eq!(gateway.steps("broken").await, steps);
}

#[tokio::test]
async fn credit_that_runs_out_between_steps_ends_the_request() {
    for stream in [false, true] {
        let gateway = TestGateway::start_with("[credit]\nmax_overdraft = \"0\"").await;
        let customer = gateway.customer_with("0.01", 1_000).await;
        // A step may cost up to 0.0092: 200 output tokens, and the most tokens that can be counted in the definitions
        // of the tools.
        let body = hello_with(MODEL, json!({ "max_tokens": 200 }));
        gateway
            .upstream
            .converse(two_steps(calls().using(100, 200)));
        let refused = customer.send("poor", &body, stream).await.unwrap_err();
        let code = Some("payment_required");
        refused.assert_error(402, "insufficient_credits", code, None);
        assert_eq!(refused.error()["balance"], "0.010000", "nothing was taken");
        assert_eq!(
            gateway.upstream.calls(),
            1,
            "no further request is sent to the provider"
        );
        let expected = LedgerView {
            requests: 1,
            tokens: 300,
            ..LedgerView::default()
        };
        assert_eq!(customer.ledger_view().await, expected);
        assert_eq!(gateway.details("poor").await["outcome"], "not_renewed");
    }
}

/// The first step's hold stays; no credit is left for the next.
#[tokio::test]
async fn credit_that_expires_between_steps_ends_the_request() {
    let cases = [false, true].map(|stream| async move {
        let gateway = TestGateway::start_with_long_timeouts().await;
        let expiry = time::OffsetDateTime::now_utc() + Duration::from_secs(4);
        let format = time::format_description::well_known::Rfc3339;
        let grant = json!({ "amount": "1", "expires_at": expiry.format(&format).unwrap() });
        let customer = gateway.customer_with_grant(grant, 1_000).await;
        let expired = tokio::time::sleep(Duration::from_secs(5));
        let refused = refused_after(&gateway, &customer, stream, expired).await;
        refused.assert_error(402, "credits_expired", Some("payment_required"), None);
        assert_eq!(gateway.upstream.calls(), 1);
    });
    join_all(cases).await;
}

#[tokio::test]
async fn tokens_that_run_out_between_steps_end_the_request() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let limit = json!({ "model": MODEL, "rpm": 10, "tpm": 10_000 });
        let limit = gateway
            .operate(Method::PUT, "/operator/limits", Some(limit))
            .await;
        limit.assert_ok();
        let mut body = long(MODEL, 3_000);
        body["stream"] = stream.into();
        gateway
            .upstream
            .converse(two_steps(calls().using(5_900, 100)));
        let refused = gateway.chat(&body).await;
        let code = Some("tpm_exceeded");
        refused.assert_error(429, "rate_limit_exceeded", code, None);
        assert_eq!(refused.headers["x-ratelimit-remaining"], "9");
        assert_eq!(refused.headers["x-ratelimit-remaining-tokens"], "4000");
        assert_eq!(refused.headers["x-ratelimit-limit-tokens"], "10000");
        assert!(refused.headers.contains_key("retry-after"));
        assert_eq!(
            gateway.upstream.calls(),
            1,
            "no further request is sent to the provider"
        );
        gateway.idle().await;
        let account = format!("/operator/accounts/{}", gateway.account_id);
        let account = gateway.operate(Method::GET, &account, None).await;
        assert_eq!(account.assert_ok()["balance"], "1000.000000");
        assert_eq!(account.body["held"], "0.000000");
    }
}

/// All steps belong to one request: they need no further room in the window's request count.
#[tokio::test]
async fn steps_are_not_counted_as_requests() {
    for stream in [false, true] {
        let gateway = TestGateway::start_set(&[("LIMITS__RPM", "1")]).await;
        gateway
            .upstream
            .converse([calls(), calls(), Turn::says("Done.")]);
        let body = hello_with(MODEL, json!({ "stream": stream }));
        let url = gateway.url("/v1/chat/completions");
        let request = gateway
            .client
            .post(url)
            .bearer_auth(&gateway.key)
            .json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.text().await.unwrap().contains("Done"));
        let refused = gateway.chat(&body).await;
        let code = Some("rpm_exceeded");
        refused.assert_error(429, "rate_limit_exceeded", code, None);
    }
}

#[tokio::test]
async fn a_key_that_is_disabled_or_deleted_between_steps_pays_for_no_more() {
    for stream in [false, true] {
        for (method, end) in [(Method::POST, "/disable"), (Method::DELETE, "")] {
            let gateway = TestGateway::start().await;
            let mut customer = gateway.customer().await;
            let (key_id, key) = gateway.new_key(&customer.id).await;
            let other = std::mem::replace(&mut customer.key, key);
            let disable = async {
                let path = format!("/operator/keys/{key_id}{end}");
                gateway
                    .operate(method.clone(), &path, None)
                    .await
                    .assert_ok();
            };
            let refused = refused_after(&gateway, &customer, stream, disable).await;
            let code = Some("invalid_api_key");
            refused.assert_error(401, "authentication_error", code, None);
            assert_eq!(gateway.upstream.calls(), 1);
            customer.key = other;
            assert_eq!(
                customer.ledger_view().await,
                LedgerView::free_after_steps(1)
            );
        }
    }
}

#[tokio::test]
async fn an_account_that_is_closed_between_steps_pays_for_no_more() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        let account = format!("/operator/accounts/{}", customer.id);
        let closed = async |closed: bool| {
            let body = Some(json!({ "closed": closed }));
            gateway
                .operate(Method::PATCH, &account, body)
                .await
                .assert_ok();
        };
        let refused = refused_after(&gateway, &customer, stream, closed(true)).await;
        refused.assert_error(402, "no_account", Some("payment_required"), None);
        assert_eq!(gateway.upstream.calls(), 1);
        closed(false).await;
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::free_after_steps(1)
        );
    }
}

/// No further charges accumulate while they cannot be written.
#[tokio::test]
async fn a_store_that_fails_between_steps_ends_the_request() {
    if files_only("it locks the database's file") {
        return;
    }
    for stream in [false, true] {
        let gateway = TestGateway::start_with_long_timeouts().await;
        let customer = gateway.customer().await;
        let (gate, before) = (Gate::default(), gateway.upstream.calls());
        gateway.upstream.converse([
            calls().after(&gate),
            Turn::says("Hi"), // for another caller, so that the gateway notices that charging fails
            Turn::says("Never"),
        ]);
        let body = hello(MODEL);
        let asking = customer.send("lost", &body, stream);
        let acting = async {
            until("the provider gets the request", || {
                gateway.upstream.calls() > before
            })
            .await;
            let database = gateway.data.path().join("tollgate.db");
            let stranger = rusqlite::Connection::open(database).unwrap();
            stranger.execute_batch("BEGIN IMMEDIATE").unwrap();
            let uncharged = gateway.chat(&hello(MODEL)).await;
            assert_eq!(uncharged.status, 503, "{}", uncharged.body);
            gate.open();
            stranger
        };
        let (refused, stranger) = tokio::join!(asking, acting);
        let code = Some("admission_state_unavailable");
        let refused = refused.unwrap_err();
        refused.assert_error(503, "server_error", code, None);
        assert_eq!(
            gateway.upstream.calls(),
            2,
            "no further request is sent to the provider"
        );
        drop(stranger);
        let details = gateway.details("lost").await;
        assert_eq!(details["outcome"], "not_renewed");
        for _ in 0..500 {
            if gateway.get("/health").await.status == 200 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::free_after_steps(1)
        );
    }
}
