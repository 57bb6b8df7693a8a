//! What operators can look up: request details, sums, counters, audits.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, Step, TestGateway,
    bodies::hello_with,
    gateway::{OPERATOR_TOKEN, hello},
    upstream::{chunk, completion, events, stream_head, usage_chunk},
};

const MODEL: &str = "svc-standard";

async fn get(gateway: &TestGateway, path: &str) -> Value {
    let answer = gateway.operate(Method::GET, path, None).await;
    answer.assert_ok().clone()
}

/// Sends a chat with this client-supplied request ID.
async fn chat_with_id(gateway: &TestGateway, id: &str, body: &Value) -> u16 {
    let request = gateway.request(Method::POST, "/v1/chat/completions");
    let request = request.header("x-request-id", id).json(body);
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    response.bytes().await.unwrap();
    status
}

fn milliseconds(object: &Value) -> i64 {
    let text = object.as_str().unwrap_or_else(|| panic!("{object}"));
    let format = time::format_description::well_known::Rfc3339;
    let time = time::OffsetDateTime::parse(text, &format).unwrap();
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap()
}

#[tokio::test]
async fn request_details_are_complete() {
    let gateway = TestGateway::start().await;
    let mut answer = completion("Hi");
    answer["usage"] = json!({
        "prompt_tokens": 1000, "completion_tokens": 60, "total_tokens": 1060,
        "prompt_tokens_details": { "cached_tokens": 400 },
        "completion_tokens_details": { "reasoning_tokens": 50 },
    });
    gateway.upstream.answer_json(200, &answer);
    let body = hello_with(MODEL, json!({ "max_tokens": 200 }));
    assert_eq!(chat_with_id(&gateway, "order 66/α", &body).await, 200);
    let details = get(&gateway, "/operator/requests/order%2066%2F%CE%B1").await;
    assert_eq!(details["object"], "request");
    assert_eq!(details["request_id"], "order 66/α");
    assert_eq!(details["account_id"], gateway.account_id.as_str());
    assert!(details["key_id"].as_str().unwrap().starts_with("key_"));
    assert_eq!(
        (&details["model"], &details["routed_model"]),
        (&json!(MODEL), &json!(MODEL))
    );
    assert_eq!(
        (&details["upstream"], &details["stream"]),
        (&json!("fake"), &json!(false))
    );
    assert_eq!(
        (&details["outcome"], &details["failure"]),
        (&json!("answered"), &Value::Null)
    );
    let reserved = details["admission"]["reserved_tokens"].as_u64().unwrap();
    // Most of these tokens are the definitions of the built-in tools.
    assert!((800..1_300).contains(&reserved), "{reserved}");
    let settlement = &details["settlement"];
    let usage = json!({
        "prompt_tokens": 1000, "cached_tokens": 400, "cache_write_tokens": 0, "completion_tokens": 60,
        "reasoning_tokens": 50, "total_tokens": 1060,
    });
    assert_eq!(settlement["usage"], usage);
    let prices = json!({
        "prompt": "0.000002", "completion": "0.000009", "input_cache_read": "0.0000002",
        "image": "0", "request": "0",
    });
    assert_eq!(settlement["prices"], prices);
    // 600 × 2,000 + 400 × 200 + 60 × 9,000 nano-dollars.
    assert_eq!(settlement["charge"], "0.001820");
    assert_eq!(settlement["balance_before"], "1000.000000");
    assert_eq!(settlement["balance_after"], "999.998180");
    // The hold is 200 output tokens, the maximum, and the estimated input; the worst case has the input's bound
    // instead.
    let dollars = |key: &str| {
        details["hold"][key]
            .as_str()
            .unwrap()
            .parse::<f64>()
            .unwrap()
    };
    let (hold, most) = (dollars("amount"), dollars("most"));
    assert!((0.0030..0.0042).contains(&hold), "{hold}");
    assert!((0.0040..0.0080).contains(&(most - hold)), "{most}");
    let steps = json!([{
        "kind": "provider", "upstream": "fake", "prompt_tokens": 1000, "cached_tokens": 400,
        "cache_write_tokens": 0, "cache_write_1h_tokens": 0, "completion_tokens": 60, "ms": details["duration_ms"],
    }]);
    assert_eq!(details["steps"], steps);
    let times = [
        milliseconds(&details["admission"]["at"]),
        milliseconds(&details["first_byte_at"]),
        milliseconds(&settlement["at"]),
    ];
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(details["duration_ms"], times[2] - times[0]);
    let number = details["id"].as_str().unwrap();
    let same = get(&gateway, &format!("/operator/requests/{number}")).await;
    assert_eq!(same, details, "by its number too");
}

