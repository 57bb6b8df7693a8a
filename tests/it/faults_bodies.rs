//! Large and half-sent bodies: their memory is bounded, and requests of others are served meanwhile.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{
    Answer, Gate, Plan, RawConnection, Step, TestGateway,
    bodies::long,
    gateway::{OPERATOR_TOKEN, answer, until},
    upstream::{chunk, completion, events, response, stream_head},
};

const MODEL: &str = "svc-native-fast";
const MEGABYTE: usize = 1 << 20;
/// Bodies up to 2 MiB, memory for four of them, and a share of one.
const SETTINGS: [(&str, &str); 3] = [
    ("SERVER__MAX_BODY_BYTES", "2097152"),
    ("SERVER__BODY_MEMORY_BYTES", "25165824"),
    ("SERVER__BODY_MEMORY_SHARE_PERCENT", "25"),
];
const LIMIT: usize = 24 * MEGABYTE;
/// What one and a half megabytes of a body reserve: six steps of 256 KiB, three times each.
const HALF: usize = FIRST + 6 * 3 * (256 << 10);
/// What a body reserves from its first piece on, if it has to be waited for.
const FIRST: usize = 64 << 10;

fn head(key: &str, length: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n{length}\r\n\r\n"
    )
}

/// Announces a body and sends a part of it.
async fn half_sent(
    gateway: &TestGateway,
    key: &str,
    announced: usize,
    sent: usize,
) -> RawConnection {
    let mut connection = RawConnection::open(gateway.public).await;
    let length = format!("content-length: {announced}");
    connection.send(head(key, &length)).await;
    connection.send("x".repeat(sent)).await;
    connection
}

fn reserved(gateway: &TestGateway) -> usize {
    gateway.inside().body_memory.reserved()
}

fn assert_exhausted(answer: &Answer) {
    let code = Some("body_memory_exhausted");
    answer.assert_error(503, "service_unavailable", code, None);
    assert_eq!(answer.headers["retry-after"], "1");
}

/// An account without credit.
async fn poor_key(gateway: &TestGateway) -> String {
    let account = json!({ "email": "poor@example.com", "track": "business", "tier": "flex" });
    let account = gateway
        .operate(Method::POST, "/operator/accounts", Some(account))
        .await;
    let id = account.assert_ok()["id"].as_str().unwrap().to_owned();
    gateway.new_key(&id).await.1
}

#[tokio::test]
async fn a_large_body_is_not_read_for_an_account_that_could_start_no_call() {
    let gateway = TestGateway::start_set(&SETTINGS).await;
    let (poor, (closed_id, closed)) = (poor_key(&gateway).await, gateway.account(Plan::FLEX).await);
    let path = format!("/operator/accounts/{closed_id}");
    let close = json!({ "closed": true });
    gateway
        .operate(Method::PATCH, &path, Some(close))
        .await
        .assert_ok();
    for (key, kind) in [(&poor, "insufficient_credits"), (&closed, "no_account")] {
        // The response comes before the body.
        let mut announced = half_sent(&gateway, key, 2 * MEGABYTE, 100_000).await;
        let answer = announced.answer().await;
        answer.assert_error(402, kind, Some("payment_required"), None);
        // Without an announced length it is refused once it is large.
        let mut chunked = RawConnection::open(gateway.public).await;
        chunked.send(head(key, "transfer-encoding: chunked")).await;
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        for _ in 0..16 {
            chunked.send(&chunk).await;
        }
        until("a megabyte is received", || {
            reserved(&gateway) >= 2 * MEGABYTE
        })
        .await;
        chunked.send(&chunk).await;
        let answer = chunked.answer().await;
        answer.assert_error(402, kind, Some("payment_required"), None);
        until("its memory is released", || reserved(&gateway) == 0).await;
    }
    let smaller = half_sent(&gateway, &poor, MEGABYTE, 10).await;
    let mut stranger = half_sent(&gateway, "sk-svc-unknown", 2 * MEGABYTE, 100_000).await;
    assert_eq!(stranger.answer().await.status, 401);
    until("only the first counts", || reserved(&gateway) == FIRST).await;
    assert_eq!(gateway.upstream.calls(), 0);
    drop(smaller);
}

/// The responses to half-sent bodies, each read by a task.
struct Responses(Vec<JoinHandle<Answer>>);

impl Responses {
    fn of(connections: Vec<RawConnection>) -> Self {
        let responses = connections
            .into_iter()
            .map(|mut connection| tokio::spawn(async move { connection.answer().await }));
        Self(responses.collect())
    }

