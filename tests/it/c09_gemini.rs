//! A provider of the Gemini API: callers see no difference.

use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, LedgerView, Step, Stream, TestGateway, View,
    bodies::{hello_with, tool},
    gateway::{PROVIDER_KEY, hello},
    gemini::{assert_anonymous, events, generated, said, start},
    ledger_view::PRICE,
    process::{run, text as text_of},
    stores,
    upstream::stream_head,
};

const MODEL: &str = "svc-native-fast";

#[tokio::test]
async fn a_plain_answer() {
    let gateway = start().await;
    gateway
        .upstream
        .answer_json(200, &said("Grüß dich 😀\n\u{0}"));
    let answer = gateway.chat(&hello(MODEL)).await;
    let choice = &answer.assert_ok()["choices"][0];
    let message = json!({ "role": "assistant", "content": "Grüß dich 😀\n\u{0}" });
    assert_eq!(choice["message"], message);
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(answer.body["model"], MODEL);
    assert_eq!(answer.body["usage"]["total_tokens"], 14);
    assert_anonymous(&format!("{}{:?}", answer.body, answer.headers));
}

#[tokio::test]
async fn a_streamed_answer() {
    let gateway = start().await;
    let body = hello_with(
        MODEL,
        json!({ "stream_options": { "include_usage": true } }),
    );
    gateway.upstream.answer_stream(&events(&[
        generated(json!([{ "text": "Let me think.", "thought": true }]), None),
        generated(json!([{ "text": "Hel" }]), None),
        generated(json!([{ "text": "lo" }]), None),
        generated(
            json!([{ "text": "", "thoughtSignature": "c2ln" }]),
            Some("STOP"),
        ),
    ]));
    let stream = gateway.stream(&body).await;
    stream.assert_complete(MODEL);
    assert_eq!(stream.content(0), "Hello");
    assert_eq!(stream.finish_reason(0).as_deref(), Some("stop"));
    assert_eq!(stream.usage().unwrap()["total_tokens"], 14);
    assert_anonymous(&stream.text);
}

/// The URL, the key in its header and nowhere else, and no header of another vendor's API.
#[tokio::test]
async fn the_request_that_the_provider_gets() {
    let gateway = start().await;
    gateway.chat(&hello(MODEL)).await.assert_ok();
    gateway.upstream.answer_stream(&events(&[said("Hello")]));
    gateway.stream(&hello(MODEL)).await.assert_complete(MODEL);
    let received = gateway.upstream.received();
    let lines: Vec<_> = received
        .iter()
        .map(|request| request.head.lines().next().unwrap())
        .collect();
    assert_eq!(
        lines,
        [
            "POST /v1/models/vendor-model-9:generateContent HTTP/1.1",
            "POST /v1/models/vendor-model-9:streamGenerateContent?alt=sse HTTP/1.1",
        ]
    );
    for request in &received {
        let mut names: Vec<_> = request
            .head
            .lines()
            .skip(1)
            .filter_map(|line| Some(line.split_once(':')?.0.to_lowercase()))
            .collect();
        names.sort_unstable();
        let expected = [
            "accept-encoding",
            "content-length",
            "content-type",
            "host",
            "user-agent",
            "x-goog-api-key",
        ];
        assert_eq!(names, expected);
        assert_eq!(request.header("x-goog-api-key"), Some(PROVIDER_KEY));
        assert_eq!(request.head.matches(PROVIDER_KEY).count(), 1);
        let body = json!({
            "contents": [{ "role": "user", "parts": [{ "text": "Hello" }] }],
            "generationConfig": {},
        });
        assert_eq!(request.body, body);
    }
}

#[tokio::test]
async fn a_check_lists_the_models() {
    let folder = tempfile::TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let upstream = FakeUpstream::start().await;
    let text = format!(
        "{}\
         deployments = [{{ model = \"*\", provider = \"far\" }}]\n\
         [providers.far]\nkind = \"gemini\"\nbase_url = \"http://{}/v1beta\"\n\
         api_key_env = \"PROVIDER_KEY\"\n",
        stores::lines(folder.path()),
        upstream.address
    );
    std::fs::write(&config, text).unwrap();
    upstream.answer_json(200, &json!({ "models": [] }));
    let checked = tokio::task::spawn_blocking(move || {
        let environment = [
            (
                "TOLLGATE_OPERATOR_TOKEN",
                "7c1f9a04e6b25d83d0487ae1936bf25c",
            ),
            ("PROVIDER_KEY", PROVIDER_KEY),
        ];
        run(
            &["check", "--config", config.to_str().unwrap()],
            &environment,
        )
    });
    let checked = checked.await.unwrap();
    assert!(checked.status.success(), "{}", text_of(&checked.stdout));
    let received = upstream.received();
    assert_eq!(received.len(), 1);
    assert!(received[0].head.starts_with("GET /v1beta/models HTTP/1.1"));
    assert_eq!(received[0].header("x-goog-api-key"), Some(PROVIDER_KEY));
}

