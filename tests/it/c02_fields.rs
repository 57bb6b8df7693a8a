//! §2.1: which fields of a body reach a provider, and which never do.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Plan, TestGateway,
    bodies::{hello_with, tool},
    gateway::{PROVIDER_KEY, UPSTREAM_MODEL, answer, hello},
    models::MODELS,
};

const MODEL: &str = "svc-native-fast";
/// Part of every value that must not reach a provider.
const CANARY: &str = "canary-3141592653";

fn keys(body: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = body.as_object().unwrap().keys().collect();
    keys.sort_unstable();
    keys.into_iter().map(String::as_str).collect()
}

/// Fields that belong to the operator, to other services, or to no API at all.
fn foreign() -> Vec<(&'static str, Value)> {
    let text = || json!(CANARY);
    vec![
        ("api_key", text()),
        ("api_base", json!(format!("http://{CANARY}/v1"))),
        ("base_url", json!(format!("http://{CANARY}/v1"))),
        ("api_version", text()),
        ("organization", text()),
        ("fallbacks", json!([{ "model": CANARY }])),
        ("context_window_fallback_dict", json!({ "a": CANARY })),
        (
            "extra_body",
            json!({ "api_key": CANARY, "model": CANARY, "temperature": 9 }),
        ),
        ("extra_headers", json!({ "Authorization": CANARY })),
        ("extra_query", json!({ "key": CANARY })),
        ("headers", json!({ "x-api-key": CANARY })),
        ("custom_llm_provider", text()),
        ("mock_response", text()),
        ("deployment_id", text()),
        ("timeout", json!(0)),
        ("num_retries", json!(99)),
        ("metadata", json!({ "trace": CANARY })),
        ("store", json!(true)),
        ("service_tier", json!("priority")),
        ("prompt_cache_key", text()),
        ("safety_identifier", text()),
        ("verbosity", json!("low")),
        (
            "prediction",
            json!({ "type": "content", "content": CANARY }),
        ),
        ("tool_execution", json!("passthrough")),
        ("unheard_of", json!({ "deep": [[[{ "x": CANARY }]]] })),
        ("", text()),
        // Names are case-sensitive: these are not the fields they resemble.
        ("API_KEY", text()),
        ("Api_Base", text()),
        ("Temperature", json!(9)),
        ("max_Tokens", json!(0)),
        ("temperature ", json!(9)),
        ("TOOLS", json!(CANARY)),
        ("User", text()),
    ]
}

#[tokio::test]
async fn a_provider_sees_only_what_the_contract_names() {
    let gateway = TestGateway::start().await;
    let mut all = hello(MODEL);
    for (name, value) in foreign() {
        all[name] = value.clone();
        let sent = gateway
            .forwards(&hello_with(MODEL, json!({ name: value })))
            .await;
        let expected = ["messages", "model", "stream", "user"];
        assert_eq!(keys(&sent), expected, "{name}");
        assert_eq!(sent["model"], UPSTREAM_MODEL);
        assert!(!gateway.upstream.last_text().contains(CANARY), "{name}");
    }
    for model in MODELS {
        all["model"] = model.into();
        let sent = gateway.forwards(&all).await;
        let expected = ["messages", "model", "stream", "user"];
        let mut found = keys(&sent);
        found.retain(|key| *key != "max_tokens"); // a minimum: see c08_budgets
        assert_eq!(found, expected, "{model}");
        assert!(!gateway.upstream.last_text().contains(CANARY), "{model}");
    }
}