    /// Waits until so many have come and asserts that they are refusals for lack of memory.
    async fn assert_exhausted(&mut self, count: usize) {
        let finished = |responses: &[JoinHandle<Answer>]| {
            responses.iter().filter(|one| one.is_finished()).count()
        };
        until("they are refused", || finished(&self.0) >= count).await;
        assert_eq!(finished(&self.0), count);
        for response in self.0.extract_if(.., |one| one.is_finished()) {
            assert_exhausted(&response.await.unwrap());
        }
    }
}

impl Drop for Responses {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test]
async fn half_sent_bodies_of_one_account_take_its_share_and_others_are_served() {
    let gateway = TestGateway::start_set(&SETTINGS).await;
    let (_, other) = gateway.account(Plan::FLEX).await;
    let half = async || half_sent(&gateway, &gateway.key, 2 * MEGABYTE, 3 * MEGABYTE / 2).await;
    let first = half().await;
    until("the first has its memory", || reserved(&gateway) == HALF).await;
    let mut more = Vec::new();
    for _ in 0..19 {
        more.push(half().await);
    }
    Responses::of(more).assert_exhausted(19).await;
    until("their memory is released", || reserved(&gateway) == HALF).await;
    gateway
        .chat_as(&other, &long(MODEL, MEGABYTE))
        .await
        .assert_ok();
    // Small bodies of the same account need no memory.
    gateway.chat(&long(MODEL, 10_000)).await.assert_ok();
    let metrics = format!("http://{}/metrics", gateway.operator);
    let metrics = gateway.client.get(metrics).bearer_auth(OPERATOR_TOKEN);
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    for line in [
        format!("tollgate_body_memory_bytes {HALF}"),
        format!("tollgate_body_memory_limit_bytes {LIMIT}"),
        "tollgate_refusals_total{code=\"body_memory_exhausted\"} 19".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
    drop(first);
    until("nothing is reserved", || reserved(&gateway) == 0).await;
}

/// Several accounts together take all memory: an account with less is served at their expense.
#[tokio::test]
async fn an_account_with_little_memory_is_served_when_there_is_none_left() {
    let gateway = TestGateway::start_set(&SETTINGS).await;
    let mut connections = Vec::new();
    for _ in 0..5 {
        let (_, key) = gateway.account(Plan::FLEX).await;
        connections.push(half_sent(&gateway, &key, 2 * MEGABYTE, 3 * MEGABYTE / 2).await);
    }
    until("most is reserved", || reserved(&gateway) == 5 * HALF).await;
    gateway.chat(&long(MODEL, MEGABYTE)).await.assert_ok();
    let mut responses = Responses::of(connections);
    responses.assert_exhausted(1).await;
    gateway.idle().await;
    until("the others have theirs", || reserved(&gateway) == 4 * HALF).await;
}

#[tokio::test]
async fn a_body_counts_for_as_long_as_its_call_runs() {
    let gateway = TestGateway::start_set(&SETTINGS).await;
    let gate = Gate::default();
    gateway.upstream.play(vec![
        Step::Until(gate.clone()),
        Step::Send(response(
            200,
            "application/json",
            &completion("late").to_string(),
        )),
    ]);
    let body = long(MODEL, MEGABYTE);
    let length = body.to_string().len();
    let counted = 3 * (length - (64 << 10));
    let waiting = gateway.chat(&body);
    let meanwhile = async {
        until("it is forwarded", || gateway.upstream.calls() == 1).await;
        assert_eq!(reserved(&gateway), counted);
        gate.open();
    };
    let (waited, ()) = tokio::join!(waiting, meanwhile);
    waited.assert_ok();
    gateway.idle().await;
    assert_eq!(reserved(&gateway), 0);
    // Of a stream it counts until its end, long after the response has begun.
    let gate = Gate::default();
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(format!("data: {}\n\n", chunk(json!({ "content": "Hi" }), None)).into()),
        Step::Until(gate.clone()),
        Step::Send(events(&[chunk(json!({}), Some("stop"))]).into()),
        Step::Close,
    ]);
    let stream = gateway.open_stream(&body).await;
    assert_eq!(stream.status(), 200);
    let counted = counted + 3 * r#","stream":true"#.len();
    assert_eq!(reserved(&gateway), counted);
    gate.open();
    assert!(stream.text().await.unwrap().contains("Hi"));
    gateway.idle().await;
    assert_eq!(reserved(&gateway), 0);
    // A refused one is released at once.
    let mut wrong = long(MODEL, MEGABYTE);
    wrong["max_tokens"] = json!("many");
    gateway.refuses(&wrong, "max_tokens").await;
    until("nothing is reserved", || reserved(&gateway) == 0).await;
}

