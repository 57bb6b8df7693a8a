//! §6 for coding agents: streams that end as they expect, requests for a WebSocket, and the simulator's calls.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    RawConnection, Step, TestGateway,
    agents::{codex, codex_with_catalog},
    gateway::{answer, hello},
    responses::{PATH, asking, two_words},
    upstream::{chunk, events, stream_head, usage_chunk},
};

/// A call that was cut off is not run: its item is incomplete, and so is the response.
#[tokio::test]
async fn a_call_that_was_cut_off_is_never_completed() {
    let gateway = TestGateway::start().await;
    for (name, arguments, text) in [
        ("apply_patch", r#"{"input":"*** Begin\"#, "*** Begin"),
        ("exec_command", r#"{"a":"l"#, r#"{"a":"l"#),
    ] {
        let call = json!({ "index": 0, "id": "c", "type": "function",
                           "function": { "name": name, "arguments": arguments } });
        let chunks = [
            chunk(json!({ "tool_calls": [call] }), None),
            chunk(json!({ "content": "Well" }), None),
            chunk(json!({}), Some("length")),
            usage_chunk(11, 3),
        ];
        gateway.upstream.answer_chunks(&chunks);
        let response = gateway.events(&codex_with_catalog("Hi")).await.finished();
        assert_eq!(response["status"], "incomplete");
        let item = &response["output"][0];
        assert_eq!(item["status"], "incomplete", "{item}");
        let found = item.get("input").or(item.get("arguments")).unwrap();
        assert_eq!(*found, text);
    }
}

/// Whatever a provider does after the first word, the client gets a last event.
#[tokio::test]
async fn no_stream_ends_without_a_last_event() {
    let gateway = TestGateway::start().await;
    let begun = events(&two_words()[..3]).replace("data: [DONE]\n\n", "");
    for last in [
        Step::Close,
        Step::Reset,
        Step::Send(b"data: [DONE]\n\n".to_vec()),
        Step::Send(b"data: nonsense\n\n".to_vec()),
        Step::Send(b"data: {\"error\":{\"message\":\"broken\"}}\n\n".to_vec()),
    ] {
        let steps = || {
            vec![
                Step::Send(stream_head()),
                Step::Send(begun.clone().into()),
                last.clone(),
                Step::Close,
            ]
        };
        gateway.upstream.play(steps());
        let stream = gateway.events(&codex("Hi")).await;
        let kinds = stream.kinds();
        assert_eq!(kinds[kinds.len() - 2..], ["error", "failed"], "{last:?}");
        gateway.upstream.play(steps());
        let mut body = hello("svc-native-fast");
        body["stream"] = true.into();
        let stream = gateway.stream(&body).await;
        let error = stream.error().expect("an error event");
        assert_eq!(error["code"], "stream_interrupted", "{last:?}");
    }
}

/// The simulator sees what a provider sees: the names of functions.
#[tokio::test]
async fn the_simulator_calls_tools_of_every_kind() {
    let gateway = TestGateway::start_with(
        "[providers.play]\nkind = \"simulator\"\n\
         [[deployments]]\nmodel = \"svc-native-light\"\nprovider = \"play\"\n",
    )
    .await;
    let ask = async |prompt: &str| {
        let mut body = codex_with_catalog(prompt);
        body["model"] = "svc-native-light".into();
        gateway.events(&body).await.finished()["output"][0].clone()
    };
    let item = ask(r#"[[sim tool=mcp__tiny__add {"a":1,"b":2}]]"#).await;
    assert_eq!(item["type"], "function_call");
    assert_eq!(
        (&item["namespace"], &item["name"]),
        (&json!("mcp__tiny"), &json!("add"))
    );
    assert_eq!(item["arguments"], r#"{"a":1,"b":2}"#);
    let item = ask(r#"[[sim tool=apply_patch {"input":"*** Begin Patch\n+\"ü\""}]]"#).await;
    assert_eq!(item["type"], "custom_tool_call");
    assert_eq!(item["name"], "apply_patch");
    assert_eq!(item["input"], "*** Begin Patch\n+\"ü\"");
}

/// The provider is not asked if no target of a hybrid has the context: the error is the same as a provider's.
#[tokio::test]
async fn a_conversation_that_no_target_can_hold_is_the_callers_to_shorten() {
    let gateway = TestGateway::start_set(&[("SERVER__MAX_BODY_BYTES", "33554432")]).await;
    let body = json!({
        "model": "svc-hybrid-cost", "input": "word ".repeat(1_200_000), "tool_execution": "passthrough",
    });
    let refused = gateway.respond(&body).await;
    let code = Some("context_length_exceeded");
    refused.assert_error(400, "invalid_request_error", code, Some("messages"));
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn a_websocket_is_refused_so_that_clients_use_http() {
    let gateway = TestGateway::start().await;
    let asked = async |key: Option<&str>| {
        let key = key.map_or(String::new(), |key| {
            format!("authorization: Bearer {key}\r\n")
        });
        let mut connection = RawConnection::open(gateway.public).await;
        let request = format!(
            "GET {PATH} HTTP/1.1\r\nhost: gateway\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{key}\r\n"
        );
        connection.send(request).await;
        connection.until("}}", 1).await;
        String::from_utf8(connection.read(16 << 10).await).unwrap()
    };
    let refused = asked(Some(&gateway.key)).await;
    assert!(refused.starts_with("HTTP/1.1 426 "), "{refused}");
    assert!(
        refused.contains("\"code\":\"websocket_not_served\""),
        "{refused}"
    );
    assert!(refused.contains("POST /v1/responses"), "{refused}");
    let refused = asked(None).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let other = answer(gateway.request(Method::GET, PATH)).await;
    other.assert_error(404, "not_found", Some("route_not_found"), None);
}

#[tokio::test]
async fn an_overlong_conversation_is_the_callers_to_shorten() {
    let gateway = TestGateway::start().await;
    for (status, body) in [
        (
            400,
            json!({ "error": { "code": "context_length_exceeded", "message": "Too long." } }),
        ),
        (
            400,
            json!({ "error": { "message": "prompt is too long: 9 tokens > 8 maximum" } }),
        ),
        (
            413,
            json!({ "error": { "message": "This exceeds the context window." } }),
        ),
    ] {
        gateway.upstream.answer_json(status, &body);
        let stream = gateway.open_events(&codex("Hi")).await;
        assert_eq!(stream.status(), 400);
        for refused in [
            gateway.respond(&asking(json!({}))).await,
            gateway.chat(&hello("svc-native-fast")).await,
        ] {
            let code = Some("context_length_exceeded");
            refused.assert_error(400, "invalid_request_error", code, Some("messages"));
            let message = refused.error()["message"].as_str().unwrap();
            assert!(message.starts_with("Shorten the conversation"), "{message}");
            assert!(message.to_lowercase().contains("maximum context length"));
        }
    }
}
