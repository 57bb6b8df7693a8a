//! Requests with an `Idempotency-Key` (§4.11): one call is made and charged, and all of them get its response.

use futures_util::{StreamExt as _, future::join_all};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, LedgerView, Step, TestGateway,
    gateway::{hello, until},
    ledger_view::MODEL,
    retries::{ALL, Api, Got, attach, got, leave_first, open, plays},
    turns::{CONVERT, Turn},
    upstream::response,
};

/// The events of a stream without comments, which are sent while there are no events.
fn events(text: &str) -> String {
    text.replace(": keep-alive\n\n", "")
}

#[tokio::test]
async fn a_replay_is_the_same_byte_for_byte_and_costs_nothing() {
    let gateway = TestGateway::start().await;
    gateway.upstream.play_for_each(plays(open()));
    for (api, stream) in ALL.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let customer = gateway.customer().await;
        let (calls, body) = (gateway.upstream.calls(), api.body("Hi", stream));
        let ask = || got(gateway.keyed(&customer, api, "key-1", &body));
        let first = ask().await.ok();
        assert!(
            first.body.contains("three") && !first.is_replayed(),
            "{}",
            first.body
        );
        for _ in 0..3 {
            let again = ask().await.ok();
            assert_eq!(again.body, first.body, "{api:?} {stream}");
            assert!(again.is_replayed());
            assert_eq!(again.headers["content-type"], first.headers["content-type"]);
            assert_ne!(again.headers["x-request-id"], first.headers["x-request-id"]);
        }
        assert_eq!(gateway.upstream.calls(), calls + 1);
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged(1),
            "{api:?} {stream}"
        );
        // Another key is another call.
        let other = got(gateway.keyed(&customer, api, "key-2", &body))
            .await
            .ok();
        assert!(other.body != first.body && !other.is_replayed());
        assert_eq!(customer.ledger_view().await, LedgerView::charged(2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_come_while_the_first_runs_attach_to_it() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    for (api, stream) in ALL.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let (customer, gate) = (gateway.customer().await, Gate::default());
        gateway.upstream.play_for_each(plays(gate.clone()));
        let (calls, body) = (gateway.upstream.calls(), api.body("Hi", stream));
        let ask = || got(gateway.keyed(&customer, api, "key-1", &body));
        let asking = join_all((0..5).map(|_| ask()));
        let retries = &gateway.inside().retries;
        let before = retries.attached();
        let opening = async {
            let have_attached = || retries.attached() == before + 4;
            until("the others have attached", have_attached).await;
            gate.open();
        };
        let (all, ()) = tokio::join!(asking, opening);
        let first = events(&all[0].clone().ok().body);
        assert!(first.contains("three"), "{first}");
        for got in &all {
            assert_eq!(events(&got.body), first, "{api:?} {stream}: {got:?}");
            assert!(!got.is_replayed());
        }
        let again = ask().await.ok();
        assert!(again.is_replayed());
        assert_eq!(again.body, first);
        assert_eq!(gateway.upstream.calls(), calls + 1, "{api:?} {stream}");
        assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attached_stream_begins_with_the_first_event_and_goes_on_live() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    gateway.upstream.play_for_each(plays(gate.clone()));
    let body = Api::Chat.body("Hi", true);
    let open = || gateway.keyed(&customer, Api::Chat, "key-1", &body).send();
    let read_one = async |stream: &mut (dyn futures_util::Stream<Item = _> + Unpin + Send)| {
        let mut text = String::new();
        while !text.contains("one") {
            let bytes: reqwest::Result<bytes::Bytes> = stream.next().await.unwrap();
            text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
        }
        text
    };
    let mut first = open().await.unwrap().bytes_stream();
    let mut begun = read_one(&mut first).await;
    let mut second = open().await.unwrap().bytes_stream();
    let mut attached = read_one(&mut second).await;
    // It is still running: a third one attaches and leaves, which changes nothing.
    let mut third = open().await.unwrap().bytes_stream();
    read_one(&mut third).await;
    drop(third);
    gate.open();
    for (stream, text) in [(first, &mut begun), (second, &mut attached)] {
        let rest: Vec<_> = stream.map(|bytes| bytes.unwrap().to_vec()).collect().await;
        text.push_str(std::str::from_utf8(&rest.concat()).unwrap());
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    }
    assert_eq!(events(&attached), events(&begun));
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_client_left_is_answered_to_the_next_request() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    for (api, stream) in ALL.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let (customer, gate) = (gateway.customer().await, Gate::default());
        gateway.upstream.play_for_each(plays(gate.clone()));
        let (calls, body) = (gateway.upstream.calls(), api.body("Hi", stream));
        let ask = || gateway.keyed(&customer, api, "key-1", &body);
        leave_first(&gateway, ask()).await;
        let second = attach(&gateway, &gate, ask()).await;
        assert!(second.body.contains("three"));
        assert_eq!(gateway.upstream.calls(), calls + 1);
        assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
    }
}