/// Continues a conversation with tool calls as a client does; returns the body that the provider received.
async fn with_tools(gateway: &TestGateway, calls: &[(String, String, String)]) -> Value {
    let written: Vec<_> = calls
        .iter()
        .map(|(id, name, arguments)| {
            json!({ "id": id, "type": "function",
                "function": { "name": name, "arguments": arguments } })
        })
        .collect();
    let mut messages = vec![
        json!({ "role": "user", "content": "Weather?" }),
        json!({ "role": "assistant", "content": null, "tool_calls": written }),
    ];
    // Clients send results in the order in which their tools finish.
    messages.extend(calls.iter().rev().map(|(id, _, arguments)| {
        json!({ "role": "tool", "tool_call_id": id, "content": format!("for {arguments}") })
    }));
    let body = json!({ "model": MODEL, "messages": messages, "tools": [tool("get_weather")] });
    gateway.upstream.answer_json(200, &said("Sunny."));
    gateway.chat(&body).await.assert_ok();
    gateway.upstream.last_body()["contents"].clone()
}

fn two_calls(finish: &str) -> Value {
    let parts = json!([
        { "functionCall": { "name": "get_weather", "args": { "city": "Oslo" }, "id": "g1" },
            "thoughtSignature": "c2lnbmF0dXJlIG9mIE9zbG8=" },
        { "functionCall": { "name": "get_weather", "args": { "city": "Rome" }, "id": "g2" } },
    ]);
    generated(parts, Some(finish))
}

/// The history that the provider receives: its own calls, IDs and signatures, with results in order.
fn expected_history() -> Value {
    json!([
        { "role": "user", "parts": [{ "text": "Weather?" }] },
        { "role": "model", "parts": [
            { "functionCall": { "id": "g1", "name": "get_weather", "args": { "city": "Oslo" } },
                "thoughtSignature": "c2lnbmF0dXJlIG9mIE9zbG8=" },
            { "functionCall": { "id": "g2", "name": "get_weather", "args": { "city": "Rome" } } },
        ] },
        { "role": "user", "parts": [
            { "functionResponse": { "id": "g1", "name": "get_weather",
                "response": { "result": "for {\"city\":\"Oslo\"}" } } },
            { "functionResponse": { "id": "g2", "name": "get_weather",
                "response": { "result": "for {\"city\":\"Rome\"}" } } },
        ] },
    ])
}

