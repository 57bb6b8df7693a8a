//! §4.2 and §2.10: stored responses, and requests that continue them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Plan, TestGateway,
    gateway::answer,
    refused::request_id,
    responses::{PATH, asking, assert_not_found, calling, function, tool_call, two_words},
    upstream::completion,
};

fn next(id: &str, input: Value) -> Value {
    asking(json!({ "previous_response_id": id, "input": input }))
}

fn output(call_id: &str, output: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call_id, "output": output })
}

#[tokio::test]
async fn each_turn_sends_the_whole_conversation_and_only_the_conversation() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_json(200, &completion("One."));
    let more = json!({
        "input": "First", "instructions": "Be brief.", "tools": [function("f")],
        "temperature": 0.5, "metadata": { "turn": "1" },
    });
    let first = gateway.response_id(&asking(more)).await;
    gateway.upstream.answer_json(200, &completion("Two."));
    let second = gateway.respond(&next(&first, json!("Second"))).await;
    let echoed = second.assert_ok();
    assert_eq!(echoed["previous_response_id"], first);
    assert_eq!(echoed["instructions"], Value::Null, "not inherited");
    assert_eq!(echoed["tools"], json!([]));
    assert_eq!(echoed["metadata"], json!({}));
    assert_eq!(echoed["temperature"], 1.0);
    let sent = gateway.upstream.last_body();
    assert_eq!(sent.get("tools"), None);
    assert_eq!(sent.get("temperature"), None);
    let conversation = json!([
        { "role": "user", "content": "First" }, { "role": "assistant", "content": "One." },
        { "role": "user", "content": "Second" },
    ]);
    assert_eq!(sent["messages"], conversation);
    let mut third = next(
        echoed["id"].as_str().unwrap(),
        json!([{ "role": "user", "content": "Third" }]),
    );
    third["instructions"] = "Be kind.".into();
    let sent = gateway.forwards_response(&third).await;
    assert_eq!(
        sent["messages"],
        json!([
            { "role": "system", "content": "Be kind." },
            { "role": "user", "content": "First" }, { "role": "assistant", "content": "One." },
            { "role": "user", "content": "Second" }, { "role": "assistant", "content": "Two." },
            { "role": "user", "content": "Third" },
        ])
    );
    // Each response is stored with its whole conversation: the first can be deleted, and then not be continued.
    gateway.deleted(&first).await.assert_ok();
    assert_not_found(&gateway.respond(&next(&first, json!("x"))).await);
    let again = next(echoed["id"].as_str().unwrap(), json!("Third"));
    let sent = gateway.forwards_response(&again).await;
    assert_eq!(sent["messages"].as_array().unwrap().len(), 5);
    // A continuation needs no input of its own.
    let bare = next(echoed["id"].as_str().unwrap(), Value::Null);
    let sent = gateway.forwards_response(&bare).await;
    assert_eq!(sent["messages"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_response_can_be_continued_twice() {
    let gateway = TestGateway::start().await;
    let trunk = gateway
        .response_id(&asking(json!({ "input": "Trunk" })))
        .await;
    for branch in ["left", "right"] {
        let sent = gateway
            .forwards_response(&next(&trunk, json!(branch)))
            .await;
        let messages = sent["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 3);
        assert_eq!(messages[2]["content"], branch);
    }
}

#[tokio::test]
async fn a_call_of_an_earlier_response_is_answered_in_the_next() {
    let gateway = TestGateway::start().await;
    let calls = [
        tool_call("c1", "f", "{\"a\":1}"),
        tool_call("c2", "f", "{}"),
    ];
    gateway.upstream.answer_json(200, &calling(&calls));
    let tools = json!([function("f")]);
    let first = gateway
        .response_id(&asking(json!({ "tools": tools })))
        .await;
    gateway.upstream.answer_json(200, &completion("Done"));
    let mut body = next(&first, json!([output("c2", "two"), output("c1", "one")]));
    body["tools"] = tools;
    let sent = gateway.forwards_response(&body).await;
    assert_eq!(
        sent["messages"],
        json!([
            { "role": "user", "content": "Hello" },
            { "role": "assistant", "content": null, "tool_calls": calls },
            { "role": "tool", "content": "two", "tool_call_id": "c2" },
            { "role": "tool", "content": "one", "tool_call_id": "c1" },
        ])
    );
    for input in [
        json!("Never mind."),
        json!([output("c1", "one")]),
        json!([output("c1", "one"), output("c3", "three")]),
    ] {
        gateway
            .refuses_response(&next(&first, input), "input")
            .await;
    }
}

/// The AI SDK sends every earlier assistant turn like this.
#[tokio::test]
async fn items_may_be_referenced_instead_of_sent() {
    let gateway = TestGateway::start().await;
    gateway.upstream.answer_json(200, &completion("One."));
    let first = gateway.respond(&asking(json!({ "input": "First" }))).await;
    let said = first.assert_ok()["output"][0]["id"].clone();
    gateway
        .upstream
        .answer_json(200, &calling(&[tool_call("c1", "f", "{}")]));
    let tools = json!([function("f")]);
    let second = gateway.respond(&asking(json!({ "tools": tools }))).await;
    let called = second.assert_ok()["output"][0]["id"].clone();
    assert!(called.as_str().unwrap().starts_with("fc_"));
    gateway.upstream.answer_json(200, &completion("Done"));
    let input = json!([
        { "role": "user", "content": "First" },
        { "type": "item_reference", "id": said },
        { "role": "user", "content": "Second" },
        { "id": called },
        output("c1", "1"),
    ]);
    let sent = gateway
        .forwards_response(&asking(json!({ "input": input })))
        .await;
    assert_eq!(
        sent["messages"],
        json!([
            { "role": "user", "content": "First" }, { "role": "assistant", "content": "One." },
            { "role": "user", "content": "Second" },
            { "role": "assistant", "content": null, "tool_calls": [tool_call("c1", "f", "{}")] },
            { "role": "tool", "content": "1", "tool_call_id": "c1" },
        ])
    );
}

/// A few bytes must not be expanded to a long text many times.
#[tokio::test]
async fn an_item_is_referenced_at_most_once() {
    let gateway = TestGateway::start().await;
    let first = gateway.respond(&asking(json!({}))).await;
    let item = json!({ "type": "item_reference", "id": first.assert_ok()["output"][0]["id"] });
    let user = json!({ "role": "user", "content": "Hi" });
    let body = asking(json!({ "input": [item, user, item] }));
    gateway.refuses_response(&body, "input[2].id").await;
}

#[tokio::test]
async fn store_false_stores_nothing() {
    let gateway = TestGateway::start().await;
    let answer = gateway.respond(&asking(json!({ "store": false }))).await;
    let response = answer.assert_ok();
    assert_eq!(response["store"], false);
    let id = response["id"].as_str().unwrap();
    assert_not_found(&gateway.shown(id).await);
    assert_not_found(&gateway.deleted(id).await);
    assert_not_found(&gateway.respond(&next(id, json!("x"))).await);
    gateway.upstream.answer_chunks(&two_words());
    let streamed = gateway.events(&asking(json!({ "store": false }))).await;
    let streamed = streamed.finished();
    assert_eq!(streamed["store"], false);
    assert_not_found(&gateway.shown(streamed["id"].as_str().unwrap()).await);
    gateway.upstream.answer_json(200, &completion("Hi"));
    // An unstored response may continue a stored one.
    let kept = gateway.response_id(&asking(json!({}))).await;
    let mut body = next(&kept, json!("x"));
    body["store"] = false.into();
    gateway.respond(&body).await.assert_ok();
    gateway.shown(&kept).await.assert_ok();
}

#[tokio::test]
async fn an_owner_can_see_and_delete_stored_responses() {
    let gateway = TestGateway::start().await;
    let given = gateway
        .respond(&asking(json!({ "metadata": { "a": "1" } })))
        .await;
    let id = given.assert_ok()["id"].as_str().unwrap();
    for _ in 0..2 {
        let shown = gateway.shown(id).await;
        assert_eq!(*shown.assert_ok(), given.body);
        assert_eq!(shown.headers["content-type"], "application/json");
    }
    // Another key of the account is the same owner.
    let (_, second) = gateway.new_key(&gateway.account_id).await;
    let request = gateway.client.get(gateway.url(&format!("{PATH}/{id}")));
    answer(request.bearer_auth(second)).await.assert_ok();
    let streamed = gateway.get(&format!("{PATH}/{id}?stream=true")).await;
    streamed.assert_error(400, "invalid_request_error", None, Some("stream"));
    let deleted = gateway.deleted(id).await;
    let expected = json!({ "id": id, "object": "response", "deleted": true });
    assert_eq!(*deleted.assert_ok(), expected);
    assert_not_found(&gateway.shown(id).await);
    assert_not_found(&gateway.deleted(id).await);
}

/// A caller cannot distinguish another account's response from one that never existed.
#[tokio::test]
async fn foreign_unknown_and_deleted_responses_look_the_same() {
    let gateway = TestGateway::start().await;
    let (_, other) = gateway.account(Plan::MAX).await;
    let theirs = gateway.respond_as(&other, &asking(json!({}))).await;
    let theirs = theirs.assert_ok()["id"].as_str().unwrap().to_owned();
    let deleted = gateway.response_id(&asking(json!({}))).await;
    gateway.deleted(&deleted).await.assert_ok();
    let unknown = format!("resp_{}", "a".repeat(theirs.len() - 5));
    let calls = gateway.upstream.calls();
    let (mut bodies, mut headers) = (Vec::new(), Vec::new());
    for id in [&theirs, &deleted, &unknown] {
        let item = format!("msg_{}_0", id.strip_prefix("resp_").unwrap());
        let reference = json!([{ "type": "item_reference", "id": item }]);
        let streamed = json!({ "previous_response_id": id, "stream": true });
        let answers: [(&str, Answer); 5] = [
            (id, gateway.shown(id).await),
            (id, gateway.deleted(id).await),
            (id, gateway.respond(&next(id, json!("x"))).await),
            (id, gateway.respond(&asking(streamed)).await),
            (
                &item,
                gateway
                    .respond(&asking(json!({ "input": reference })))
                    .await,
            ),
        ];
        for (named, answer) in answers {
            assert_not_found(&answer);
            let body = answer.body.to_string();
            assert!(body.contains(named), "{body}");
            let body = body.replace(named, "ID");
            bodies.push(body.replace(request_id(&answer), "REQUEST"));
            let mut names: Vec<_> = answer.headers.keys().map(ToString::to_string).collect();
            names.sort_unstable();
            headers.push(names);
        }
    }
    bodies.dedup();
    headers.dedup();
    assert_eq!(
        (bodies.len(), headers.len()),
        (1, 1),
        "{bodies:?} {headers:?}"
    );
    assert_eq!(gateway.upstream.calls(), calls, "no provider got a request");
    // Its owner can still read it.
    let request = gateway.client.get(gateway.url(&format!("{PATH}/{theirs}")));
    answer(request.bearer_auth(&other)).await.assert_ok();
}

#[tokio::test]
async fn a_malformed_id_is_not_found() {
    let gateway = TestGateway::start().await;
    let own = gateway.response_id(&asking(json!({}))).await;
    let own = own.strip_prefix("resp_").unwrap();
    for id in [
        "",
        "x",
        "resp_",
        "resp_\u{0}",
        "resp_ü",
        "' OR 1=1 --",
        "%00",
        own,
    ] {
        assert_not_found(&gateway.respond(&next(id, json!("x"))).await);
    }
    assert_not_found(&gateway.shown("resp_%00").await);
    assert_not_found(&gateway.shown("%FF").await);
    assert_not_found(&gateway.deleted("resp_%C3%28").await);
    assert_not_found(&gateway.shown("%27%20OR%201%3D1").await);
    for item in [
        "x".to_owned(),
        "msg_x".into(),
        format!("msg_{own}_1"),
        format!("fc_{own}_0"),
        format!("msg_{own}_00"),
        format!("resp_{own}"),
        format!("rs_{own}_0"),
    ] {
        let input = json!([{ "type": "item_reference", "id": item }]);
        let refused = gateway.respond(&asking(json!({ "input": input }))).await;
        assert_not_found(&refused);
        assert!(refused.body.to_string().contains(&item));
    }
}

#[tokio::test]
async fn every_character_survives_being_stored() {
    let gateway = TestGateway::start().await;
    let text = "\u{0}\u{1}\u{7f} ü 😀 \u{202e}\u{feff} \" \\ </script> \r\n\t";
    gateway.upstream.answer_json(200, &completion(text));
    let more = json!({ "input": text, "metadata": { "a\u{0}": text } });
    let given = gateway.respond(&asking(more)).await;
    let id = given.assert_ok()["id"].as_str().unwrap();
    assert_eq!(given.body["output"][0]["content"][0]["text"], text);
    assert_eq!(*gateway.shown(id).await.assert_ok(), given.body);
    let sent = gateway.forwards_response(&next(id, json!(text))).await;
    for at in 0..3 {
        assert_eq!(sent["messages"][at]["content"], text, "message {at}");
    }
}

#[tokio::test]
async fn stored_responses_outlive_the_process() {
    let gateway = TestGateway::start().await;
    let given = gateway.respond(&asking(json!({ "input": "Before" }))).await;
    let id = given.assert_ok()["id"].as_str().unwrap().to_owned();
    let key = gateway.key.clone();
    let restarted = TestGateway::start_in(gateway.stop().await, "").await;
    let request = restarted.client.get(restarted.url(&format!("{PATH}/{id}")));
    let shown = answer(request.bearer_auth(&key)).await;
    assert_eq!(*shown.assert_ok(), given.body);
    let going_on = restarted.respond_as(&key, &next(&id, json!("After"))).await;
    going_on.assert_ok();
    let sent = restarted.upstream.last_body();
    assert_eq!(sent["messages"][0]["content"], "Before");
    assert_not_found(&restarted.shown(&id).await); // the default key is of a new account
    let request = restarted
        .client
        .request(Method::DELETE, restarted.url(&format!("{PATH}/{id}")));
    answer(request.bearer_auth(&key)).await.assert_ok();
}
