//! §4.2 and §6 for streamed responses: events in the order that official clients need.

use serde_json::{Value, json};

use crate::support::{
    Gate, LedgerView, RawConnection, Step, TestGateway,
    gateway::until,
    ledger_view::MODEL as PRICED,
    responses::{Events, PATH, asking, assert_not_found, function, two_words},
    upstream::{chunk, events, stream_head, usage_chunk},
};

async fn streamed(gateway: &TestGateway, chunks: &[Value]) -> Events {
    gateway.upstream.answer_chunks(chunks);
    gateway.events(&asking(json!({}))).await
}

fn call(slot: u32, id: Option<&str>, arguments: &str) -> Value {
    let mut fragment = json!({ "index": slot, "function": { "arguments": arguments } });
    if let Some(id) = id {
        fragment["id"] = id.into();
        fragment["type"] = "function".into();
        fragment["function"]["name"] = format!("{id}_name").into();
    }
    chunk(json!({ "tool_calls": [fragment] }), None)
}

const MESSAGE: [&str; 6] = [
    "output_item.added",
    "content_part.added",
    "output_text.delta",
    "output_text.done",
    "content_part.done",
    "output_item.done",
];
const CALL: [&str; 4] = [
    "output_item.added",
    "function_call_arguments.delta",
    "function_call_arguments.done",
    "output_item.done",
];