#[tokio::test]
async fn foreign_fields_inside_others_stay_behind_too() {
    let gateway = TestGateway::start().await;
    let body = json!({
        "model": MODEL,
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "Hi", "api_key": CANARY }],
              "api_base": CANARY, "cache_control": { "type": CANARY } },
            { "role": "assistant", "content": null, "extra_body": CANARY, "tool_calls": [{
                "id": "c1", "type": "function", "extra_content": CANARY,
                "function": { "name": "f", "arguments": "{}", "parsed_arguments": { "a": CANARY } },
            }] },
            { "role": "tool", "tool_call_id": "c1", "content": "1", "api_key": CANARY },
        ],
        "tools": [{ "type": "function", "api_key": CANARY, "function": {
            "name": "f", "api_base": CANARY, "parameters": {},
        } }],
        "tool_choice": { "type": "function", "function": { "name": "f", "x": CANARY }, "y": CANARY },
        "response_format": { "type": "json_object", "z": CANARY },
    });
    let sent = gateway.forwards(&body).await;
    let text = gateway.upstream.last_text();
    assert!(!text.contains(CANARY), "{text}");
    assert_eq!(keys(&sent["messages"][0]), ["content", "role"]);
    assert_eq!(
        keys(&sent["messages"][1]),
        ["content", "role", "tool_calls"]
    );
    assert_eq!(
        keys(&sent["messages"][2]),
        ["content", "role", "tool_call_id"]
    );
}

#[tokio::test]
async fn no_header_of_the_caller_reaches_a_provider() {
    let gateway = TestGateway::start().await;
    let path = format!("/v1/chat/completions?api_key={CANARY}");
    let mut request = gateway.request(Method::POST, &path).json(&hello(MODEL));
    for name in [
        "x-api-key",
        "api-key",
        "openai-organization",
        "x-request-id",
        "x-forwarded-for",
        "cookie",
        "user-agent",
        "traceparent",
    ] {
        request = request.header(name, CANARY);
    }
    answer(request).await.assert_ok();
    let text = gateway.upstream.last_text();
    assert!(!text.contains(CANARY), "{text}");
    assert!(!text.contains(&gateway.key), "the caller's key stays here");
    let received = gateway.upstream.received();
    let authorization = received[0].header("authorization");
    assert_eq!(authorization, Some(&*format!("Bearer {PROVIDER_KEY}")));
}

#[tokio::test]
async fn fields_that_can_be_neither_served_nor_ignored_are_refused() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        for (name, value) in [
            (
                "web_search_options",
                json!({ "search_context_size": "low" }),
            ),
            ("web_search_options", json!({})),
            ("functions", json!([{ "name": "f" }])),
            ("function_call", json!("auto")),
            ("audio", json!({ "voice": "a", "format": "wav" })),
        ] {
            gateway
                .refuses(&hello_with(model, json!({ name: value })), name)
                .await;
        }
    }
}

#[tokio::test]
async fn null_is_the_same_as_absent() {
    let gateway = TestGateway::start().await;
    let plain = gateway.forwards(&hello(MODEL)).await;
    let mut all = hello(MODEL);
    for name in [
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "max_output_tokens",
        "temperature",
        "top_p",
        "top_k",
        "stop",
        "tools",
        "tool_choice",
        "response_format",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "n",
        "parallel_tool_calls",
        "user",
        "reasoning_effort",
        "thinking",
        "web_search_options",
        "tool_execution",
        "functions",
        "function_call",
        "audio",
        "unheard_of",
    ] {
        all[name] = Value::Null;
        let sent = gateway
            .forwards(&hello_with(MODEL, json!({ name: null })))
            .await;
        assert_eq!(sent, plain, "{name}");
    }
    assert_eq!(gateway.forwards(&all).await, plain);
}

