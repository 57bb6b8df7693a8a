//! Requests without a key that official clients mark as retries (§4.11): they get the response of the same request that
//! was cut off, once.

use reqwest::RequestBuilder;
use serde_json::Value;

use crate::support::{
    Customer, Gate, LedgerView, TestGateway,
    retries::{ALL, Api, attach, got, leave, leave_first, plays},
};

fn retry(gateway: &TestGateway, customer: &Customer<'_>, api: Api, body: &Value) -> RequestBuilder {
    gateway
        .asks(api, &customer.key, body)
        .header("x-stainless-retry-count", "1")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_gets_the_call_that_was_left_while_it_runs_or_afterwards() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    for (api, stream) in ALL.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let (customer, gate) = (gateway.customer().await, Gate::default());
        gateway.upstream.play_for_each(plays(gate.clone()));
        let (calls, body) = (gateway.upstream.calls(), api.body("Hi", stream));
        let first = || gateway.asks(api, &customer.key, &body);
        leave_first(&gateway, first()).await;
        leave_first(&gateway, first()).await;
        let attached = attach(&gateway, &gate, retry(&gateway, &customer, api, &body)).await;
        assert!(
            attached.body.contains("three") && !attached.is_replayed(),
            "{api:?} {stream}"
        );
        gateway.idle().await;
        let replayed = got(retry(&gateway, &customer, api, &body)).await.ok();
        assert!(
            replayed.body.contains("three") && replayed.is_replayed(),
            "{api:?} {stream}"
        );
        assert_ne!(attached.body, replayed.body, "each was another call");
        assert_eq!(gateway.upstream.calls(), calls + 2);
        assert_eq!(customer.ledger_view().await, LedgerView::charged(2));
        // Both are taken.
        let third = got(retry(&gateway, &customer, api, &body)).await.ok();
        assert!(!third.is_replayed());
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged(3),
            "{api:?} {stream}"
        );
    }
    assert_eq!(gateway.inside().retries.recorded_bytes(), 0, "all is taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_that_is_cut_off_too_can_be_sent_again() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    gateway.upstream.play_for_each(plays(gate.clone()));
    let body = Api::Chat.body("Hi", true);
    leave_first(&gateway, gateway.asks(Api::Chat, &customer.key, &body)).await;
    for _ in 0..2 {
        let retries = &gateway.inside().retries;
        let before = retries.attached();
        let cut = retry(&gateway, &customer, Api::Chat, &body);
        leave(cut, || retries.attached() > before, || retries.is_left()).await;
    }
    let last = attach(
        &gateway,
        &gate,
        retry(&gateway, &customer, Api::Chat, &body),
    )
    .await;
    assert!(last.body.ends_with("data: [DONE]\n\n"), "{}", last.body);
    assert_eq!(gateway.upstream.calls(), 1);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

/// Two people may ask the same, and both pay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_marked_request_of_the_same_key_gets_what_was_left() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    gateway.upstream.play_for_each(plays(gate.clone()));
    let body = Api::Chat.body("Hi", false);
    leave_first(&gateway, gateway.asks(Api::Chat, &customer.key, &body)).await;
    gate.open();
    gateway.idle().await;
    let (_, other_key) = gateway.new_key(&customer.id).await;
    let marked = |key: &str, body: &Value| {
        let request = gateway.asks(Api::Chat, key, body);
        got(request.header("x-stainless-retry-count", "2"))
    };
    let unmarked = gateway.asks(Api::Chat, &customer.key, &body);
    let unmarked = unmarked.header("x-stainless-retry-count", "0");
    for other in [
        got(unmarked).await,
        marked(&other_key, &body).await,
        marked(&customer.key, &Api::Chat.body("Hi!", false)).await,
    ] {
        assert!(!other.ok().is_replayed());
    }
    // What was delivered is not taken by a request that is marked.
    assert!(marked(&customer.key, &body).await.ok().is_replayed());
    assert!(!marked(&customer.key, &body).await.ok().is_replayed());
    assert_eq!(customer.ledger_view().await, LedgerView::charged(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_can_be_turned_off() {
    let gateway = TestGateway::start_set(&[("RETRIES__ATTACH", "false")]).await;
    let customer = gateway.customer().await;
    let gate = Gate::default();
    gateway.upstream.play_for_each(plays(gate.clone()));
    let body = Api::Chat.body("Hi", false);
    leave_first(&gateway, gateway.asks(Api::Chat, &customer.key, &body)).await;
    gate.open();
    gateway.idle().await;
    let again = got(retry(&gateway, &customer, Api::Chat, &body)).await.ok();
    assert!(!again.is_replayed());
    // Keys are served all the same.
    for is_replayed in [false, true] {
        let keyed = got(gateway.keyed(&customer, Api::Chat, "key-1", &body))
            .await
            .ok();
        assert_eq!(keyed.is_replayed(), is_replayed);
    }
    assert_eq!(customer.ledger_view().await, LedgerView::charged(3));
}

/// Without room in memory a retry is a call of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_a_retry_runs() {
    let gateway = TestGateway::start_set(&[("RETRIES__MEMORY_BYTES", "0")]).await;
    let customer = gateway.customer().await;
    for api in ALL {
        let gate = Gate::default();
        gateway.upstream.play_for_each(plays(gate.clone()));
        let body = api.body("Hi", true);
        leave_first(&gateway, gateway.asks(api, &customer.key, &body)).await;
        gate.open();
        let again = got(retry(&gateway, &customer, api, &body)).await.ok();
        assert!(again.body.contains("three"), "{api:?}: {}", again.body);
    }
    assert_eq!(customer.ledger_view().await, LedgerView::charged(6));
}