/// The event types of a whole stream with these items, each with one delta.
fn kinds(items: &[&[&str]], last: &str) -> Vec<String> {
    let items = items.concat();
    let all = [&["created", "in_progress"], &*items, &[last]].concat();
    all.into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn text_events_come_in_the_order_that_clients_need() {
    let gateway = TestGateway::start().await;
    let stream = streamed(&gateway, &two_words()).await;
    let mut expected = kinds(&[&MESSAGE], "completed");
    expected.insert(5, "output_text.delta".into());
    assert_eq!(stream.kinds(), expected);
    let response = stream.finished();
    assert_eq!(response["status"], "completed");
    let said = &response["output"][0]["content"][0]["text"];
    assert_eq!(*said, "Grüß dich 😀");
    assert_eq!(response["usage"]["total_tokens"], 14);
    for event in stream.all() {
        let needs: &[&str] = match event["type"].as_str().unwrap() {
            "response.output_item.added" | "response.output_item.done" => &["output_index", "item"],
            "response.content_part.added" | "response.content_part.done" => {
                &["item_id", "output_index", "content_index", "part"]
            }
            "response.output_text.delta" => &[
                "item_id",
                "output_index",
                "content_index",
                "delta",
                "logprobs",
            ],
            "response.output_text.done" => &[
                "item_id",
                "output_index",
                "content_index",
                "text",
                "logprobs",
            ],
            _ => &["response"],
        };
        for key in needs {
            assert!(event.get(key).is_some(), "{key} in {event}");
        }
        assert_eq!(event.as_object().unwrap().len(), needs.len() + 2, "{event}");
    }
    assert!(!stream.text.contains("vendor") && !stream.text.contains("upstream-id"));
    // The streamed response equals the stored one.
    let id = response["id"].as_str().unwrap();
    assert_eq!(*gateway.shown(id).await.assert_ok(), response);
}

#[tokio::test]
async fn calls_are_streamed_one_after_the_other() {
    let gateway = TestGateway::start().await;
    let finish = [chunk(json!({}), Some("tool_calls")), usage_chunk(11, 3)];
    let said = chunk(
        json!({ "role": "assistant", "content": "Let me see." }),
        None,
    );
    let (a, b) = (call(0, Some("a"), "{\"x\":1}"), call(1, Some("b"), "{}"));
    for (begun, items, told) in [
        (vec![a.clone()], kinds(&[&CALL], "completed"), 1),
        (
            vec![said, a.clone(), b.clone()],
            kinds(&[&MESSAGE, &CALL, &CALL], "completed"),
            3,
        ),
        (
            // Interleaved fragments of two calls.
            vec![
                call(0, Some("a"), ""),
                call(1, Some("b"), "{}"),
                call(0, None, "{\"x\":1}"),
            ],
            kinds(&[&CALL, &CALL], "completed"),
            2,
        ),
    ] {
        gateway
            .upstream
            .answer_chunks(&[begun, finish.to_vec()].concat());
        let body = asking(json!({ "tools": [function("a_name"), function("b_name")] }));
        let stream = gateway.events(&body).await;
        let mut found = stream.kinds();
        // Empty fragments may be sent or not.
        found.dedup();
        assert_eq!(found, items);
        let response = stream.finished();
        let output = response["output"].as_array().unwrap();
        assert_eq!(output.len(), told);
        let first = output.iter().find(|item| item["type"] == "function_call");
        let first = first.unwrap();
        assert_eq!(first["call_id"], "a");
        assert_eq!(first["name"], "a_name");
        assert_eq!(first["arguments"], "{\"x\":1}");
        assert_ne!(first["id"], first["call_id"]);
    }
}

/// The continuation still has one assistant turn.
#[tokio::test]
async fn text_in_the_middle_of_a_call_does_not_split_it() {
    let gateway = TestGateway::start().await;
    let said = |text: &str| chunk(json!({ "content": text }), None);
    gateway.upstream.answer_chunks(&[
        call(0, Some("a"), "{\"x\""),
        said("One "),
        call(0, None, ":1}"),
        said("moment."),
        chunk(json!({}), Some("tool_calls")),
        usage_chunk(11, 3),
    ]);
    let tools = json!({ "tools": [function("a_name")] });
    let response = gateway.events(&asking(tools)).await.finished();
    assert_eq!(response["output"][0]["arguments"], "{\"x\":1}");
    assert_eq!(response["output"][1]["content"][0]["text"], "One moment.");
    gateway
        .upstream
        .answer_json(200, &crate::support::upstream::completion("Done"));
    let output = json!([{ "type": "function_call_output", "call_id": "a", "output": "1" }]);
    let next = json!({ "previous_response_id": response["id"], "input": output });
    let sent = gateway.forwards_response(&asking(next)).await;
    assert_eq!(sent["messages"][1]["content"], "One moment.");
    assert_eq!(sent["messages"][1]["tool_calls"][0]["id"], "a");
    assert_eq!(sent["messages"][2]["tool_call_id"], "a");
}

#[tokio::test]
async fn a_stream_that_reached_a_token_limit_is_incomplete() {
    let gateway = TestGateway::start().await;
    for (finish, why) in [
        ("length", "max_output_tokens"),
        ("content_filter", "content_filter"),
    ] {
        let mut chunks = two_words();
        chunks[3] = chunk(json!({}), Some(finish));
        let stream = streamed(&gateway, &chunks).await;
        assert_eq!(stream.kinds().last().unwrap(), "incomplete");
        let response = stream.finished();
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"], json!({ "reason": why }));
        assert_eq!(response["output"][0]["status"], "incomplete");
        assert_eq!(response["completed_at"], Value::Null);
        let id = response["id"].as_str().unwrap();
        assert_eq!(*gateway.shown(id).await.assert_ok(), response);
    }
    let empty = [chunk(json!({}), Some("content_filter")), usage_chunk(11, 0)];
    let stream = streamed(&gateway, &empty).await;
    assert_eq!(stream.kinds(), kinds(&[], "incomplete"));
    assert_eq!(stream.finished()["output"], json!([]));
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_and_stores_nothing() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let begun = events(&two_words()[..3]).replace("data: [DONE]\n\n", "");
    let steps = |last: Step| {
        vec![
            Step::Send(stream_head()),
            Step::Send(begun.clone().into()),
            last,
        ]
    };
    let reported = "data: {\"error\":{\"message\":\"vendor-model-9 is overloaded\"}}\n\n";
    for (last, calls) in [
        (Step::Close, 1),
        (Step::Reset, 2),
        (Step::Send(reported.into()), 3),
        (Step::Pause(std::time::Duration::from_secs(30)), 4),
    ] {
        gateway.upstream.play(steps(last.clone()));
        let request = gateway.client.post(gateway.url(PATH));
        let request = request.bearer_auth(&customer.key);
        let body = asking(json!({ "model": PRICED, "stream": true, "max_output_tokens": 200 }));
        let response = request.json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let stream = Events {
            text: response.text().await.unwrap(),
        };
        assert!(!stream.text.contains("[DONE]"), "{last:?}");
        let all = stream.all();
        // Official clients raise the first of the two; others wait for the second.
        let [.., delta, error, failed] = &*all else {
            panic!("{}", stream.text);
        };
        assert_eq!(delta["type"], "response.output_text.delta");
        assert_eq!(error["type"], "error");
        assert_eq!(error["code"], "stream_interrupted");
        assert_eq!(error["param"], Value::Null);
        let message = error["message"].as_str().unwrap();
        assert_eq!(
            error["error"],
            json!({
                "message": message, "type": "upstream_stream_error", "code": "stream_interrupted",
                "param": null, "request_url": error["error"]["request_url"],
            })
        );
        assert!(error["error"]["request_url"].is_string());
        assert!(!stream.text.contains("vendor"), "{message}");
        assert_eq!(failed["type"], "response.failed");
        let (begun, failed) = (&all[0]["response"], &failed["response"]);
        for (key, value) in begun.as_object().unwrap() {
            match key.as_str() {
                "status" => assert_eq!(failed[key], "failed"),
                "store" => assert_eq!(failed[key], false),
                "error" => assert_eq!(
                    failed[key],
                    json!({
                        "code": "server_error", "message": message,
                        "request_url": error["error"]["request_url"],
                    })
                ),
                "output" => {
                    assert_eq!(failed[key][0]["content"][0]["text"], "Grüß dich 😀");
                    assert_eq!(failed[key][0]["status"], "incomplete");
                }
                _ => assert_eq!(failed[key], *value, "{key}"),
            }
        }
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::free(calls),
            "{last:?}"
        );
        let id = all[0]["response"]["id"].as_str().unwrap();
        let request = gateway.client.get(gateway.url(&format!("{PATH}/{id}")));
        let shown = crate::support::gateway::answer(request.bearer_auth(&customer.key)).await;
        assert_not_found(&shown);
    }
}

