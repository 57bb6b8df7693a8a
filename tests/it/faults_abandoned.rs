//! Many clients that leave: every admitted call is charged, and an account with too many abandoned calls starts no
//! new one.

use futures_util::future::join_all;
use reqwest::Client;
use serde_json::json;

use crate::support::{
    Answer, Customer, Gate, LedgerView, RawConnection, Step, TestGateway,
    bodies::hello_with,
    gateway::{OPERATOR_TOKEN, answer, hello, until},
    ledger_view::MODEL,
    raw::chat_request,
    upstream::{Received, chunk, completion, events, response, stream_head, usage_chunk},
};

/// Provider timeouts longer than the tests.
const LONG_TIMEOUTS: [(&str, &str); 2] = [
    ("PROVIDERS__FAKE__TIMEOUTS__FIRST_BYTE_SECONDS", "120"),
    ("PROVIDERS__FAKE__TIMEOUTS__IDLE_SECONDS", "120"),
];

fn is_stream(request: &Received) -> bool {
    request.body["stream"] == true
}

fn whole() -> Step {
    Step::Send(response(
        200,
        "application/json",
        &completion("Hi").to_string(),
    ))
}

fn word() -> Vec<u8> {
    let word = chunk(json!({ "content": "word" }), None);
    format!("data: {word}\n\n").into_bytes()
}

fn end() -> [Step; 2] {
    let end = events(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]);
    [Step::Send(end.into_bytes()), Step::Close]
}

async fn until_abandoned(gateway: &TestGateway, calls: usize) {
    let abandoned = &gateway.inside().abandoned;
    let what = format!("{calls} calls are abandoned");
    until(&what, || abandoned.total() == calls).await;
}

#[track_caller]
fn assert_too_many(refused: &Answer) {
    refused.assert_error(429, "rate_limit_exceeded", Some("abandoned_exceeded"), None);
    assert_eq!(refused.headers["retry-after"], "5");
    let limits = |name: &reqwest::header::HeaderName| name.as_str().starts_with("x-ratelimit");
    assert!(!refused.headers.keys().any(limits), "{:?}", refused.headers);
}

async fn assert_metric(gateway: &TestGateway, line: &str) {
    let url = format!("http://{}/metrics", gateway.operator);
    let metrics = gateway.client.get(url).bearer_auth(OPERATOR_TOKEN);
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    assert!(metrics.lines().any(|found| found == line), "{metrics}");
}

/// The provider is silent until all clients have left, which the gateway notices all the same; then it continues for
/// a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_hundred_abandoned_calls_are_charged_and_affect_no_other_account() {
    const STREAMS: u32 = 600;
    const ON_A_CONNECTION: u32 = 100;
    let gateway = TestGateway::start_set(&LONG_TIMEOUTS).await;
    let (all_left, over) = (Gate::default(), Gate::default());
    let gates = (all_left.clone(), over.clone());
    gateway.upstream.play_for_each(move |request| {
        if !is_stream(request) {
            return vec![whole()];
        }
        let held = [
            Step::Send(stream_head()),
            Step::Send(word()),
            Step::Until(gates.0.clone()),
            Step::Send(word()),
            Step::Until(gates.1.clone()),
        ];
        held.into_iter().chain(end()).collect()
    });
    let customers = [gateway.customer().await, gateway.customer().await];
    let stream = hello_with(MODEL, json!({ "stream": true }));
    let opened = customers.iter().flat_map(|customer| {
        (0..STREAMS / ON_A_CONNECTION).map(|_| {
            let client = Client::builder().no_proxy().http2_prior_knowledge();
            let client = client.build().unwrap();
            let request = client
                .post(gateway.url("/v1/chat/completions"))
                .bearer_auth(&customer.key)
                .json(&stream);
            let opened = (0..ON_A_CONNECTION).map(|_| request.try_clone().unwrap().send());
            tokio::spawn(join_all(opened.collect::<Vec<_>>()))
        })
    });
    let opened = join_all(opened.collect::<Vec<_>>()).await;
    for response in opened.iter().flat_map(|opened| opened.as_ref().unwrap()) {
        assert_eq!(response.as_ref().unwrap().status(), 200);
    }
    let bystander = gateway.customer().await;
    let ask = |customer: &Customer<'_>| answer(customer.request(&hello(MODEL)));
    ask(&customers[0]).await.assert_ok(); // streams that are still being read do not count
    drop(opened);
    until_abandoned(&gateway, 2 * STREAMS as usize).await;
    let (sent, more) = (gateway.upstream.bytes_sent(), 2 * STREAMS as usize);
    all_left.open();
    let sent = sent + more * word().len();
    until("all go on", || gateway.upstream.bytes_sent() >= sent).await;
    for customer in &customers {
        assert_too_many(&ask(customer).await);
    }
    ask(&bystander).await.assert_ok();
    over.open();
    assert_eq!(
        customers[0].ledger_view().await,
        LedgerView::charged(STREAMS + 1)
    );
    assert_eq!(
        customers[1].ledger_view().await,
        LedgerView::charged(STREAMS)
    );
    assert_eq!(bystander.ledger_view().await, LedgerView::charged(1));
    assert_eq!(gateway.inside().abandoned.total(), 0);
    ask(&customers[1]).await.assert_ok();
}