#[tokio::test]
async fn a_failed_or_interrupted_request_has_details_without_a_charge() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer(529, "text/plain", "busy");
    assert_eq!(chat_with_id(&gateway, "failed", &hello(MODEL)).await, 502);
    let head = String::from_utf8(stream_head()).unwrap();
    let begun = events(&[chunk(json!({ "content": "Hal" }), None)]);
    let begun = begun.strip_suffix("data: [DONE]\n\n").unwrap_or(&begun);
    let cut = Step::Send(format!("{head}{begun}").into_bytes());
    gateway.upstream.play(vec![cut, Step::Reset]);
    let stream = hello_with(MODEL, json!({ "stream": true }));
    assert_eq!(chat_with_id(&gateway, "cut", &stream).await, 200);
    gateway
        .upstream
        .answer_chunks(&[chunk(json!({ "content": "Hi" }), Some("stop"))]);
    assert_eq!(chat_with_id(&gateway, "uncounted", &stream).await, 200);
    for (id, outcome, failure) in [
        ("failed", "provider_failed", Some("status 529")),
        ("cut", "interrupted", Some("ended early")),
        ("uncounted", "no_usage", None),
    ] {
        let details = get(&gateway, &format!("/operator/requests/{id}")).await;
        assert_eq!(details["outcome"], outcome, "{details}");
        match failure {
            Some(words) => assert!(
                details["failure"].as_str().unwrap().contains(words),
                "{details}"
            ),
            None => assert_eq!(details["failure"], Value::Null),
        }
        let settlement = &details["settlement"];
        assert_eq!(
            (&settlement["usage"], &settlement["charge"]),
            (&Value::Null, &json!("0.000000"))
        );
        assert_eq!(settlement["balance_after"], Value::Null);
    }
    let usage = format!("/operator/accounts/{}/usage", gateway.account_id);
    assert_eq!(
        get(&gateway, &usage).await["data"],
        json!([]),
        "nothing was charged"
    );
}

#[tokio::test]
async fn a_repeated_request_id_is_charged_each_time_and_all_calls_are_listed() {
    let gateway = TestGateway::start().await;
    for _ in 0..3 {
        assert_eq!(chat_with_id(&gateway, "again", &hello(MODEL)).await, 200);
    }
    let newest = get(&gateway, "/operator/requests/again").await;
    let others = newest["same_request_id"].as_array().unwrap();
    assert_eq!(others.len(), 2);
    for other in others {
        let path = format!("/operator/requests/{}", other.as_str().unwrap());
        let details = get(&gateway, &path).await;
        assert_eq!(
            (&details["id"], &details["request_id"]),
            (other, &json!("again"))
        );
    }
    let unknown = gateway
        .operate(Method::GET, "/operator/requests/never", None)
        .await;
    unknown.assert_error(404, "not_found", None, None);
    assert!(
        unknown.error()["message"]
            .as_str()
            .unwrap()
            .contains("never")
    );
}