/// A client may continue a response as soon as it receives `response.completed`.
#[tokio::test]
async fn a_response_is_stored_before_its_last_event() {
    let gateway = TestGateway::start().await;
    for turn in 0..20 {
        gateway.upstream.answer_chunks(&two_words());
        let mut response = gateway.open_events(&asking(json!({}))).await;
        let mut text = String::new();
        while !text.contains("event: response.completed\n") {
            let more = response.chunk().await.unwrap().expect("more");
            text.push_str(&String::from_utf8_lossy(&more));
        }
        let (_, after) = text.split_once("\"response\":{\"id\":\"").unwrap();
        let (id, _) = after.split_once('"').unwrap();
        gateway.shown(id).await.assert_ok();
        let next = asking(json!({ "previous_response_id": id, "input": "And?" }));
        let next = gateway.events(&next).await.finished();
        assert_eq!(next["previous_response_id"], id, "turn {turn}");
        let sent = gateway.upstream.last_body();
        assert_eq!(sent["messages"][1]["content"], "Grüß dich 😀");
    }
}

#[tokio::test]
async fn a_response_whose_client_left_is_charged_and_stored() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, left) = (gateway.customer().await, Gate::default());
    let begun = events(&two_words()[..2]).replace("data: [DONE]\n\n", "");
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(begun.into()),
        Step::Until(left.clone()),
        Step::Send(events(&two_words()[2..]).into()),
        Step::Close,
    ]);
    let body = asking(json!({ "model": PRICED, "stream": true })).to_string();
    let mut connection = RawConnection::open(gateway.public).await;
    let request = format!(
        "POST {PATH} HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\n\r\n{body}",
        customer.key,
        body.len()
    );
    connection.send(request).await;
    connection
        .until("event: response.output_text.delta", 1)
        .await;
    let text = connection.read(16 << 10).await;
    let text = String::from_utf8_lossy(&text).into_owned();
    let (_, after) = text.split_once("\"response\":{\"id\":\"").unwrap();
    let (id, _) = after.split_once('"').unwrap();
    connection.hang_up().await;
    left.open();
    until("the call is over", || gateway.inside().tasks.is_empty()).await;
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
    let request = gateway.client.get(gateway.url(&format!("{PATH}/{id}")));
    let shown = crate::support::gateway::answer(request.bearer_auth(&customer.key)).await;
    let response = shown.assert_ok();
    assert_eq!(response["status"], "completed");
    let said = &response["output"][0]["content"][0]["text"];
    assert_eq!(*said, "Grüß dich 😀");
}

#[tokio::test]
async fn built_in_tools_finish_before_the_stream_begins() {
    let gateway = TestGateway::start().await;
    let arguments = r#"{"amount":"1","from":"ether","to":"gwei"}"#;
    let mut using = call(0, Some("u1"), arguments);
    using["choices"][0]["delta"]["tool_calls"][0]["function"]["name"] = "convert_units".into();
    let end = |reason: &str| [chunk(json!({}), Some(reason)), usage_chunk(11, 3)].to_vec();
    let first = [vec![using], end("tool_calls")].concat();
    let last = two_words();
    gateway.upstream.play_for_each(move |request| {
        let messages = request.body["messages"].as_array().unwrap();
        let is_first = messages.last().unwrap()["role"] == "user";
        let chunks = if is_first { &first } else { &last };
        vec![
            Step::Send(stream_head()),
            Step::Send(events(chunks).into()),
            Step::Close,
        ]
    });
    let body = asking(json!({ "model": "svc-basic", "max_output_tokens": 100 }));
    let stream = gateway.events(&body).await;
    let response = stream.finished();
    assert_eq!(gateway.upstream.calls(), 2);
    assert_eq!(response["tools"], json!([]));
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
    assert_eq!(response["usage"]["input_tokens"], 22);
    assert!(!stream.text.contains("convert_units"));
}
