//! §6 and §7 for coding agents: refusals before a stream, events during silence, and streams that break off.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Answer, Gate, Plan, Serving, Step, TestGateway,
    agents::{codex, codex_with_catalog, user},
    ledger_view::MODEL as PRICED,
    responses::{Events, PATH, asking, two_words},
    upstream::{chunk, events, stream_head},
};

/// The refusal of a streamed request: an ordinary response, and short.
async fn refused(gateway: &TestGateway, key: &str, more: Value) -> Answer {
    let mut body = codex("Hi");
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    let refused = gateway.respond_as(key, &body).await;
    assert_eq!(refused.headers["content-type"], "application/json");
    let bytes = refused.body.to_string().len();
    assert!(bytes < 1_000, "{bytes} bytes: {}", refused.body);
    refused
}

/// Agents show these messages to a person.
#[tokio::test]
async fn a_refused_stream_says_first_what_to_do() {
    let gateway = TestGateway::start().await;
    let (_, free) = gateway.account(Plan::FREE).await;
    let poor = gateway.customer_with("0.000001", 10).await;
    let busy = gateway.customer_with("1000", 1).await;
    let first = asking(json!({ "model": PRICED }));
    gateway.respond_as(&busy.key, &first).await.assert_ok();
    for (key, more, status, begins) in [
        ("sk-svc-unknown", json!({}), 401, "Use another API key"),
        (&*poor.key, json!({ "model": PRICED }), 402, "Top up"),
        (&*free, json!({ "model": "svc-pro" }), 403, "Upgrade to"),
        (
            &*gateway.key,
            json!({ "model": "nope" }),
            404,
            "Use a model",
        ),
        (
            &*gateway.key,
            json!({ "previous_response_id": "resp_none" }),
            404,
            "Send the whole conversation",
        ),
        (&*busy.key, json!({ "model": PRICED }), 429, "Retry after"),
    ] {
        let refused = refused(&gateway, key, more).await;
        assert_eq!(refused.status, status, "{}", refused.body);
        let message = refused.error()["message"].as_str().unwrap();
        assert!(message.starts_with(begins), "{message}");
        let wait = refused.headers.get("retry-after");
        assert_eq!(wait.is_some(), status == 429, "{status}");
        let wait = wait.map_or(1, |wait| wait.to_str().unwrap().parse().unwrap());
        assert!((1..=60_u64).contains(&wait), "{wait}");
    }
}