#[tokio::test]
async fn calls_are_added_up_by_account_model_and_day() {
    let gateway = TestGateway::start().await;
    let (other, key) = gateway.account(crate::support::Plan::FLEX).await;
    let mut answer = completion("Hi");
    answer["usage"] = json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 });
    gateway.upstream.answer_json(200, &answer);
    gateway.chat(&hello(MODEL)).await.assert_ok();
    gateway.chat(&hello("svc-basic")).await.assert_ok();
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    gateway.upstream.answer(500, "text/plain", "no");
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 502);
    let sums = |requests: u32, charged: u32, cost: &str| {
        json!({
            "requests": requests, "charged_requests": charged, "prompt_tokens": 100 * charged,
            "cached_tokens": 0, "completion_tokens": 10 * charged, "reasoning_tokens": 0,
            "cache_write_tokens": 0, "cost": cost, "provider_cost": "0.000000", "margin": "0.000000",
            "below_cost_requests": 0,
        })
    };
    let named = |name: &str, value: &str, mut sums: Value| {
        sums[name] = value.into();
        sums
    };
    let all = get(&gateway, "/operator/analytics").await;
    // svc-standard: 100 × 2,000 + 10 × 9,000; svc-basic: 100 × 5,000 + 10 × 30,000.
    assert_eq!(all["total"], sums(4, 3, "0.001380"));
    let by_model = [
        named("model", "svc-basic", sums(1, 1, "0.000800")),
        named("model", MODEL, sums(3, 2, "0.000580")),
    ];
    assert_eq!(all["by_model"], json!(by_model));
    let mine = named("account_id", &gateway.account_id, sums(2, 2, "0.001090"));
    let theirs = named("account_id", &other, sums(2, 1, "0.000290"));
    let by_account = all["by_account"].as_array().unwrap();
    assert_eq!(by_account.len(), 2);
    assert!(
        by_account.contains(&mine) && by_account.contains(&theirs),
        "{by_account:?}"
    );
    let days = all["by_day"].as_array().unwrap();
    assert!((1..=2).contains(&days.len()), "{days:?}");
    assert_eq!(days[0]["day"].as_str().unwrap().len(), "2027-01-31".len());
    let one = format!("/operator/analytics?account={other}&model={MODEL}");
    assert_eq!(get(&gateway, &one).await["total"], sums(2, 1, "0.000290"));
    let past = get(&gateway, "/operator/analytics?to=2020-01-01T00:00:00Z").await;
    assert_eq!(past["total"], sums(0, 0, "0.000000"));
    assert_eq!(
        (&past["by_day"], &past["to"]),
        (&json!([]), &json!("2020-01-01T00:00:00Z"))
    );
    let wrong = gateway
        .operate(Method::GET, "/operator/analytics?from=monday", None)
        .await;
    wrong.assert_error(400, "invalid_request_error", None, Some("from"));
}

async fn scrape(gateway: &TestGateway) -> String {
    let url = format!("http://{}/metrics", gateway.operator);
    let mut texts = Vec::new();
    for (accept, expected) in [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let request = gateway.client.get(&url).bearer_auth(OPERATOR_TOKEN);
        let response = request.header("accept", accept).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], expected);
        texts.push(response.text().await.unwrap());
    }
    assert!(
        texts[0].ends_with("# EOF\n") && texts[0].contains("# TYPE tollgate_requests counter\n")
    );
    assert!(
        !texts[1].contains("# EOF")
            && texts[1].contains("# TYPE tollgate_requests_total counter\n")
    );
    for process in [
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        let mut lines = texts[1].lines();
        let number = lines.find_map(|line| line.strip_prefix(process)?.trim().parse::<f64>().ok());
        assert!(
            number.is_some_and(|number| number > 0.0),
            "{process}: {number:?}"
        );
    }
    assert!(texts[1].contains(concat!(
        "tollgate_build_info{version=\"",
        env!("CARGO_PKG_VERSION")
    )));
    texts.pop().unwrap()
}

