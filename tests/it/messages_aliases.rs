//! §3.4, §4.9: clients of the Messages API ask for models by names of their own, and see no others.

use std::fmt::Write as _;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Plan, TestGateway,
    anthropic::{self, OWN, hello_events, start_own},
    gateway::{UPSTREAM_MODEL, answer},
    messages::{COUNT, PATH, tool, writing},
    responses::two_words,
};

const ALIASES: &str = r#"
[models.aliases]
"claude-*" = "svc-native-fast"
"claude-sonnet-5*" = "svc-standard"
"claude-opus-5-5" = "svc-max-coding"
"#;

/// A request to a model by this name.
fn asking(model: &str, more: Value) -> Value {
    let mut body = writing(more);
    body["model"] = model.into();
    body
}

/// Asserts that a refusal does not show the ID of a model.
#[track_caller]
fn assert_no_id(refused: &Answer) {
    let body = refused.body.to_string();
    assert!(refused.status >= 400 && !body.contains("svc-"), "{body}");
}

#[tokio::test]
async fn a_message_and_its_events_repeat_the_alias() {
    let gateway = TestGateway::start_with(ALIASES).await;
    let body = asking("claude-haiku-5-5", json!({}));
    let whole = gateway.message(&body).await;
    assert_eq!(whole.assert_ok()["model"], "claude-haiku-5-5");
    gateway.upstream.answer_chunks(&two_words());
    let events = gateway.message_events(&body).await;
    let start = events.first("message_start");
    assert_eq!(start["message"]["model"], "claude-haiku-5-5");
    let request = gateway.request(Method::POST, COUNT);
    let counted = answer(request.json(&body)).await;
    assert!(counted.assert_ok()["input_tokens"].is_u64());
}

#[tokio::test]
async fn the_budget_of_a_coding_agent_is_lowered_to_the_maximum() {
    let limit = [("LIMITS__TPM", "100000")];
    let gateway = TestGateway::start_with_settings(ALIASES, &limit).await;
    for (asked, sent) in [(128_000, 66_000), (32_000, 32_000)] {
        let body = asking("claude-opus-4", json!({ "max_tokens": asked }));
        let received = gateway.forwards_message(&body).await;
        assert_eq!(received["max_tokens"], sent);
        gateway.idle().await;
    }
    let by_id = writing(json!({ "max_tokens": 128_000 }));
    gateway.refuses_message(&by_id, "max_tokens").await;
    let thinking = json!({ "type": "enabled", "budget_tokens": 31_999 });
    let body = json!({ "max_tokens": 32_000, "thinking": thinking });
    let body = asking("claude-opus-4", body);
    let received = gateway.forwards_message(&body).await;
    assert_eq!(received["reasoning_effort"], "high");
}

#[tokio::test]
async fn errors_name_the_alias() {
    let gateway = TestGateway::start_with(ALIASES).await;
    let below = asking("claude-sonnet-5", json!({ "max_tokens": 127 }));
    let refused = gateway.message(&below).await;
    let param = Some("max_tokens");
    refused.assert_message_error(400, "invalid_request_error", None, param);
    let message = refused.message_error()["message"].as_str().unwrap();
    assert!(message.contains("`claude-sonnet-5`"), "{message}");
    assert_no_id(&refused);

    let (_, free) = gateway.account(Plan::FREE).await;
    let dear = asking("claude-sonnet-5", json!({ "max_tokens": 200 }));
    let request = gateway.client.post(gateway.url(PATH));
    let refused = answer(request.header("x-api-key", &free).json(&dear)).await;
    let code = Some("tier_upgrade_required");
    refused.assert_message_error(403, "permission_error", code, Some("model"));
    let details = &refused.message_error()["details"];
    assert_eq!(details["model"], "claude-sonnet-5");
    assert_no_id(&refused);

    let many: Vec<_> = (0..101).map(|at| tool(&format!("f{at}"))).collect();
    let body = asking("claude-x", json!({ "tools": many }));
    assert_no_id(&gateway.message(&body).await);

    let words = format!("{UPSTREAM_MODEL} cannot do that");
    let error = json!({ "error": { "message": words } });
    gateway.upstream.answer_json(400, &error);
    let refused = gateway.message(&asking("claude-x", json!({}))).await;
    let message = refused.message_error()["message"].as_str().unwrap();
    assert!(message.contains("`claude-x` cannot do that"), "{message}");
    assert_no_id(&refused);

    let disabled = Some(json!({ "enabled": false }));
    let path = "/operator/models/svc-max-coding";
    let set = gateway.operate(Method::PUT, path, disabled).await;
    set.assert_ok();
    let refused = gateway.message(&asking("claude-opus-5-5", json!({}))).await;
    let (code, param) = (Some("model_not_found"), Some("model"));
    refused.assert_message_error(404, "not_found_error", code, param);
    let message = refused.message_error()["message"].as_str().unwrap();
    assert!(message.contains("`claude-opus-5-5`"), "{message}");
    assert_no_id(&refused);
}

