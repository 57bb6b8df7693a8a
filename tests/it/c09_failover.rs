//! Failover: with several upstreams for a model, a call survives the failure of one.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, Step, TestGateway,
    bodies::hello_with,
    gateway::{PROVIDER_KEY, hello},
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

const MODEL: &str = "svc-standard";

/// A gateway with two upstreams: the second is tried when the first fails.
struct Two {
    gateway: TestGateway,
    second: FakeUpstream,
}

impl Two {
    async fn start() -> Self {
        Self::start_with("priority = 1", "").await
    }

    /// `place` configures the second deployment's position; `more` is additional configuration.
    async fn start_with(place: &str, more: &str) -> Self {
        let second = FakeUpstream::start().await;
        let config = format!(
            "{more}\n[providers.second]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n\
             timeouts = {{ connect_seconds = 2, first_byte_seconds = 2, idle_seconds = 2 }}\n\
             [[deployments]]\nmodel = \"*\"\nprovider = \"second\"\n{place}\n",
            second.address
        );
        let gateway = TestGateway::start_with(&config).await;
        Self { gateway, second }
    }

    fn first(&self) -> &FakeUpstream {
        &self.gateway.upstream
    }

    fn calls(&self) -> (usize, usize) {
        (self.first().calls(), self.second.calls())
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.gateway.operate(Method::GET, path, None).await;
        answer.assert_ok().clone()
    }

    async fn spent(&self) -> String {
        self.gateway.idle().await;
        let path = format!("/operator/accounts/{}", self.gateway.account_id);
        let account = self.get(&path).await;
        assert_eq!(account["held"], "0.000000");
        account["balance"].as_str().unwrap().to_owned()
    }

    /// Sends a chat with a request ID and reads the whole response.
    async fn ask(&self, id: &str, body: &Value) -> (u16, String) {
        let request = self.gateway.request(Method::POST, "/v1/chat/completions");
        let request = request.header("x-request-id", id).json(body);
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    }

    /// The routing state of this provider's deployment.
    async fn routing(&self, provider: &str) -> Value {
        let routing = self.get("/operator/routing").await;
        let mut deployments = routing["deployments"].as_array().unwrap().iter();
        let found = deployments.find(|deployment| deployment["provider"] == provider);
        found.unwrap().clone()
    }
}