/// Without a key, no step would begin after the client has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_with_tools_goes_on_for_the_next_request() {
    for stream in [false, true] {
        let gateway = TestGateway::start_with_long_timeouts().await;
        let (customer, gate) = (gateway.customer().await, Gate::default());
        let calls = Turn::calls(&[CONVERT]);
        gateway
            .upstream
            .converse([calls.clone().after(&gate), calls, Turn::says("Done.")]);
        let body = Api::Chat.body("Hi", stream);
        let ask = || gateway.keyed(&customer, Api::Chat, "key-1", &body);
        leave_first(&gateway, ask()).await;
        gate.open();
        let second = got(ask()).await.ok();
        assert!(second.body.contains("Done"), "{}", second.body);
        assert_eq!(gateway.upstream.calls(), 3);
        let charged = LedgerView::charged_steps(3);
        assert_eq!(customer.ledger_view().await, charged, "{stream}");
    }
}

#[tokio::test]
async fn after_a_failure_without_a_charge_it_runs_again() {
    let gateway = TestGateway::start().await;
    for (api, stream) in ALL.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let customer = gateway.customer().await;
        let body = api.body("Hi", stream);
        let ask = || got(gateway.keyed(&customer, api, "key-1", &body));
        let failure = response(500, "application/json", "{}");
        gateway.upstream.play(vec![Step::Send(failure)]);
        assert_ne!(ask().await.status, 200);
        gateway.upstream.play_for_each(plays(open()));
        let second = ask().await.ok();
        assert!(second.body.contains("three") && !second.is_replayed());
        assert!(ask().await.ok().is_replayed());
        let charged_once = LedgerView {
            requests: 2,
            ..LedgerView::charged(1)
        };
        assert_eq!(
            customer.ledger_view().await,
            charged_once,
            "{api:?} {stream}"
        );
    }
}

/// Those that wait for a call that fails do not fail with it: one of them runs, and the others get its response.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_wait_for_a_call_that_fails_run_themselves() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    let (failing, answers) = (gate.clone(), plays(open()));
    let first = std::sync::atomic::AtomicBool::new(true);
    gateway.upstream.play_for_each(move |request| {
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            let failure = response(400, "application/json", "{}");
            return vec![Step::Until(failing.clone()), Step::Send(failure)];
        }
        answers(request)
    });
    let body = Api::Chat.body("Hi", false);
    let asking = join_all((0..6).map(|_| got(gateway.keyed(&customer, Api::Chat, "key-1", &body))));
    let opening = async {
        let retries = &gateway.inside().retries;
        until("the others have attached", || retries.attached() == 5).await;
        gate.open();
    };
    let (all, ()) = tokio::join!(asking, opening);
    let failed = all.iter().filter(|got| got.status != 200).count();
    assert_eq!(failed, 1, "{all:?}");
    assert_eq!(gateway.upstream.calls(), 2);
    let view = customer.ledger_view().await;
    assert_eq!((view.charges, view.requests), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_first_requests_at_once_one_runs() {
    let gateway = TestGateway::start().await;
    gateway.upstream.play_for_each(plays(open()));
    let customer = gateway.customer().await;
    for round in 0..10 {
        let (key, body) = (format!("key-{round}"), Api::Chat.body("Hi", round % 2 == 0));
        let all = (0..20).map(|_| got(gateway.keyed(&customer, Api::Chat, &key, &body)));
        let all = join_all(all).await;
        let first = events(&all[0].clone().ok().body);
        assert!(all.iter().all(|got| events(&got.body) == first));
    }
    assert_eq!(gateway.upstream.calls(), 10);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_belongs_to_one_request() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    gateway.upstream.play_for_each(plays(gate.clone()));
    let body = Api::Chat.body("Hi", true);
    let ask = |api: Api, body: &Value| got(gateway.keyed(&customer, api, "key-1", body));
    let refused = async |when: &str| {
        let other = ask(Api::Chat, &Api::Chat.body("Hi!", true)).await;
        other.assert_refused(422, "idempotency_key_reused");
        let other = ask(Api::Responses, &body).await;
        other.assert_refused(422, "idempotency_key_reused");
        let other = ask(Api::Messages, &Api::Messages.body("Hi", true)).await;
        let error: Value = serde_json::from_str(&other.body).unwrap();
        assert_eq!(other.status, 422, "{when}: {error}");
        assert_eq!(error["error"]["type"], "invalid_request_error");
        assert_eq!(
            error["error"]["details"]["error_code"],
            "idempotency_key_reused"
        );
    };
    let running = async {
        until("the provider is called", || gateway.upstream.calls() == 1).await;
        refused("while it runs").await;
        gate.open();
    };
    let (first, ()) = tokio::join!(ask(Api::Chat, &body), running);
    first.ok();
    refused("afterwards").await;
    // Another account may use it.
    let other = gateway.customer().await;
    let other_body = Api::Chat.body("Hi!", true);
    let got = got(gateway.keyed(&other, Api::Chat, "key-1", &other_body))
        .await
        .ok();
    assert!(!got.is_replayed());
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
    assert_eq!(other.ledger_view().await, LedgerView::charged(1));
}

#[tokio::test]
async fn a_malformed_key_is_refused() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let too_long = "k".repeat(256);
    for key in ["", "two words", &too_long] {
        for api in ALL {
            let refused = got(gateway.keyed(&customer, api, key, &api.body("Hi", false))).await;
            assert_eq!(refused.status, 400, "{key}: {}", refused.body);
            assert!(refused.body.contains("Idempotency-Key"), "{}", refused.body);
        }
    }
    let longest = "k".repeat(255);
    got(gateway.keyed(&customer, Api::Chat, &longest, &hello(MODEL)))
        .await
        .ok();
    assert_eq!(gateway.upstream.calls(), 1);
}