#[tokio::test]
async fn a_tool_conversation() {
    let gateway = start().await;
    gateway.upstream.answer_json(200, &two_calls("STOP"));
    let body = hello_with(MODEL, json!({ "tools": [tool("get_weather")] }));
    let answer = gateway.chat(&body).await;
    let choice = &answer.assert_ok()["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    assert_anonymous(&answer.body.to_string());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    let calls: Vec<_> = calls
        .iter()
        .map(|call| {
            let function = &call["function"];
            let (name, arguments) = (text(&function["name"]), text(&function["arguments"]));
            (text(&call["id"]), name, arguments)
        })
        .collect();
    assert!(
        calls
            .iter()
            .all(|(id, ..)| id.starts_with("call_") && id.len() == 29)
    );
    assert_eq!(with_tools(&gateway, &calls).await, expected_history());
}

#[tokio::test]
async fn a_streamed_tool_conversation() {
    let gateway = start().await;
    gateway
        .upstream
        .answer_stream(&events(&[two_calls("STOP")]));
    let body = hello_with(MODEL, json!({ "tools": [tool("get_weather")] }));
    let stream = gateway.stream(&body).await;
    stream.assert_complete(MODEL);
    assert_eq!(stream.finish_reason(0).as_deref(), Some("tool_calls"));
    assert_anonymous(&stream.text);
    let calls = stream.tool_calls(0);
    assert_eq!(calls.len(), 2);
    assert_eq!(with_tools(&gateway, &calls).await, expected_history());
}

/// After a restart, or with a history from elsewhere.
#[tokio::test]
async fn an_unknown_call_gets_the_published_signature() {
    let gateway = start().await;
    let call = |id: &str| (id.to_owned(), "get_weather".to_owned(), "{}".to_owned());
    let history = with_tools(&gateway, &[call("call_a"), call("call_b")]).await;
    let call = json!({ "name": "get_weather", "args": {} });
    let expected = json!([
        { "functionCall": call, "thoughtSignature": "skip_thought_signature_validator" },
        { "functionCall": call },
    ]);
    assert_eq!(history[1]["parts"], expected);
}

/// Exact to the nano-dollar, including cached input and thoughts.
#[tokio::test]
async fn the_charge_is_exact() {
    let gateway = start().await;
    for (what, usage, bill) in [
        (
            "plain",
            json!({ "promptTokenCount": 11, "candidatesTokenCount": 3, "totalTokenCount": 14 }),
            Some((PRICE, 14)),
        ),
        (
            "cached",
            json!({ "promptTokenCount": 100, "cachedContentTokenCount": 64,
                "candidatesTokenCount": 3, "totalTokenCount": 103 }),
            Some((36 * 2_000 + 64 * 200 + 3 * 9_000, 103)),
        ),
        (
            "thoughts beside",
            json!({ "promptTokenCount": 11, "candidatesTokenCount": 3, "thoughtsTokenCount": 40,
                "totalTokenCount": 54 }),
            Some((11 * 2_000 + 43 * 9_000, 54)),
        ),
        (
            "thoughts inside",
            json!({ "promptTokenCount": 11, "candidatesTokenCount": 43, "thoughtsTokenCount": 40,
                "totalTokenCount": 54 }),
            Some((11 * 2_000 + 43 * 9_000, 54)),
        ),
        (
            "no completion",
            json!({ "promptTokenCount": 11, "totalTokenCount": 11 }),
            Some((11 * 2_000, 11)),
        ),
        ("nothing", Value::Null, None),
        (
            "a negative",
            json!({ "promptTokenCount": 11, "candidatesTokenCount": -3 }),
            None,
        ),
    ] {
        let check = |ledger_view: LedgerView| match bill {
            Some((spent, tokens)) => {
                let expected = LedgerView {
                    spent,
                    charges: 1,
                    requests: 1,
                    tokens,
                };
                assert_eq!(ledger_view, expected, "{what}");
            }
            None => ledger_view.assert_uncounted(1),
        };
        let mut whole = said("Hi");
        whole["usageMetadata"] = usage;

        let customer = gateway.customer().await;
        gateway.upstream.answer_json(200, &whole);
        assert_eq!(customer.ask("whole", false).await, View::Answered, "{what}");
        check(customer.ledger_view().await);

        // The counts of a stream grow; the last ones are charged.
        let customer = gateway.customer().await;
        let mut first = generated(json!([{ "text": "H" }]), None);
        first["usageMetadata"] = match whole["usageMetadata"] {
            Value::Null => Value::Null,
            _ => json!({ "promptTokenCount": 11, "totalTokenCount": 11 }),
        };
        gateway.upstream.answer_stream(&events(&[first, whole]));
        assert_eq!(customer.ask("stream", true).await, View::Finished, "{what}");
        check(customer.ledger_view().await);
    }
}

#[tokio::test]
async fn a_refused_prompt_is_an_answer() {
    let gateway = start().await;
    let blocked = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT" },
        "usageMetadata": { "promptTokenCount": 11, "totalTokenCount": 11 } });
    let spent = 11 * 2_000;
    let customer = gateway.customer().await;
    gateway.upstream.answer_json(200, &blocked);
    assert_eq!(customer.ask("whole", false).await, View::Answered);
    assert_eq!(customer.ledger_view().await.spent, spent);
    let answer = gateway.chat(&hello(MODEL)).await;
    let choice = &answer.assert_ok()["choices"][0];
    assert_eq!(choice["finish_reason"], "content_filter");
    assert_eq!(choice["message"]["content"], Value::Null);

    gateway.upstream.answer_stream(&events(&[blocked]));
    assert_eq!(customer.ask("stream", true).await, View::Finished);
    assert_eq!(customer.ledger_view().await.spent, 2 * spent);
    let stream = gateway.stream(&hello(MODEL)).await;
    assert_eq!(stream.finish_reason(0).as_deref(), Some("content_filter"));
}

/// The framing of the provider's bytes makes no difference to the caller.
#[tokio::test]
async fn a_stream_in_single_bytes() {
    let gateway = start().await;
    let whole = events(&[
        generated(json!([{ "text": "Grüß 😀" }]), None),
        two_calls("STOP"),
    ]);
    let shown = |stream: &Stream| {
        let calls = stream.tool_calls(0).into_iter();
        let calls: Vec<_> = calls
            .map(|(_, name, arguments)| (name, arguments))
            .collect();
        (stream.content(0), calls, stream.finish_reason(0))
    };
    gateway.upstream.answer_stream(&whole);
    let at_once = gateway.stream(&hello(MODEL)).await;
    let mut steps = vec![Step::Send(stream_head())];
    steps.extend(whole.bytes().map(|byte| Step::Send(vec![byte])));
    steps.push(Step::Close);
    gateway.upstream.play(steps);
    let in_bytes = gateway.stream(&hello(MODEL)).await;
    in_bytes.assert_complete(MODEL);
    assert_eq!(shown(&in_bytes), shown(&at_once));
    assert_eq!(shown(&in_bytes).1.len(), 2);
}