/// Streams and plain responses, before the first byte and after it.
#[tokio::test]
async fn an_account_at_its_limit_starts_again_when_a_call_has_ended() {
    let settings = [
        LONG_TIMEOUTS[0],
        LONG_TIMEOUTS[1],
        ("LIMITS__MAX_ABANDONED", "2"),
    ];
    let gateway = TestGateway::start_set(&settings).await;
    let gates: [Gate; 3] = Default::default();
    let scripts = gates.clone();
    gateway.upstream.play_for_each(move |request| {
        let wait_for = |gate: &Gate| Step::Until(gate.clone());
        let head = || Step::Send(stream_head());
        match request.question() {
            "whole" => vec![wait_for(&scripts[0]), whole()],
            "begun" => [head(), Step::Send(word()), wait_for(&scripts[1])]
                .into_iter()
                .chain(end())
                .collect(),
            "silent" => [wait_for(&scripts[2]), head(), Step::Send(word())]
                .into_iter()
                .chain(end())
                .collect(),
            _ => vec![whole()],
        }
    });
    let (customer, other) = (gateway.customer().await, gateway.customer().await);
    let abandon = async |question: &str, stream: bool| {
        let mut body = hello_with(MODEL, json!({ "stream": stream }));
        body["messages"][0]["content"] = question.into();
        let calls = gateway.upstream.calls();
        let mut connection = RawConnection::open(gateway.public).await;
        connection
            .send(chat_request(&customer.key, "", &body))
            .await;
        until("the provider gets the request", || {
            gateway.upstream.calls() > calls
        })
        .await;
        if question == "begun" {
            connection.until("word", 1).await;
        }
        connection.hang_up().await;
    };
    let ask = |customer: &Customer<'_>| answer(customer.request(&hello(MODEL)));

    abandon("whole", false).await;
    until_abandoned(&gateway, 1).await;
    ask(&customer).await.assert_ok();
    abandon("begun", true).await;
    until_abandoned(&gateway, 2).await;
    let calls = gateway.upstream.calls();
    assert_too_many(&ask(&customer).await);
    let stream = hello_with(MODEL, json!({ "stream": true }));
    assert_too_many(&answer(customer.request(&stream)).await);
    assert_eq!(
        gateway.upstream.calls(),
        calls,
        "no provider gets a request"
    );
    ask(&other).await.assert_ok();
    assert_metric(&gateway, "tollgate_abandoned_calls 2").await;

    gates[0].open();
    until_abandoned(&gateway, 1).await;
    ask(&customer).await.assert_ok();
    abandon("silent", true).await;
    until_abandoned(&gateway, 2).await;
    assert_too_many(&ask(&customer).await);
    gates[1].open();
    gates[2].open();
    until_abandoned(&gateway, 0).await;
    ask(&customer).await.assert_ok();
    let left =
        r#"tollgate_calls_total{model="svc-standard",upstream="fake",outcome="client_left"} 3"#;
    assert_metric(&gateway, left).await;
    assert_eq!(customer.ledger_view().await, LedgerView::charged(6));
    assert_eq!(other.ledger_view().await, LedgerView::charged(1));
}