#[tokio::test]
async fn bodies_over_http_2_count_too() {
    let gateway = TestGateway::start_set(&SETTINGS).await;
    let client = reqwest::Client::builder()
        .no_proxy()
        .http2_prior_knowledge();
    let client = client.build().unwrap();
    let url = gateway.url("/v1/chat/completions");
    let send = |key: &str, bytes: usize| {
        let body = long(MODEL, bytes).to_string();
        client.post(&url).bearer_auth(key).body(body)
    };
    let held = half_sent(&gateway, &gateway.key, 2 * MEGABYTE, 3 * MEGABYTE / 2).await;
    until("it has its memory", || reserved(&gateway) == HALF).await;
    assert_exhausted(&answer(send(&gateway.key, MEGABYTE)).await);
    let poor = poor_key(&gateway).await;
    let refused = send(&poor, 3 * MEGABYTE / 2).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::PAYMENT_REQUIRED);
    drop(held);
    until("nothing is reserved", || reserved(&gateway) == 0).await;
    answer(send(&gateway.key, MEGABYTE)).await.assert_ok();
}

/// Requests with this many tiny values in a field.
fn hostile(values: usize) -> [(&'static str, String); 5] {
    let body = |messages: &str, more: &str| {
        format!(r#"{{"model":"{MODEL}","messages":[{messages}]{more}}}"#)
    };
    let hello = r#"{"role":"user","content":"Hi"}"#;
    let parts = format!(
        r#"{{"role":"user","content":[{}{{}}]}}"#,
        "{},".repeat(values)
    );
    let biases = (0..values).map(|token| format!(r#""{token}":1,"#));
    let biases: String = biases.collect();
    let zeros = "0,".repeat(values);
    [
        (
            "stop",
            body(
                hello,
                &format!(r#","stop":[{}"x"]"#, r#""x","#.repeat(values)),
            ),
        ),
        (
            "logit_bias",
            body(hello, &format!(r#","logit_bias":{{{biases}"x":1}}"#)),
        ),
        ("messages", body(&parts, "")),
        (
            "tools",
            body(
                hello,
                &format!(
                    r#","tools":[{{"type":"function","function":{{"name":"f","parameters":{{"enum":[{zeros}0]}}}}}}]"#
                ),
            ),
        ),
        (
            "whatever",
            body(hello, &format!(r#","whatever":[{zeros}0]"#)),
        ),
    ]
}

#[tokio::test]
async fn a_body_of_too_many_values_is_400_naming_the_field() {
    let gateway = TestGateway::start().await;
    for (field, body) in hostile(100_000) {
        gateway.refuses_text(body.clone(), Some(field)).await;
        let url = gateway.url("/v1/responses");
        let request = gateway.client.post(url).bearer_auth(&gateway.key);
        let refused = answer(request.body(body)).await;
        refused.assert_error(400, "invalid_request_error", None, Some(field));
    }
    let biases = |count: u32| {
        let biases = (0..count).map(|token| (token.to_string(), json!(1)));
        json!({ "model": MODEL, "messages": [{ "role": "user", "content": "Hi" }],
            "logit_bias": biases.collect::<serde_json::Map<_, _>>() })
    };
    gateway.refuses(&biases(1_025), "logit_bias").await;
    gateway.chat(&biases(1_024)).await.assert_ok();
    // An error does not repeat a large value.
    let mut long_model = long(MODEL, 1);
    long_model["model"] = json!("m".repeat(MEGABYTE));
    let refused = gateway.chat(&long_model).await;
    assert_eq!(refused.status, 404);
    assert!(refused.body.to_string().len() < 4_000);
}

/// Health checks on connections of every thread are answered while a large body is parsed and counted.
#[tokio::test]
async fn a_large_body_does_not_delay_other_connections() {
    let gateway = TestGateway::start().await;
    let hello = r#"{"role":"user","content":"Hi"}"#;
    let messages = format!("{hello},").repeat(200_000);
    let hostile = format!(r#"{{"model":"{MODEL}","messages":[{messages}{hello}]}}"#);
    for (what, body) in [
        ("a hostile body", hostile),
        ("a long text", long(MODEL, 2 * MEGABYTE).to_string()),
    ] {
        let mut large = RawConnection::open(gateway.public).await;
        let (last, rest) = body.as_bytes().split_last().unwrap();
        let length = format!("content-length: {}", body.len());
        large.send(head(&gateway.key, &length)).await;
        large.send(rest).await;
        // Connections go to the thread that has the fewest, so one of these shares the thread of the large body.
        let mut others = Vec::new();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..2 * threads {
            others.push(RawConnection::open(gateway.public).await);
        }
        large.send([*last]).await;
        let mut rounds = 0;
        let checking = async {
            loop {
                for other in &mut others {
                    let live = "GET /health/live HTTP/1.1\r\nhost: gateway\r\n\r\n";
                    other.send(live).await;
                    other.answer().await.assert_ok();
                }
                rounds += 1;
            }
        };
        tokio::select! {
            _ = large.answer() => {}
            () = checking => {}
        }
        assert!(rounds >= 3, "{what}: {rounds} rounds");
    }
}