/// Every way to fail before anything was relayed.
fn failures() -> Vec<(&'static str, Vec<Step>)> {
    let answer = |status, kind: &str, body: &str| vec![Step::Send(response(status, kind, body))];
    let sse = |text: &str| {
        let bytes = [stream_head(), text.as_bytes().to_vec()].concat();
        vec![Step::Send(bytes), Step::Close]
    };
    vec![
        ("429", answer(429, "application/json", "{}")),
        ("401 of our key", answer(401, "application/json", "{}")),
        (
            "400 that is about our key",
            answer(
                400,
                "application/json",
                r#"[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT",
                    "details":[{"reason":"API_KEY_INVALID"}]}}]"#,
            ),
        ),
        ("404 of its model", answer(404, "application/json", "{}")),
        ("500", answer(500, "text/plain", "oh")),
        ("503", answer(503, "text/html", "<html>")),
        ("529", answer(529, "application/json", "{}")),
        ("closed", vec![Step::Close]),
        ("reset", vec![Step::Reset]),
        ("HTML", answer(200, "text/html", "<html>hi</html>")),
        (
            "no JSON",
            answer(200, "application/json", "{\"choices\": ["),
        ),
        ("an empty stream", sse("")),
        (
            "a stream that fails at once",
            sse("data: {\"error\":{\"message\":\"no\"}}\n\n"),
        ),
        ("a stream of nonsense", sse("data: {{{\n\n")),
        (
            "silence",
            vec![Step::Pause(Duration::from_secs(4)), Step::Close],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_before_the_first_byte_fails_over_and_is_charged_once() {
    let stop = chunk(json!({ "content": "Hi" }), Some("stop"));
    let streamed = events(&[stop, usage_chunk(11, 3)]);
    for stream in [false, true] {
        let cases = failures().into_iter().map(|(what, steps)| {
            let streamed = streamed.clone();
            async move {
                let two = Two::start().await;
                two.first().play(steps);
                if stream {
                    two.second.answer_stream(&streamed);
                }
                let body = hello_with(MODEL, json!({ "stream": stream }));
                let (status, text) = two.ask("failover", &body).await;
                assert_eq!(status, 200, "{what}: {text}");
                assert_eq!(text.contains("[DONE]"), stream, "{what}: {text}");
                assert_eq!(two.calls(), (1, 1), "{what}");
                assert_eq!(
                    two.spent().await,
                    "999.999951",
                    "{what}: 11 in, 3 out, once"
                );
                let details = two.get("/operator/requests/failover").await;
                assert_eq!(details["upstream"], "second", "{what}");
                assert_eq!(details["outcome"], "answered", "{what}");
                let failed = details["failed_attempts"].as_array().unwrap();
                assert_eq!(failed.len(), 1, "{what}: {details}");
                assert_eq!(failed[0]["upstream"], "fake", "{what}");
                assert_ne!(failed[0]["failure"], "", "{what}");
            }
        });
        // A few at a time, because each case starts its own gateway.
        let few = futures_util::stream::iter(cases).buffer_unordered(4);
        few.collect::<()>().await;
    }
}

#[tokio::test]
async fn a_callers_error_is_not_retried_elsewhere() {
    let two = Two::start().await;
    for status in [400, 413, 422] {
        two.first().answer(status, "application/json", "{}");
        let (answered, text) = two.ask("wrong", &hello(MODEL)).await;
        assert_eq!(answered, 502);
        assert!(text.contains(&format!("\"code\":\"{status}\"")), "{text}");
    }
    assert_eq!(two.calls(), (3, 0));
    let first = two.routing("fake").await;
    assert_eq!(first["failed"], 0, "and not its fault: {first}");
}

#[tokio::test]
async fn after_the_first_byte_there_is_no_failover() {
    let two = Two::start().await;
    let begun = events(&[chunk(json!({ "content": "Hal" }), None)]);
    let begun = begun.replace("data: [DONE]\n\n", "");
    let bytes = [stream_head(), begun.into_bytes()].concat();
    two.first().play(vec![Step::Send(bytes), Step::Reset]);
    two.gateway
        .stream(&hello(MODEL))
        .await
        .assert_interrupted(MODEL);
    assert_eq!(two.calls(), (1, 0));
    assert_eq!(two.spent().await, "1000.000000");
}

#[tokio::test]
async fn when_all_fail_there_is_one_error_after_the_maximum_of_attempts() {
    let two = Two::start().await;
    two.first().answer(500, "text/plain", "no");
    two.second.answer(529, "text/plain", "no");
    let (status, text) = two.ask("none", &hello(MODEL)).await;
    assert_eq!(status, 502);
    assert!(
        text.contains("\"code\":\"500\""),
        "of the last attempt: {text}"
    );
    assert_eq!(two.calls(), (2, 1), "three attempts, one after the other");
    let details = two.get("/operator/requests/none").await;
    let failed = details["failed_attempts"].as_array().unwrap();
    let tried: Vec<_> = failed
        .iter()
        .map(|one| one["upstream"].as_str().unwrap())
        .collect();
    assert_eq!(tried, ["fake", "second", "fake"]);
    assert_eq!(details["outcome"], "provider_failed");
    assert_eq!(two.spent().await, "1000.000000");
    let once = Two::start_with("priority = 1", "[routing]\nattempts = 1").await;
    once.first().answer(500, "text/plain", "no");
    assert_eq!(once.ask("once", &hello(MODEL)).await.0, 502);
    assert_eq!(once.calls(), (1, 0), "a setting");
}

#[tokio::test]
async fn an_upstream_that_fails_too_often_is_skipped_and_tried_again_later() {
    let two = Two::start().await;
    two.first().answer(500, "text/plain", "no");
    for _ in 0..5 {
        two.gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    assert_eq!(two.calls(), (5, 5));
    let first = two.routing("fake").await;
    assert_eq!(
        (&first["circuit"], &first["failed"]),
        (&json!("open"), &json!(5))
    );
    assert_eq!(first["failures_in_a_row"], 5);
    assert!(
        (1..=1_000).contains(&first["rests_for_ms"].as_u64().unwrap()),
        "{first}"
    );
    assert!(
        first["last_failure"]["reason"]
            .as_str()
            .unwrap()
            .contains("500"),
        "{first}"
    );
    two.gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(two.calls(), (5, 6), "no call waits for it");
    two.first().answer_json(200, &completion("back"));
    // The circuit stays open for a second, then one call tries the upstream, and then all do.
    let mut calls = two.first().calls();
    for _ in 0..500 {
        two.gateway.chat(&hello(MODEL)).await.assert_ok();
        calls = two.first().calls();
        if calls > 5 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(calls, 6);
    assert_eq!(two.routing("fake").await["circuit"], "closed");
    let second = two.second.calls();
    two.gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(two.calls(), (7, second), "it is first again");
}

#[tokio::test]
async fn an_upstreams_retry_after_is_respected() {
    let two = Two::start().await;
    let busy = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-length: 2\r\n\r\n{}";
    two.first().play(vec![Step::Send(busy.as_bytes().to_vec())]);
    for _ in 0..3 {
        two.gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    assert_eq!(two.calls(), (1, 3));
    let rests = two.routing("fake").await["rests_for_ms"].as_u64().unwrap();
    assert!((20_000..=30_000).contains(&rests), "{rests}");
}

/// If the circuits of all upstreams are open, one of them is tried all the same.
#[tokio::test]
async fn a_single_upstream_is_tried_however_often_it_fails() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer(500, "text/plain", "no");
    for calls in 1..=12 {
        let failed = gateway.chat(&hello(MODEL)).await;
        failed.assert_error(502, "upstream_error", Some("500"), None);
        assert_eq!(gateway.upstream.calls(), calls, "once for each request");
    }
}

#[tokio::test]
async fn weights_are_respected() {
    let two = Two::start_with("weight = 3", "").await;
    for _ in 0..200 {
        two.gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    let (first, second) = two.calls();
    assert_eq!(first + second, 200);
    // 50 and 150 on average; five standard deviations either way.
    assert!((20..=80).contains(&first), "{first} of 200");
}

#[tokio::test]
async fn the_faster_upstream_is_preferred_if_so_configured() {
    let two = Two::start_with("", "[routing]\nchoose_by = \"latency\"").await;
    let answer = response(200, "application/json", &completion("Hi").to_string());
    let slowly = vec![Step::Pause(Duration::from_millis(60)), Step::Send(answer)];
    two.first().play(slowly);
    for _ in 0..60 {
        two.gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    let (slow, quick) = two.calls();
    // By weight alone each would get half; the slow one serves only when it is drawn twice, which is a quarter.
    assert!(slow < quick, "{slow} to {quick}");
    let measured = two.routing("fake").await["first_byte_ms"].as_u64().unwrap();
    assert!(measured >= 55, "{measured}");
}

#[tokio::test]
async fn keys_of_a_provider_are_used_in_turn() {
    let upstream = FakeUpstream::start().await;
    let config = format!(
        "[providers.pool]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n\
         api_key_env = [\"TOLLGATE_OPERATOR_TOKEN\", \"PROVIDER_KEY\"]\n\
         [[deployments]]\nmodel = \"svc-pro\"\nprovider = \"pool\"\n",
        upstream.address
    );
    let gateway = TestGateway::start_with(&config).await;
    for _ in 0..4 {
        gateway.chat(&hello("svc-pro")).await.assert_ok();
    }
    let received = upstream.received();
    let keys: Vec<_> = received
        .iter()
        .map(|one| one.header("authorization"))
        .collect();
    assert_eq!((keys[0], keys[1]), (keys[2], keys[3]));
    assert_ne!(keys[0], keys[1]);

    // A key that was revoked costs nobody an answer: the other one is tried, once.
    let accept = |key: &str, refusal: (u16, Value)| {
        let accepted = format!("Bearer {key}");
        upstream.play_for_each(move |request| {
            let is_accepted = request.header("authorization") == Some(accepted.as_str());
            let (status, body) = match &refusal {
                _ if is_accepted => (200, completion("Hello")),
                (status, body) => (*status, body.clone()),
            };
            vec![Step::Send(response(
                status,
                "application/json",
                &body.to_string(),
            ))]
        });
    };
    let mut calls = 4;
    // Gemini has 400 for it.
    let invalid = json!({ "error": { "code": 400, "message": "API key expired.", "status": "INVALID_ARGUMENT",
        "details": [{ "reason": "API_KEY_INVALID", "domain": "googleapis.com" }] } });
    for refusal in [(401, json!({})), (400, invalid)] {
        accept(PROVIDER_KEY, refusal.clone());
        for _ in 0..4 {
            gateway.chat(&hello("svc-pro")).await.assert_ok();
        }
        calls += 6;
        assert_eq!(upstream.calls(), calls, "{refusal:?}");
        accept("none", refusal.clone());
        let refused = gateway.chat(&hello("svc-pro")).await;
        let status = refusal.0.to_string();
        refused.assert_error(502, "upstream_error", Some(&status), None);
        calls += 2;
        assert_eq!(upstream.calls(), calls, "{refusal:?}");
    }
    // Another 400 is about the request, and its reason is read all the same.
    let about_request = json!({ "error": { "message": "`stop` has too many entries" } });
    accept("none", (400, about_request));
    let refused = gateway.chat(&hello("svc-pro")).await;
    refused.assert_error(502, "upstream_error", Some("400"), None);
    let shown = refused.error()["message"].as_str().unwrap();
    assert!(shown.contains("too many entries"), "{shown}");
    assert_eq!(upstream.calls(), calls + 1);
}

#[tokio::test]
async fn a_deployment_has_timeouts_of_its_own() {
    let own = "timeouts = { first_byte_seconds = 1, total_seconds = 2 }\npriority = 1";
    let two = Two::start_with(own, "").await;
    two.first().answer(500, "text/plain", "no");
    two.second
        .play(vec![Step::Pause(Duration::from_secs(20)), Step::Close]);
    let started = std::time::Instant::now();
    assert_eq!(two.ask("slow", &hello(MODEL)).await.0, 502);
    // One second for the second upstream, and the second attempt with the first.
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    let word = events(&[chunk(json!({ "content": "la" }), None)]);
    let word = word.replace("data: [DONE]\n\n", "").into_bytes();
    let mut song = vec![Step::Send(stream_head())];
    for _ in 0..60 {
        song.extend([
            Step::Send(word.clone()),
            Step::Pause(Duration::from_millis(300)),
        ]);
    }
    two.second.play(song);
    let endless = two.gateway.stream(&hello(MODEL)).await;
    endless.assert_interrupted(MODEL);
    assert!(endless.content(0).len() < 60, "cut after two seconds");
    assert_eq!(two.spent().await, "1000.000000");
}

/// One of two upstreams is down: callers notice nothing.
#[tokio::test(flavor = "multi_thread")]
async fn with_one_of_two_dead_no_request_is_lost() {
    let two = Two::start_with("", "").await;
    two.first().play(vec![Step::Reset]);
    let body = hello(MODEL);
    let calls = (0..200).map(|_| two.gateway.chat(&body));
    for answer in futures_util::future::join_all(calls).await {
        answer.assert_ok();
    }
    assert_eq!(two.second.calls(), 200);
    assert_eq!(two.spent().await, "999.990200", "200 × 0.000049");
}

/// The total timeout is the provider's: a slow reader does not use it up.
#[tokio::test]
async fn a_slow_reader_does_not_use_up_the_providers_time() {
    let own = "timeouts = { total_seconds = 3 }";
    let two = Two::start_with(own, "").await;
    two.first().answer(500, "text/plain", "no");
    let large = chunk(json!({ "content": "x".repeat(200_000) }), None);
    let mut chunks = vec![large; 60];
    chunks.push(chunk(json!({}), Some("stop")));
    chunks.push(usage_chunk(11, 3));
    two.second.answer_chunks(&chunks);
    let response = two.gateway.open_stream(&hello(MODEL)).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    let text = response.text().await.unwrap();
    assert!(
        text.ends_with("data: [DONE]\n\n"),
        "{}",
        &text[text.len() - 300..]
    );
    assert_eq!(two.spent().await, "999.999951");
}