#[tokio::test]
async fn of_duplicate_keys_the_last_one_counts_here_and_upstream() {
    let gateway = TestGateway::start().await;
    let body = |more: &str| {
        format!(
            r#"{{"model":"svc-basic","messages":[{{"role":"user","content":"first"}}],{more},
               "messages":[{{"role":"user","content":"last"}}],"model":"{MODEL}"}}"#
        )
    };
    for (twice, name, counts) in [
        (
            r#""max_tokens":70000,"max_tokens":5"#,
            "max_tokens",
            json!(5),
        ),
        (
            r#""temperature":9,"temperature":1.5"#,
            "temperature",
            json!(1.5),
        ),
        (r#""n":0,"n":2"#, "n", json!(2)),
        (
            r#""stop":["a","b","c","d","e"],"stop":"z""#,
            "stop",
            json!(["z"]),
        ),
        (r#""seed":5,"seed":null"#, "seed", Value::Null),
        (
            r#""functions":[],"functions":null"#,
            "functions",
            Value::Null,
        ),
        (
            r#""user":"a","user":"b""#,
            "user",
            json!(gateway.account_id),
        ),
        // An escaped name is the same key.
        (r#""seed":5,"s\u0065ed":6"#, "seed", json!(6)),
    ] {
        gateway.chat_text(body(twice)).await.assert_ok();
        let sent = gateway.upstream.last_body();
        assert_eq!(sent[name], counts, "{twice}");
        assert_eq!(
            sent["messages"],
            json!([{ "role": "user", "content": "last" }])
        );
        let text = gateway.upstream.last_text();
        let written = text.matches(&format!("\"{name}\":")).count();
        assert_eq!(written, usize::from(!counts.is_null()), "{text}");
    }
    for (twice, name) in [
        (r#""max_tokens":5,"max_tokens":70000"#, "max_tokens"),
        (r#""temperature":1,"temperature":9"#, "temperature"),
        (r#""audio":null,"audio":{}"#, "audio"),
        (r#""functions":[],"audio":{},"audio":null"#, "functions"),
    ] {
        gateway.refuses_text(body(twice), Some(name)).await;
    }
}

#[tokio::test]
async fn the_model_that_is_checked_is_the_model_that_is_called() {
    let gateway = TestGateway::start().await;
    let (_, key) = gateway.account(Plan::FREE).await;
    let post = |first: &str, last: &str| {
        let body = format!(
            r#"{{"model":"{first}","messages":[{{"role":"user","content":"Hi"}}],"model":"{last}"}}"#
        );
        let url = gateway.url("/v1/chat/completions");
        answer(gateway.client.post(url).bearer_auth(&key).body(body))
    };
    let refused = post(MODEL, "svc-native-promax").await;
    refused.assert_error(
        403,
        "tier_upgrade_required",
        Some("forbidden"),
        Some("model"),
    );
    assert_eq!(gateway.upstream.calls(), 0);
    let answered = post("svc-native-promax", MODEL).await;
    assert_eq!(answered.assert_ok()["model"], MODEL);
}

/// §2.1: one body works with every model of the catalog.
#[tokio::test]
async fn one_body_with_everything_in_it_works_on_every_model() {
    let gateway = TestGateway::start().await;
    let mut body = json!({
        "messages": [
            { "role": "system", "content": "Be brief.", "name": "rules" },
            { "role": "developer", "content": [{ "type": "text", "text": "Be kind." }] },
            { "role": "user", "content": [
                { "type": "text", "text": "What is this?" },
                { "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } },
            ] },
            { "role": "assistant", "content": null, "refusal": null, "tool_calls": [
                { "id": "c1", "type": "function", "function": { "name": "f", "arguments": "{}" } },
            ] },
            { "role": "tool", "tool_call_id": "c1", "content": "42" },
        ],
        "stream": false, "max_tokens": 4096, "max_completion_tokens": 5000,
        "temperature": 0.5, "top_p": 0.5, "top_k": 5, "stop": ["a", "b", "c", "d"],
        "tools": [tool("f")], "tool_choice": "auto", "parallel_tool_calls": true,
        "response_format": { "type": "json_schema", "json_schema": {
            "name": "answer", "strict": true, "schema": { "type": "object", "properties": {} },
        } },
        "seed": 1, "frequency_penalty": 1, "presence_penalty": 1, "logit_bias": { "1": 1 },
        "logprobs": true, "top_logprobs": 2, "n": 1, "user": "me",
        "reasoning_effort": "low", "thinking": { "type": "enabled", "budget_tokens": 1024 },
        "tool_execution": "passthrough",
    });
    for (name, value) in foreign() {
        body[name] = value;
    }
    for model in MODELS {
        body["model"] = model.into();
        let sent = gateway.forwards(&body).await;
        assert_eq!(sent["max_tokens"], 5000, "{model}");
        assert_eq!(sent["response_format"], body["response_format"], "{model}");
        assert_eq!(sent["tools"], body["tools"], "{model}");
        assert!(!gateway.upstream.last_text().contains(CANARY), "{model}");
    }
}