/// Codex runs a call when its item is done, so the item of a call that was cut off never is.
#[tokio::test]
async fn a_call_is_not_done_if_its_stream_breaks_off() {
    let gateway = TestGateway::start().await;
    for (name, arguments) in [
        ("apply_patch", r#"{"input":"*** Begin"#),
        ("mcp__tiny__add", r#"{"a":"#),
    ] {
        let call = json!({ "index": 0, "id": "c", "type": "function",
                           "function": { "name": name, "arguments": arguments } });
        let begun = events(&[chunk(json!({ "tool_calls": [call] }), None)]);
        let begun = begun.replace("data: [DONE]\n\n", "");
        for last in [Step::Close, Step::Reset] {
            gateway.upstream.play(vec![
                Step::Send(stream_head()),
                Step::Send(begun.clone().into()),
                last,
            ]);
            let stream = gateway.events(&codex_with_catalog("Hi")).await;
            assert!(!stream.text.contains("[DONE]"));
            let kinds = stream.kinds();
            assert!(kinds.contains(&"output_item.added".to_owned()));
            let is_done = |kind: &String| kind.rsplit('.').next() == Some("done");
            assert!(!kinds.iter().any(is_done));
            let all = stream.all();
            let [begun, .., error, failed] = &*all else {
                panic!("{}", stream.text);
            };
            assert_eq!(error["type"], "error");
            assert_eq!(failed["type"], "response.failed");
            let (begun, failed) = (&begun["response"], &failed["response"]);
            assert_eq!(failed["id"], begun["id"]);
            assert_eq!(failed["tools"], begun["tools"]);
            assert_eq!(failed["status"], "failed");
            assert_eq!(failed["error"]["code"], "server_error");
            assert_eq!(failed["error"]["message"], error["message"]);
            assert_eq!(failed["output"][0]["status"], "incomplete");
        }
    }
}

/// A provider that says nothing for a while: `begun` comes before that, `rest` after it.
fn silent_after(gateway: &TestGateway, begun: String, rest: String) -> Gate {
    let gate = Gate::default();
    gateway.upstream.play(vec![
        Step::Send(stream_head()),
        Step::Send(begun.into()),
        Step::Until(gate.clone()),
        Step::Send(rest.into()),
        Step::Close,
    ]);
    gate
}

/// Some clients give up after five minutes without an event, and do not count comments.
#[tokio::test]
async fn a_silent_provider_is_bridged_by_events() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let words = two_words();
    let begun = events(&words[..2]).replace("data: [DONE]\n\n", "");
    let gate = silent_after(&gateway, begun, events(&words[2..]));
    let mut response = gateway.open_events(&codex("Hi")).await;
    let mut bytes: Vec<u8> = Vec::new();
    let until_event = async {
        while !String::from_utf8_lossy(&bytes).contains("event: keepalive\n") {
            let more = response.chunk().await.unwrap();
            bytes.extend_from_slice(&more.expect("the stream goes on"));
        }
    };
    let waiting = tokio::time::timeout(Duration::from_mins(1), until_event).await;
    waiting.expect("an event within a minute");
    gate.open();
    while let Some(more) = response.chunk().await.unwrap() {
        bytes.extend_from_slice(&more);
    }
    let text = String::from_utf8(bytes).unwrap();
    let stream = Events {
        text: text.replace(": keep-alive\n\n", ""),
    };
    assert!(stream.is_done(), "{text}");
    // Asserts the numbers of all events, too.
    let last = stream.all().pop().unwrap();
    assert_eq!(last["type"], "response.completed");
    let said = &last["response"]["output"][0]["content"][0]["text"];
    assert_eq!(*said, "Grüß dich 😀");
}

/// A model that thinks first is silent from the start.
#[tokio::test]
async fn a_stream_begins_though_the_provider_is_silent() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let gate = silent_after(&gateway, String::new(), events(&two_words()));
    let body = codex("Hi");
    let opening = gateway.open_events(&body);
    let opened = tokio::time::timeout(Duration::from_mins(1), opening).await;
    let mut response = opened.expect("the stream begins within a minute");
    assert_eq!(response.status(), 200);
    let first = response.chunk().await.unwrap().expect("an event");
    gate.open();
    let mut bytes = first.to_vec();
    while let Some(more) = response.chunk().await.unwrap() {
        bytes.extend_from_slice(&more);
    }
    let text = String::from_utf8(bytes).unwrap();
    let response = Events { text }.finished();
    assert_eq!(response["status"], "completed");
}

#[tokio::test]
async fn a_stream_has_its_last_events_when_the_grace_period_ends() {
    let serving = Serving::start(1).await;
    let body = codex("[[sim tokens=4000 delay_ms=50]]");
    let url = format!("http://{}{PATH}", serving.public);
    let request = serving.client.post(url).bearer_auth(&serving.key);
    let mut response = request.json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let first = response.chunk().await.unwrap().expect("the stream began");
    serving.process.signal("TERM");
    let mut bytes = first.to_vec();
    while let Some(more) = response.chunk().await.expect("a stream ends cleanly") {
        bytes.extend_from_slice(&more);
    }
    let text = String::from_utf8(bytes).unwrap();
    let stream = Events { text };
    assert!(!stream.text.contains("[DONE]"));
    let kinds = stream.kinds();
    assert_eq!(kinds[kinds.len() - 2..], ["error", "failed"]);
    let ended = serving.process.ended().await;
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

/// A form of a field that no served item has is not what is wrong with an item that is not served.
#[tokio::test]
async fn an_item_that_is_not_served_is_refused_by_name_whatever_it_holds() {
    let gateway = TestGateway::start().await;
    let screenshot =
        json!({ "type": "computer_screenshot", "image_url": "data:image/png;base64," });
    for item in [
        json!({ "type": "computer_call_output", "call_id": "c", "output": screenshot }),
        json!({ "type": "unheard_of", "output": { "a": [1] } }),
    ] {
        let body = asking(json!({ "input": [user("Hi"), item] }));
        gateway.refuses_response(&body, "input[1].type").await;
    }
    // In an item that is served, the form is what is wrong.
    let output = json!({ "type": "function_call_output", "call_id": "c", "output": screenshot });
    let body = asking(json!({ "input": [user("Hi"), output] }));
    gateway.refuses_response(&body, "input[1].output").await;
}
