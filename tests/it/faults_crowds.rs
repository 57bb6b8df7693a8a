//! Many simultaneous requests: exactly as many calls start as the balance and the rate-limit window allow.

use std::time::Duration;

use futures_util::{
    StreamExt as _,
    future::join_all,
    stream::{FuturesUnordered, iter},
};
use reqwest::{Client, Method};
use serde_json::json;

use crate::support::{
    Gate, LedgerView, RawConnection, Step, TestGateway,
    bodies::hello_with,
    gateway::{answer, hello},
    ledger_view::MODEL,
    raw::chat_request,
    upstream::{completion, response},
};

/// Far longer than the test takes; only ends a failing test.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A thousand requests, a hundred on each of ten connections. No started call ends before all other requests were
/// refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_thousand_at_once_exactly_as_many_start_as_can_be_paid() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    // Each call holds its input and 1,000 output tokens at 9,000 nano-dollars: seven fit, an eighth does not.
    let customer = gateway.customer_with("0.07", 1_000_000).await;
    let refusals_seen = Gate::default();
    let hi = response(200, "application/json", &completion("Hi").to_string());
    gateway
        .upstream
        .play(vec![Step::Until(refusals_seen.clone()), Step::Send(hi)]);
    let connection = || Client::builder().no_proxy().http2_prior_knowledge().build();
    let connections: Vec<_> = (0..10).map(|_| connection().unwrap()).collect();
    let own = json!({ "max_tokens": 1_000, "tool_execution": "passthrough" });
    let body = hello_with(MODEL, own);
    let mut requests: FuturesUnordered<_> = (0..1_000)
        .map(|number| {
            let url = gateway.url("/v1/chat/completions");
            let request = connections[number % 10]
                .post(url)
                .bearer_auth(&customer.key);
            tokio::spawn(answer(request.json(&body)))
        })
        .collect();
    let refused = requests.by_ref().take(993).collect::<Vec<_>>();
    let refused = tokio::time::timeout(TIMEOUT, refused).await;
    let refused = refused.expect("all but seven are refused while seven are running");
    for answer in refused {
        let answer = answer.unwrap();
        answer.assert_error(402, "insufficient_credits", Some("payment_required"), None);
    }
    refusals_seen.open();
    for answer in requests.collect::<Vec<_>>().await {
        answer.unwrap().assert_ok();
    }
    assert_eq!(gateway.upstream.calls(), 7);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(7));
}

/// Sixteen callers with two keys of one account, two hundred requests each.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_all_callers_of_an_account_exactly_as_many_are_admitted_as_the_window_allows() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer_with("1000", 60).await;
    let (_, second_key) = gateway.new_key(&customer.id).await;
    let callers = [&customer.key, &second_key]
        .repeat(8)
        .into_iter()
        .map(|key| {
            let url = gateway.url("/v1/chat/completions");
            let client = Client::builder().no_proxy().build().unwrap();
            let request = client.post(url).bearer_auth(key).json(&hello(MODEL));
            tokio::spawn(async move {
                let tries = iter(0..200).then(|_| answer(request.try_clone().unwrap()));
                tries.collect::<Vec<_>>().await
            })
        });
    let mut admitted = 0;
    for tries in join_all(callers).await {
        for answer in tries.unwrap() {
            if answer.status == 200 {
                admitted += 1;
            } else {
                answer.assert_error(429, "rate_limit_exceeded", Some("rpm_exceeded"), None);
            }
        }
    }
    assert_eq!((admitted, gateway.upstream.calls()), (60, 60));
    assert_eq!(customer.ledger_view().await, LedgerView::charged(60));
}

/// Fifty requests in one write, each with its own question: served in order, each charged by itself. Every fifth
/// fails and is free.
#[tokio::test]
async fn pipelined_requests_are_charged_individually() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    gateway.upstream.play_for_each(|request| {
        let number: u32 = request.question().parse().unwrap();
        let mut whole = completion(request.question());
        whole["usage"] = json!({ "prompt_tokens": 100 + number, "completion_tokens": number });
        let status = if number.is_multiple_of(5) { 500 } else { 200 };
        vec![Step::Send(response(
            status,
            "application/json",
            &whole.to_string(),
        ))]
    });
    let mut written = String::new();
    for number in 0..50 {
        let mut body = hello(MODEL);
        body["messages"][0]["content"] = number.to_string().into();
        written += &chat_request(&customer.key, "x-request-id: the-same-for-all\r\n", &body);
    }
    let mut connection = RawConnection::open(gateway.public).await;
    connection.send(written).await;
    let mut expected = LedgerView {
        requests: 50,
        ..LedgerView::default()
    };
    let mut ids = std::collections::BTreeSet::new();
    for number in 0..50_u32 {
        let reply = connection.answer().await;
        if number.is_multiple_of(5) {
            reply.assert_error(502, "upstream_error", Some("500"), None);
            continue;
        }
        let reply = reply.assert_ok();
        let content = reply["choices"][0]["message"]["content"].as_str();
        assert_eq!(content, Some(&*number.to_string()), "in order");
        assert!(ids.insert(reply["id"].to_string()), "an ID of its own");
        expected.spent += i64::from(100 + number) * 2_000 + i64::from(number) * 9_000;
        expected.tokens += u64::from(100 + 2 * number);
        expected.charges += 1;
    }
    assert_eq!(customer.ledger_view().await, expected);
}

/// Hundreds of requests in one write that are refused without any wait in between: each gets its reason, even beyond
/// the number of requests that a connection handles before it yields.
#[tokio::test]
async fn refused_pipelined_requests_each_get_their_reason() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let too_much = hello_with(MODEL, json!({ "max_tokens": 66_000, "n": 128 }));
    let written = chat_request(&customer.key, "", &too_much).repeat(400);
    let mut connection = RawConnection::open(gateway.public).await;
    connection.send(written).await;
    for number in 0..400 {
        let reply = connection.answer().await;
        assert_eq!(reply.status, 429, "{number}: {}", reply.body);
    }
    assert_eq!(customer.ledger_view().await, LedgerView::default());
}

/// Settings that change continuously make no request fail, although a gateway's cache is stale again and again and
/// must be re-read.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn continuously_changing_settings_delay_no_request() {
    const REQUESTS: u32 = 10;
    let gateway = TestGateway::start_with_long_timeouts().await;
    let customer = gateway.customer().await;
    let another = gateway.customer().await;
    let hi = response(200, "application/json", &completion("Hi").to_string());
    gateway.upstream.play(vec![Step::Send(hi)]);
    let over = Gate::default();
    let change = async |first: u64| {
        for rpm in (first..).step_by(8) {
            if over.is_open() {
                return;
            }
            let limit = json!({ "account": another.id, "model": MODEL, "rpm": rpm + 1 });
            let changed = gateway.operate(Method::PUT, "/operator/limits", Some(limit));
            changed.await.assert_ok();
        }
    };
    let ask = async {
        for _ in 0..REQUESTS {
            let answer = answer(customer.request(&hello(MODEL))).await;
            answer.assert_ok();
        }
        over.open();
    };
    tokio::join!(join_all((0..8).map(change)), ask);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(REQUESTS));
}