#[tokio::test]
async fn aliases_are_listed_in_pages_of_twenty() {
    let mut aliases = ALIASES.to_owned();
    for number in 0..6 {
        writeln!(aliases, "\"claude-z{number}\" = \"svc-native-fast\"").unwrap();
    }
    let gateway = TestGateway::start_with(&aliases).await;
    let list = async |query: &str, as_bearer: bool| {
        let url = gateway.url(&format!("/v1/models{query}"));
        let request = gateway.client.get(url);
        let request = request.header("anthropic-version", "2026-10-21");
        let request = if as_bearer {
            request.bearer_auth(&gateway.key)
        } else {
            request.header("x-api-key", &gateway.key)
        };
        answer(request).await
    };
    let ids = |listed: &Answer| -> Vec<Value> {
        let data = listed.assert_ok()["data"].as_array().unwrap().iter();
        data.map(|model| model["id"].clone()).collect()
    };
    let all = list("?limit=1000", false).await;
    let names = ids(&all);
    assert_eq!(names.len(), 17 + 7, "no pattern is listed");
    assert_eq!(all.body["has_more"], false);
    assert_eq!(ids(&list("?limit=1000", true).await), names);
    let first = list("", false).await;
    assert_eq!(ids(&first), names[..20]);
    assert_eq!(first.body["has_more"], true);
    let next = format!("?after_id={}", first.body["last_id"].as_str().unwrap());
    assert_eq!(ids(&list(&next, false).await), names[20..]);
    // An alias has all of its model but the ID.
    let find = |id: &str| {
        let mut data = all.body["data"].as_array().unwrap().iter();
        data.find(|model| model["id"] == id).unwrap().clone()
    };
    let mut expected = find("svc-max-coding");
    expected["id"] = "claude-opus-5-5".into();
    assert_eq!(find("claude-opus-5-5"), expected);
    assert_eq!(list("/claude-opus-5-5", true).await.assert_ok(), &expected);
    let by_pattern = list("/claude-opus-6", false).await;
    assert_eq!(by_pattern.assert_ok()["id"], "claude-opus-6");
}

#[tokio::test]
async fn a_request_that_is_forwarded_as_it_is_has_an_alias_too() {
    let aliases = format!("[models.aliases]\n\"claude-*\" = \"{OWN}\"\n");
    let gateway = start_own(&aliases).await;
    let model = gateway.request(Method::GET, &format!("/v1/models/{OWN}"));
    let model = answer(model.header("anthropic-version", "1")).await;
    let most = model.assert_ok()["max_tokens"].clone();
    let body = asking("claude-opus-5-5", json!({ "max_tokens": 128_000 }));
    let served = gateway.message(&body).await;
    assert_eq!(served.assert_ok()["model"], "claude-opus-5-5");
    let sent = gateway.upstream.last_body();
    assert_eq!(sent["model"], UPSTREAM_MODEL);
    assert_eq!(sent["max_tokens"], most);
    let events = anthropic::events(&hello_events());
    gateway.upstream.answer_stream(&events);
    let events = gateway.message_events(&body).await;
    let start = events.first("message_start");
    assert_eq!(start["message"]["model"], "claude-opus-5-5");
}
