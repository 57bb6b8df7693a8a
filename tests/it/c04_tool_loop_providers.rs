//! Built-in tools with the other provider adapters: the same loop in each API's format.

use serde_json::{Value, json};

use crate::support::{
    LedgerView, Step, TestGateway, anthropic,
    gateway::hello,
    gemini,
    ledger_view::MODEL,
    turns::{BUILT_IN, CONVERT, CONVERTED, Turn, usage},
    upstream::{response, stream_head},
};

fn whole(body: &Value) -> Turn {
    let bytes = response(200, "application/json", &body.to_string());
    Turn::plays(vec![Step::Send(bytes)])
}

fn streamed(events: String) -> Turn {
    let events = Step::Send(events.into_bytes());
    Turn::plays(vec![Step::Send(stream_head()), events, Step::Close])
}

fn arguments() -> Value {
    serde_json::from_str(CONVERT.2).unwrap()
}

/// Sends a request that takes two steps, of which the second is the last one allowed.
async fn ask(gateway: &TestGateway, stream: bool) -> (Value, Value) {
    let customer = gateway.customer().await;
    let reply = customer.send("other", &hello(MODEL), stream).await.unwrap();
    assert_eq!(reply.choices, [("Hello".into(), "stop".into())]);
    assert_eq!(reply.usage, usage(22, 6));
    assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));
    let steps = [
        "fake tool_calls 11+3",
        "convert_units done",
        "fake stop 11+3",
    ];
    assert_eq!(gateway.steps("other").await, steps);
    let received = gateway.upstream.received();
    assert_eq!(received.len(), 2);
    (received[0].body.clone(), received[1].body.clone())
}

async fn start(kind: &str) -> TestGateway {
    let kind = ("PROVIDERS__FAKE__KIND", kind);
    TestGateway::start_set(&[kind, ("TOOLS__MAX_STEPS", "2")]).await
}

fn anthropic_calls(stream: bool) -> Turn {
    let mut call = json!({ "type": "tool_use", "id": "toolu_1", "name": CONVERT.1, "input": {} });
    if !stream {
        call["input"] = arguments();
        let content = json!([anthropic::text("Let me see."), call]);
        return whole(&anthropic::message(content, "tool_use"));
    }
    let usage = json!({ "input_tokens": 11, "output_tokens": 1 });
    let (half, rest) = CONVERT.2.split_at(10);
    let json = |text: &str| json!({ "type": "input_json_delta", "partial_json": text });
    let text = anthropic::says("Let me see.");
    let events = [
        vec![anthropic::begun(usage)],
        anthropic::block(0, anthropic::text(""), &[text]),
        anthropic::block(1, call, &[json(half), json(rest)]),
        anthropic::ended("tool_use", json!({ "output_tokens": 3 })).to_vec(),
    ];
    streamed(anthropic::events(&events.concat()))
}

#[tokio::test]
async fn tool_results_are_sent_in_the_messages_api_format() {
    for stream in [false, true] {
        let gateway = start("anthropic").await;
        let answers = if stream {
            streamed(anthropic::events(&anthropic::hello_events()))
        } else {
            whole(&anthropic::message(
                json!([anthropic::text("Hello")]),
                "end_turn",
            ))
        };
        gateway
            .upstream
            .converse([anthropic_calls(stream), answers]);
        let (first, second) = ask(&gateway, stream).await;
        for body in [&first, &second] {
            let tools = body["tools"].as_array().unwrap().iter();
            let names: Vec<_> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
            assert_eq!(names, BUILT_IN);
        }
        assert_eq!(first.get("tool_choice"), None);
        assert_eq!(second["tool_choice"], json!({ "type": "none" }));
        let messages = second["messages"].as_array().unwrap();
        let [_, called, said] = messages.as_slice() else {
            panic!("question, call and result: {second}");
        };
        let call = json!({ "type": "tool_use", "id": "call_1", "name": CONVERT.1,
                           "input": arguments() });
        let content = json!([anthropic::text("Let me see."), call]);
        assert_eq!(called, &json!({ "role": "assistant", "content": content }));
        assert_eq!(said["role"], "user");
        assert_eq!(said["content"][0]["type"], "tool_result");
        assert_eq!(said["content"][0]["tool_use_id"], "call_1");
        let text = said["content"][0]["content"].to_string();
        assert!(text.contains("1000000000"), "{text}");
    }
}

#[tokio::test]
async fn tool_results_are_sent_in_the_gemini_format() {
    for stream in [false, true] {
        let gateway = start("gemini").await;
        let call = json!({ "name": CONVERT.1, "args": arguments() });
        let parts = json!([{ "text": "Let me see." },
                           { "functionCall": call, "thoughtSignature": "c2lnbmVk" }]);
        let turns = [
            gemini::generated(parts, Some("STOP")),
            gemini::said("Hello"),
        ];
        let turns = turns.map(|body| {
            if stream {
                streamed(gemini::events(&[body]))
            } else {
                whole(&body)
            }
        });
        gateway.upstream.converse(turns);
        let (first, second) = ask(&gateway, stream).await;
        for body in [&first, &second] {
            let tools = body["tools"][0]["functionDeclarations"].as_array();
            let tools = tools.unwrap().iter();
            let names: Vec<_> = tools.map(|tool| tool["name"].as_str().unwrap()).collect();
            assert_eq!(names, BUILT_IN);
        }
        assert_eq!(first.get("toolConfig"), None);
        assert_eq!(
            second["toolConfig"]["functionCallingConfig"]["mode"],
            "NONE"
        );
        let contents = second["contents"].as_array().unwrap();
        let [_, called, said] = contents.as_slice() else {
            panic!("question, call and result: {second}");
        };
        assert_eq!(called["parts"][0]["text"], "Let me see.");
        assert_eq!(called["parts"][1]["functionCall"]["args"], arguments());
        assert_eq!(called["parts"][1]["thoughtSignature"], "c2lnbmVk");
        let result = &said["parts"][0]["functionResponse"];
        assert_eq!(result["name"], CONVERT.1);
        let converted: Value = serde_json::from_str(CONVERTED).unwrap();
        assert_eq!(result["response"], converted);
    }
}
