//! Claude on Amazon Bedrock: requests are signed, streams are binary, and callers see no difference.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, LedgerView, Step, TestGateway, View,
    anthropic::{begun, block, ended, hello_events, message, says, text},
    bedrock::{
        self, ACCESS_KEY, INVOKE, answer_stream, assert_signed, chunk, chunks, exception, failure,
        signer, start, stream_head,
    },
    bodies::hello_with,
    gateway::{PROVIDER_KEY, hello},
    ledger_view::{self, MODEL},
    upstream::{Received, completion},
};

const STREAM: &str = "POST /model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke-with-response-stream HTTP/1.1";

fn request_line(received: &Received) -> &str {
    received.head.lines().next().unwrap()
}

/// Bedrock's own message, whose model is named in its own way.
fn hello_message() -> Value {
    let mut message = message(json!([text("Hello")]), "end_turn");
    message["model"] = "claude-sonnet-4-5-20250929".into();
    message
}

#[tokio::test]
async fn a_call_is_signed_and_charged() {
    let (gateway, bedrock) = start().await;
    bedrock.answer_json(200, &hello_message());
    let customer = gateway.customer().await;
    assert_eq!(customer.ask("Hello", false).await, View::Answered);
    let sent = bedrock.received().pop().unwrap();
    assert_eq!(request_line(&sent), format!("POST {INVOKE} HTTP/1.1"));
    assert_signed(&sent, PROVIDER_KEY, None);
    assert_eq!(signer(&sent), ACCESS_KEY);
    for name in ["x-api-key", "anthropic-version", "anthropic-beta"] {
        assert_eq!(sent.header(name), None, "{name}");
    }
    assert!(!sent.head.contains(PROVIDER_KEY));
    let members: Vec<_> = sent.body.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        [
            "anthropic_version",
            "max_tokens",
            "system",
            "messages",
            "tools",
            "metadata"
        ]
    );
    assert_eq!(sent.body["anthropic_version"], "bedrock-2023-05-31");
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

/// However the bytes of a stream are cut, callers get the same text, and pay for it to the nano-dollar.
#[tokio::test]
async fn a_stream_may_be_cut_anywhere() {
    let (gateway, bedrock) = start().await;
    let customer = gateway.customer().await;
    let body = chunks(&hello_events());
    let pieces = [1, 2, 3, 11, 12, 13, 97, body.len()];
    for piece in pieces {
        answer_stream(&bedrock, &body, piece);
        let (view, text) = customer.ask_for_text("Hello", true).await;
        assert_eq!(view, View::Finished, "{piece}");
        assert!(
            text.contains("Hel") && text.contains("lo"),
            "{piece}: {text}"
        );
    }
    let sent = bedrock.received().pop().unwrap();
    assert_eq!(request_line(&sent), STREAM);
    assert_signed(&sent, PROVIDER_KEY, None);
    assert_eq!(sent.body.get("stream"), None);
    let calls = u32::try_from(pieces.len()).unwrap();
    assert_eq!(customer.ledger_view().await, LedgerView::charged(calls));
}

#[tokio::test]
async fn cached_input_has_its_own_price() {
    let (gateway, bedrock) = start().await;
    let customer = gateway.customer().await;
    let counts = json!({ "input_tokens": 100, "cache_creation_input_tokens": 500,
        "cache_read_input_tokens": 400, "output_tokens": 1 });
    let mut events = vec![begun(counts)];
    events.extend(block(0, text(""), &[says("Hi")]));
    events.extend(ended("end_turn", json!({ "output_tokens": 10 })));
    // Bedrock adds its own counts to the last event.
    let last = events.last_mut().unwrap();
    last["amazon-bedrock-invocationMetrics"] = json!({ "inputTokenCount": 100,
        "outputTokenCount": 10, "invocationLatency": 900, "firstByteLatency": 300,
        "cacheReadInputTokenCount": 400, "cacheWriteInputTokenCount": 500 });
    answer_stream(&bedrock, &chunks(&events), 100);
    assert_eq!(customer.ask("Hello", true).await, View::Finished);
    // 600 × 2,000 + 400 × 200 + 10 × 9,000
    assert_eq!(customer.ledger_view().await.spent, 1_370_000);
}

/// What breaks a stream after its first words: an exception, a wrong checksum, an end in the middle.
#[tokio::test]
async fn a_stream_that_breaks_is_interrupted_and_free() {
    let (gateway, bedrock) = start().await;
    let customer = gateway.customer().await;
    let events = hello_events();
    let first_words = chunks(&events[..4]);
    let mut wrong = chunk(&events[4]);
    let at = wrong.len() / 2;
    wrong[at] ^= 1;
    let whole = chunk(&events[4]);
    let rest = chunks(&events[5..]);
    let mut calls = 0;
    for (what, next) in [
        ("throttled", exception("throttlingException")),
        ("model's stream", exception("modelStreamErrorException")),
        ("internal", exception("internalServerException")),
        ("of tomorrow", exception("newException")),
        ("checksum", wrong),
        ("cut off", whole[..whole.len() - 1].to_vec()),
        ("no end", whole.clone()),
    ] {
        // A message that was cut off would swallow what follows.
        let after = if what == "checksum" { &rest[..] } else { &[] };
        let body = [&first_words[..], &next, after].concat();
        answer_stream(&bedrock, &body, 50);
        let (view, text) = customer.ask_for_text("Hello", true).await;
        assert_eq!(view, View::Interrupted, "{what}: {text}");
        assert!(text.contains("Hel"), "{what}: {text}");
        assert!(!text.contains("canary"), "{what}: {text}");
        calls += 1;
    }
    assert_eq!(customer.ledger_view().await, LedgerView::free(calls));
}

