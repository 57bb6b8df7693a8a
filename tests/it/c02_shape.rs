//! §4.1 and §7: unreadable bodies, fields of the wrong type, and the order of checks.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Plan, TestGateway,
    bodies::hello_with,
    gateway::{answer, hello},
};

const MODEL: &str = "svc-native-fast";

/// A request with this JSON as the message's content, and `more` after the messages.
fn written(content: &str, more: &str) -> String {
    format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":{content}}}]{more}}}"#)
}

#[tokio::test]
async fn what_is_not_a_json_object_is_refused() {
    let gateway = TestGateway::start().await;
    let good = written(r#""Hi""#, "");
    let unfinished = &good[..good.len() - 1];
    for body in [
        "",
        " \n",
        "Hello",
        "null",
        "5",
        "\"text\"",
        "[]",
        "[1,2]",
        "{",
        "{}}",
        unfinished,
        "model=svc-native-fast",
        "<html></html>",
        &format!("[{good}]"),
        &format!("{good}{good}"),
        &format!("{good} x"),
        &format!("{good},"),
        &format!("\u{feff}{good}"),
        &good.replace("\"messages\"", "messages"),
        &good.replace('"', "'"),
        &good.replace("}]}", "}],}"),
        &written(r#""Hi""#, r#","n":01"#),
        &written(r#""Hi""#, r#","temperature":NaN"#),
        &written(r#""Hi""#, r#","x":truE"#),
        // The missing bracket is reported before the wrong type.
        &written("5", ",").replace("}]", "}"),
    ] {
        gateway.refuses_text(body, None).await;
    }
    gateway.chat_text(good).await.assert_ok();
}

#[tokio::test]
async fn white_space_around_the_object_is_accepted() {
    let gateway = TestGateway::start().await;
    let body = format!("\r\n\t {}\n\n", written("\"Hi\"", ""));
    gateway.chat_text(body).await.assert_ok();
}

#[tokio::test]
async fn the_content_type_is_ignored() {
    let gateway = TestGateway::start().await;
    for content_type in [
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/json; charset=latin1",
        "multipart/form-data",
    ] {
        let request = gateway
            .request(Method::POST, "/v1/chat/completions")
            .header("content-type", content_type)
            .body(written("\"Hi\"", ""));
        answer(request).await.assert_ok();
    }
}

#[tokio::test]
async fn invalid_utf8_is_refused_anywhere_in_the_body() {
    let gateway = TestGateway::start().await;
    for bad in [
        &b"\xff"[..],
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xf8\x88\x80\x80\x80",
    ] {
        for place in [
            written(r#""@""#, ""),
            written(r#"[{"type":"text","text":"@"}]"#, ""),
            written(r#""Hi""#, r#","user":"@""#),
            written(r#""Hi""#, r#","stop":"@""#),
            written(r#""Hi""#, r#","unknown":"@""#),
            written(r#""Hi""#, r#","@":1"#),
            written(r#""Hi""#, r#","thinking":{"a":"@"}"#),
        ] {
            let (before, after) = place.split_once('@').unwrap();
            let body = [before.as_bytes(), bad, after.as_bytes()].concat();
            gateway.refuses_text(body, None).await;
        }
    }
}

#[tokio::test]
async fn an_unpaired_surrogate_is_refused() {
    let gateway = TestGateway::start().await;
    for half in [
        r"\ud83d",
        r"\ude00",
        r"\ud83dx",
        r"\ude00\ud83d",
        r"\uD83D\n",
    ] {
        let content = written(&format!(r#""{half}""#), "");
        gateway
            .refuses_text(content, Some("messages[0].content"))
            .await;
        let part = written(&format!(r#"[{{"type":"text","text":"{half}"}}]"#), "");
        gateway
            .refuses_text(part, Some("messages[0].content"))
            .await;
        let stop = written(r#""Hi""#, &format!(r#","stop":"{half}""#));
        gateway.refuses_text(stop, Some("stop")).await;
    }
    let whole = written(r#""\ud83d\ude00 \uD83D\uDE00""#, "");
    gateway.chat_text(whole).await.assert_ok();
    let sent = gateway.upstream.last_body();
    assert_eq!(sent["messages"][0]["content"], "😀 😀");
}

#[tokio::test]
async fn an_escaped_nul_is_accepted() {
    let gateway = TestGateway::start().await;
    gateway
        .chat_text(written(r#""a\u0000b""#, ""))
        .await
        .assert_ok();
    let sent = gateway.upstream.last_body();
    assert_eq!(sent["messages"][0]["content"], "a\u{0}b");
    gateway.refuses_text(written("\"a\u{0}b\"", ""), None).await;
    gateway.refuses_text(written("\"a\nb\"", ""), None).await;
    gateway.refuses_text("\u{0}", None).await;
}

#[tokio::test]
async fn too_deep_nesting_is_refused_anywhere_in_the_body() {
    let gateway = TestGateway::start().await;
    let lists = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    let open = "[".repeat(100_000);
    for deep in [&lists, &objects, &open] {
        for body in [
            deep.clone(),
            written(deep, ""),
            written(r#""Hi""#, &format!(r#","unknown":{deep}"#)),
            written(r#""Hi""#, &format!(r#","thinking":{{"a":{deep}}}"#)),
            written(r#""Hi""#, &format!(r#","temperature":{deep}"#)),
            written(r#""Hi""#, &format!(r#","web_search_options":{deep}"#)),
            written(
                r#""Hi""#,
                &format!(
                    r#","tools":[{{"type":"function","function":{{"name":"f","parameters":{{"a":{deep}}}}}}}]"#
                ),
            ),
            written(
                r#""Hi""#,
                &format!(
                    r#","response_format":{{"type":"json_schema","json_schema":{{"name":"n","schema":{{"a":{deep}}}}}}}"#
                ),
            ),
        ] {
            gateway.refuses_text(body, None).await;
        }
    }
    let brackets = written(&format!("\"{open}\""), "");
    gateway.chat_text(brackets).await.assert_ok();
}

#[tokio::test]
async fn a_field_of_the_wrong_type_is_named() {
    let gateway = TestGateway::start().await;
    let (text, number, list, object, flag) = (
        json!("x"),
        json!(5),
        json!([1]),
        json!({ "a": 1 }),
        json!(true),
    );
    for (field, wrong) in [
        ("model", vec![&number, &list, &object, &flag]),
        ("messages", vec![&text, &number, &object, &flag]),
        ("stream", vec![&text, &number, &list, &object]),
        ("stream_options", vec![&text, &number, &flag]),
        ("max_tokens", vec![&text, &list, &object, &flag]),
        ("max_completion_tokens", vec![&text, &list, &object, &flag]),
        ("temperature", vec![&text, &list, &object, &flag]),
        ("top_p", vec![&text, &list, &object, &flag]),
        ("top_k", vec![&text, &list, &object, &flag]),
        ("stop", vec![&number, &list, &object, &flag]),
        ("tools", vec![&text, &number, &object, &flag]),
        ("tool_choice", vec![&text, &number, &list, &object, &flag]),
        ("response_format", vec![&text, &number, &flag]),
        ("seed", vec![&text, &list, &object, &flag]),
        ("frequency_penalty", vec![&text, &list, &object, &flag]),
        ("presence_penalty", vec![&text, &list, &object, &flag]),
        ("logit_bias", vec![&text, &number, &list, &flag]),
        ("logprobs", vec![&text, &number, &list, &object]),
        ("top_logprobs", vec![&text, &list, &object, &flag]),
        ("n", vec![&text, &list, &object, &flag]),
        ("parallel_tool_calls", vec![&text, &number, &list, &object]),
        ("user", vec![&number, &list, &object, &flag]),
        ("reasoning_effort", vec![&text, &number, &list, &flag]),
        ("thinking", vec![&text, &number, &list, &flag]),
        (
            "tool_execution",
            vec![&text, &number, &list, &object, &flag],
        ),
    ] {
        for value in wrong {
            let mut body = hello(MODEL);
            body[field] = value.clone();
            gateway.refuses(&body, field).await;
        }
    }
    let options = json!({ "stream_options": { "include_usage": "yes" } });
    gateway
        .refuses(&hello_with(MODEL, options), "stream_options.include_usage")
        .await;
    let huge = written(r#""Hi""#, r#","temperature":1e400"#);
    let answer = gateway.chat_text(huge).await;
    assert_eq!(answer.status, 400, "{:?}", answer.body);
}

#[tokio::test]
async fn a_model_must_be_named() {
    let gateway = TestGateway::start().await;
    for model in [json!(null), json!("")] {
        let mut body = hello(MODEL);
        body["model"] = model;
        gateway.refuses(&body, "model").await;
    }
    let messages = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    gateway.refuses(&messages, "model").await;
    gateway.refuses(&json!({}), "model").await;
}

/// Checks come in this order: key, route, shape, model, plan, values. Each case fails its own check and all later
/// ones.
#[tokio::test]
async fn of_several_mistakes_the_first_check_is_reported() {
    let gateway = TestGateway::start().await;
    let (_, free) = gateway.account(Plan::FREE).await;
    let key = Some(free.as_str());
    let chat = "/v1/chat/completions";
    let shapeless = json!({ "model": "nope", "messages": "x", "n": 0 });
    let unknown = hello_with("nope", json!({ "n": 0, "temperature": 9 }));
    let beyond = hello_with("svc-native-promax", json!({ "n": 0, "temperature": 9 }));
    let wrong_type = hello_with("svc-native-promax", json!({ "temperature": "hot" }));
    let dropped = hello_with("svc-flex-beta-3.6", json!({ "temperature": "hot", "n": 0 }));
    let wrong_value = hello_with(MODEL, json!({ "n": 0 }));
    let shape = (400, "invalid_request_error", None);
    let plan = (403, "tier_upgrade_required", Some("forbidden"));
    let cases = [
        (
            None,
            "/v1/nothing",
            &shapeless,
            (401, "authentication_error", Some("missing_api_key")),
        ),
        (
            Some("sk-svc-wrong"),
            chat,
            &shapeless,
            (401, "authentication_error", Some("invalid_api_key")),
        ),
        (
            key,
            "/v1/nothing",
            &shapeless,
            (404, "not_found", Some("route_not_found")),
        ),
        (
            key,
            "/v1/completions",
            &shapeless,
            (404, "not_found", Some("route_not_found")),
        ),
        (key, chat, &shapeless, shape),
        (
            key,
            chat,
            &unknown,
            (404, "invalid_request_error", Some("model_not_found")),
        ),
        (key, chat, &wrong_type, shape),
        (key, chat, &beyond, plan),
        (key, chat, &dropped, plan),
        (key, chat, &wrong_value, shape),
    ];
    for (key, path, body, expected) in cases {
        let mut request = gateway.client.post(gateway.url(path)).json(body);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let answer = answer(request).await;
        let error = answer.error();
        let found = (answer.status, error["type"].as_str().unwrap());
        let code = error["code"].as_str();
        assert_eq!((found.0, found.1, code), expected, "{path} {body}: {error}");
    }
    assert_eq!(gateway.upstream.calls(), 0);
}