#[tokio::test]
async fn metrics_count_events_and_contain_no_names() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "6")]).await;
    let mut answer = completion("Hi");
    answer["usage"] = json!({
        "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110,
        "prompt_tokens_details": { "cached_tokens": 40 },
    });
    gateway.upstream.answer_json(200, &answer);
    for _ in 0..3 {
        gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    gateway.upstream.answer(529, "text/plain", "busy");
    assert_eq!(gateway.chat(&hello(MODEL)).await.status, 502);
    gateway
        .upstream
        .answer_chunks(&[chunk(json!({ "content": "Hi" }), Some("stop"))]);
    gateway.stream(&hello(MODEL)).await;
    let paid = [
        chunk(json!({ "content": "Hi" }), Some("stop")),
        usage_chunk(5, 5),
    ];
    gateway.upstream.answer_chunks(&paid);
    gateway.stream(&hello(MODEL)).await;
    assert_eq!(gateway.chat(&hello(MODEL)).await.status, 429);
    assert_eq!(gateway.chat(&hello("made-up-model")).await.status, 404);
    assert_eq!(gateway.get("/v1/made-up-path").await.status, 404);
    // A request is counted after its last byte was sent, which may be after its client has read the response.
    let last = r#"tollgate_requests_total{route="none",status="404"} 1"#;
    let mut text = scrape(&gateway).await;
    for _ in 0..200 {
        if text.contains(last) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        text = scrape(&gateway).await;
    }
    for line in [
        last,
        r#"tollgate_requests_total{route="/v1/chat/completions",status="200"} 5"#,
        r#"tollgate_requests_total{route="/v1/chat/completions",status="429"} 1"#,
        r#"tollgate_request_duration_seconds_count{route="/v1/chat/completions"} 8"#,
        r#"tollgate_refusals_total{code="rpm_exceeded"} 1"#,
        r#"tollgate_refusals_total{code="upstream_error"} 1"#,
        r#"tollgate_refusals_total{code="model_not_found"} 1"#,
        r#"tollgate_calls_total{model="svc-standard",upstream="fake",outcome="answered"} 4"#,
        r#"tollgate_calls_total{model="svc-standard",upstream="fake",outcome="provider_failed"} 1"#,
        r#"tollgate_calls_total{model="svc-standard",upstream="fake",outcome="no_usage"} 1"#,
        r#"tollgate_unbilled_streams_total{model="svc-standard"} 1"#,
        r#"tollgate_tokens_total{model="svc-standard",kind="input"} 305"#,
        r#"tollgate_tokens_total{model="svc-standard",kind="cached_input"} 120"#,
        r#"tollgate_tokens_total{model="svc-standard",kind="output"} 35"#,
        // 3 × (60 × 2,000 + 40 × 200 + 10 × 9,000) + 5 × 2,000 + 5 × 9,000.
        r#"tollgate_spend_nano_usd_total{model="svc-standard"} 709000"#,
        r#"tollgate_first_byte_seconds_count{model="svc-standard"} 5"#,
        "tollgate_holds 0",
        "tollgate_held_nano_usd 0",
        "tollgate_abandoned_calls 0",
        "tollgate_ledger_ready 1",
        "tollgate_limits_ready 1",
        "tollgate_audit_violations 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    for line in [
        "tollgate_ledger_batch_steps_count",
        "tollgate_ledger_commit_seconds_bucket",
    ] {
        assert!(text.contains(line), "{line}");
    }
    for private in [&gateway.account_id, &gateway.key, "made-up"] {
        assert!(!text.contains(private), "{private} is no label");
    }
    let unasked = gateway
        .client
        .get(format!("http://{}/metrics", gateway.operator));
    assert_eq!(unasked.send().await.unwrap().status(), 401);
    let public = gateway
        .client
        .get(gateway.url("/metrics"))
        .send()
        .await
        .unwrap();
    assert_eq!(public.status(), 404);
}

#[tokio::test]
async fn metrics_show_running_holds() {
    let gateway = TestGateway::start().await;
    let head = Step::Send(stream_head());
    let begun = events(&[chunk(json!({ "content": "Hal" }), None)]);
    let begun = begun
        .strip_suffix("data: [DONE]\n\n")
        .unwrap_or(&begun)
        .to_owned();
    let seen = Gate::default();
    gateway.upstream.play(vec![
        head,
        Step::Send(begun.into_bytes()),
        Step::Until(seen.clone()),
        Step::Close,
    ]);
    let running = gateway.open_stream(&hello(MODEL)).await;
    let text = scrape(&gateway).await;
    assert!(text.contains("tollgate_holds 1\n"), "{text}");
    assert!(!text.contains("tollgate_held_nano_usd 0\n"), "{text}");
    seen.open();
    running.text().await.unwrap();
    let text = scrape(&gateway).await;
    assert!(text.contains("tollgate_holds 0\n"), "{text}");
}

#[tokio::test]
async fn an_audit_reports_what_it_checked() {
    let gateway = TestGateway::start().await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let audit = gateway.operate(Method::POST, "/operator/audit", None).await;
    let audit = audit.assert_ok();
    assert_eq!(
        (&audit["object"], &audit["ok"]),
        (&json!("audit"), &json!(true))
    );
    assert_eq!(
        (&audit["accounts"], &audit["entries"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(
        (&audit["charges"], &audit["violations"]),
        (&json!(1), &json!([]))
    );
}