/// Before the first word, a failure of Bedrock goes to the next deployment.
#[tokio::test]
async fn failures_fail_over() {
    let stream_of =
        |body: &[u8]| vec![Step::Send([&stream_head()[..], body].concat()), Step::Close];
    let cases = [
        (
            "429",
            vec![Step::Send(failure(
                429,
                "ThrottlingException",
                "Too many requests",
            ))],
        ),
        (
            "503",
            vec![Step::Send(failure(
                503,
                "ServiceUnavailableException",
                "later",
            ))],
        ),
        (
            "424",
            vec![Step::Send(failure(424, "ModelErrorException", "sorry"))],
        ),
        (
            "408",
            vec![Step::Send(failure(408, "ModelTimeoutException", "slow"))],
        ),
        (
            "403",
            vec![Step::Send(failure(
                403,
                "AccessDeniedException",
                "no access to the model",
            ))],
        ),
        (
            "model",
            vec![Step::Send(failure(
                400,
                "ValidationException",
                "The provided model identifier is invalid.",
            ))],
        ),
        (
            "thrown at once",
            stream_of(&exception("throttlingException")),
        ),
        ("checksum", stream_of(&[0; 16])),
        (
            "not binary",
            vec![
                Step::Send(crate::support::upstream::stream_head()),
                Step::Close,
            ],
        ),
    ];
    let second = FakeUpstream::start().await;
    let hi = crate::support::upstream::chunk(json!({ "content": "Hi" }), Some("stop"));
    second.answer_chunks(&[hi, crate::support::upstream::usage_chunk(11, 3)]);
    for (what, steps) in cases {
        let bedrock = FakeUpstream::start().await;
        let more = format!(
            "{}\n[providers.second]\nkind = \"openai\"\nbase_url = \"http://{}/v1\"\n\
             [[deployments]]\nmodel = \"{MODEL}\"\nprovider = \"second\"\npriority = 1\n",
            bedrock::provider(&bedrock),
            second.address
        );
        let gateway = TestGateway::start_with(&more).await;
        let customer = gateway.customer().await;
        bedrock.play(steps);
        assert_eq!(customer.ask("Hello", true).await, View::Finished, "{what}");
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged(1),
            "{what}"
        );
        assert_eq!(bedrock.calls(), 1, "{what}");
    }
}

#[tokio::test]
async fn a_callers_mistake_names_no_provider() {
    let (gateway, bedrock) = start().await;
    let why = "Malformed input request: Claude on Amazon Bedrock wants max_tokens, AWS says.";
    bedrock.play(vec![Step::Send(failure(400, "ValidationException", why))]);
    let refused = gateway.chat(&hello(MODEL)).await;
    let shown = refused.error()["message"].as_str().unwrap();
    assert!(shown.contains("max_tokens"), "{shown}");
    for name in ["Claude", "Amazon", "Bedrock", "AWS"] {
        assert!(!shown.contains(name), "{shown}");
    }
    let why = "Input is too long for requested model.";
    bedrock.play(vec![Step::Send(failure(400, "ValidationException", why))]);
    let refused = gateway.chat(&hello(MODEL)).await;
    assert_eq!(refused.error()["code"], "context_length_exceeded");
}

/// If Bedrock finds a signature too old or too new, the operator learns that the clock may be wrong; callers do not.
#[tokio::test]
async fn a_wrong_clock_is_named_to_the_operator() {
    let (gateway, bedrock) = start().await;
    let why = "Signature expired: 20261119T170000Z is now earlier than 20261119T171500Z (20261119T172000Z - 5 min.)";
    bedrock.play(vec![Step::Send(failure(
        403,
        "InvalidSignatureException",
        why,
    ))]);
    let request = gateway.request(Method::POST, "/v1/chat/completions");
    let request = request.header("x-request-id", "clock").json(&hello(MODEL));
    let refused = crate::support::gateway::answer(request).await;
    assert_eq!(refused.status, 502);
    assert!(
        !refused.body.to_string().contains("clock of"),
        "{}",
        refused.body
    );
    gateway.idle().await;
    let path = "/operator/requests/clock";
    let details = gateway.operate(Method::GET, path, None).await;
    let failed = details.assert_ok()["failed_attempts"][0]["failure"].clone();
    let failed = failed.as_str().unwrap();
    assert!(failed.contains("the clock of this machine"), "{failed}");
    assert!(!failed.contains("20261119"), "{failed}");
}