#[tokio::test]
async fn an_answer_that_was_not_kept_is_not_charged_again() {
    let gateway = TestGateway::start_set(&[("RETRIES__MAX_BYTES", "300")]).await;
    gateway.upstream.play_for_each(plays(open()));
    for (api, stream) in ALL.into_iter().flat_map(|api| [(api, false), (api, true)]) {
        let customer = gateway.customer().await;
        let mut body = api.body("Hi", stream);
        body["metadata"] = json!({ "user_id": "x".repeat(300) });
        let ask = || got(gateway.keyed(&customer, api, "key-1", &body));
        let first = ask().await.ok();
        let again = ask().await;
        if first.body.len() <= 300 {
            assert_eq!(again.ok().body, first.body);
        } else {
            assert_eq!(again.status, 409, "{}", again.body);
            assert!(again.body.contains("answer_not_kept"), "{}", again.body);
            assert_eq!(again.headers["x-should-retry"], "false");
        }
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged(1),
            "{api:?} {stream}"
        );
    }
}

#[tokio::test]
async fn the_oldest_answers_make_room_and_are_not_charged_again() {
    let gateway = TestGateway::start_set(&[("RETRIES__MAX_TOTAL_BYTES", "2000")]).await;
    gateway.upstream.play_for_each(plays(open()));
    let customer = gateway.customer().await;
    let ask = async |key: usize| {
        let body = Api::Chat.body("Hi", false);
        got(gateway.keyed(&customer, Api::Chat, &format!("key-{key}"), &body)).await
    };
    let length = ask(0).await.ok().body.len();
    for key in 1..10 {
        ask(key).await.ok();
    }
    let ledger = &gateway.inside().ledger;
    ledger.make_room_for_retries(2_000).await.unwrap();
    let kept = 2_000 / length;
    for key in 0..10 {
        let again = ask(key).await;
        if key < 10 - kept {
            again.assert_refused(409, "answer_not_kept");
        } else {
            assert!(again.ok().is_replayed(), "{key}");
        }
    }
    assert_eq!(customer.ledger_view().await, LedgerView::charged(10));
}

#[tokio::test]
async fn replays_survive_a_restart() {
    let gateway = TestGateway::start().await;
    gateway.upstream.play_for_each(plays(open()));
    let body = Api::Responses.body("Hi", true);
    let ask = |gateway: &TestGateway, key: &str| {
        let request = gateway.asks(Api::Responses, key, &body);
        got(request.header("idempotency-key", "key-1"))
    };
    let key = gateway.key.clone();
    let first = ask(&gateway, &key).await.ok();
    let data = gateway.stop().await;
    let gateway = TestGateway::start_in(data, "").await;
    let again = ask(&gateway, &key).await.ok();
    assert!(again.is_replayed());
    assert_eq!(again.body, first.body);
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn a_replay_needs_a_valid_key_and_an_open_account() {
    let gateway = TestGateway::start().await;
    gateway.upstream.play_for_each(plays(open()));
    let customer = gateway.customer().await;
    let (second_id, second) = gateway.new_key(&customer.id).await;
    let body = Api::Chat.body("Hi", false);
    let ask = |key: &str| {
        let request = gateway.asks(Api::Chat, key, &body);
        got(request.header("idempotency-key", "key-1"))
    };
    let first = ask(&customer.key).await.ok();
    // The key's scope is the account.
    assert_eq!(ask(&second).await.ok().body, first.body);
    let disable = format!("/operator/keys/{second_id}/disable");
    gateway
        .operate(Method::POST, &disable, None)
        .await
        .assert_ok();
    assert_eq!(ask(&second).await.status, 401);
    let account = format!("/operator/accounts/{}", customer.id);
    let close = Some(json!({ "closed": true }));
    gateway
        .operate(Method::PATCH, &account, close)
        .await
        .assert_ok();
    assert_eq!(ask(&customer.key).await.status, 402);
}

#[tokio::test]
async fn without_retries_keys_are_ignored() {
    let gateway = TestGateway::start_set(&[("RETRIES__ENABLED", "false")]).await;
    gateway.upstream.play_for_each(plays(open()));
    let customer = gateway.customer().await;
    let body = Api::Chat.body("Hi", true);
    for _ in 0..2 {
        let got: Got = got(gateway.keyed(&customer, Api::Chat, "key 1", &body))
            .await
            .ok();
        assert!(!got.is_replayed());
    }
    assert_eq!(customer.ledger_view().await, LedgerView::charged(2));
}