/// Bedrock's endpoint with OpenAI's API gets the same signature.
#[tokio::test]
async fn the_openai_endpoint_is_signed_too() {
    let bedrock = FakeUpstream::start().await;
    let more = bedrock::provider(&bedrock).replace("kind = \"anthropic\"", "kind = \"openai\"");
    let address = format!("base_url = \"http://{}\"", bedrock.address);
    let with_path = format!("base_url = \"http://{}/openai/v1\"", bedrock.address);
    let gateway = TestGateway::start_with(&more.replace(&address, &with_path)).await;
    bedrock.answer_json(200, &completion("Hello"));
    let customer = gateway.customer().await;
    assert_eq!(customer.ask("Hello", false).await, View::Answered);
    let sent = bedrock.received().pop().unwrap();
    assert_eq!(
        request_line(&sent),
        "POST /openai/v1/chat/completions HTTP/1.1"
    );
    assert_eq!(sent.body["model"], bedrock::MODEL);
    assert_signed(&sent, PROVIDER_KEY, None);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

/// So does its endpoint with Anthropic's own form of the Messages API, streams included.
#[tokio::test]
async fn the_messages_endpoint_is_signed_too() {
    let bedrock = FakeUpstream::start().await;
    let address = format!("base_url = \"http://{}", bedrock.address);
    let settings = bedrock::provider(&bedrock).replace(
        &format!("{address}\""),
        &format!("{address}/anthropic/v1\"\ndialect = \"anthropic\""),
    );
    let gateway = TestGateway::start_with(&settings).await;
    let customer = gateway.customer().await;
    bedrock.answer_json(200, &hello_message());
    assert_eq!(customer.ask("Hello", false).await, View::Answered);
    bedrock.answer_stream(&crate::support::anthropic::events(&hello_events()));
    assert_eq!(customer.ask("Hello", true).await, View::Finished);
    for sent in bedrock.received() {
        assert_eq!(request_line(&sent), "POST /anthropic/v1/messages HTTP/1.1");
        assert_signed(&sent, PROVIDER_KEY, None);
        assert_eq!(sent.header("anthropic-version"), Some("2023-06-01"));
        assert_eq!(sent.header("x-api-key"), None);
        assert_eq!(sent.body["model"], bedrock::MODEL);
    }
    assert_eq!(customer.ledger_view().await, LedgerView::charged(2));
}

/// Bedrock refuses an effort without its beta for some models, which callers of the gateway cannot name.
#[tokio::test]
async fn an_effort_brings_its_beta() {
    let (gateway, bedrock) = start().await;
    bedrock.answer_json(200, &hello_message());
    let with_effort = hello_with(MODEL, json!({ "reasoning_effort": "low" }));
    gateway.chat(&with_effort).await.assert_ok();
    let sent = bedrock.last_body();
    assert_eq!(sent["output_config"]["effort"], "low");
    assert_eq!(sent["anthropic_beta"], json!(["effort-2025-11-24"]));
    gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(bedrock.last_body().get("anthropic_beta"), None);
}

/// A Bedrock API key is a bearer token, and nothing is signed.
#[tokio::test]
async fn an_api_key_works_without_a_signature() {
    let bedrock = FakeUpstream::start().await;
    let more = bedrock::section(&bedrock, "api_key_env = \"PROVIDER_KEY\"\n")
        .replace("auth = \"aws\"", "dialect = \"bedrock\"")
        .replace("region = \"eu-central-1\"\n", "");
    let gateway = TestGateway::start_with(&more).await;
    bedrock.answer_json(200, &hello_message());
    gateway.chat(&hello(MODEL)).await.assert_ok();
    let sent = bedrock.received().pop().unwrap();
    assert_eq!(request_line(&sent), format!("POST {INVOKE} HTTP/1.1"));
    let bearer = format!("Bearer {PROVIDER_KEY}");
    assert_eq!(sent.header("authorization"), Some(bearer.as_str()));
    assert_eq!(sent.header("x-amz-date"), None);
}

/// Tool calls and structured output take the way that they take to Anthropic's own API.
#[tokio::test]
async fn tools_are_called() {
    let (gateway, bedrock) = start().await;
    let call = json!({ "type": "tool_use", "id": "toolu_01", "name": "f", "input": {} });
    let piece = |json: &str| json!({ "type": "input_json_delta", "partial_json": json });
    let mut events = vec![begun(json!({ "input_tokens": 11, "output_tokens": 1 }))];
    events.extend(block(0, call, &[piece("{\"a\":"), piece("1}")]));
    events.extend(ended("tool_use", json!({ "output_tokens": 3 })));
    answer_stream(&bedrock, &chunks(&events), 77);
    let tools = json!([crate::support::bodies::tool("f")]);
    let stream = gateway
        .stream(&hello_with(MODEL, json!({ "tools": tools })))
        .await;
    let expected = [("call_01".into(), "f".into(), "{\"a\":1}".into())];
    assert_eq!(stream.tool_calls(0), expected);
    assert_eq!(bedrock.last_body()["tools"][0]["name"], "f");
    assert_eq!(ledger_view::PRICE, 49_000);
}
