//! §3.4: models by other names. The response repeats the name; everything that is stored, limited or charged has the
//! model's ID.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Answer, Plan, TestGateway,
    bodies::hello_with,
    gateway::{answer, hello},
    responses::{PATH, asking, two_words},
    upstream::completion,
};

const ALIASES: &str = r#"
[models.aliases]
"claude-*" = "svc-native-fast"
"claude-sonnet-5*" = "svc-standard"
"claude-sonnet-5-5" = "svc-max-coding"
"gpt-*" = "svc-hybrid-cost"
"svc-pro" = "svc-basic"
"svc-n*" = "svc-basic"
"#;

async fn gateway() -> TestGateway {
    TestGateway::start_with(ALIASES).await
}

async fn usage(gateway: &TestGateway) -> Vec<Value> {
    gateway.idle().await;
    let path = format!("/operator/accounts/{}/usage", gateway.account_id);
    let usage = gateway.operate(Method::GET, &path, None).await;
    usage.assert_ok()["data"].as_array().unwrap().clone()
}

/// The model of the latest charge.
async fn charged_model(gateway: &TestGateway) -> String {
    usage(gateway).await[0]["model"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn a_whole_response_repeats_the_alias_and_the_charge_names_the_model() {
    let gateway = gateway().await;
    gateway.upstream.answer_json(200, &completion("Hi."));
    for (asked, model) in [
        ("claude-haiku-4", "svc-native-fast"),
        ("claude-sonnet-5", "svc-standard"),
        ("claude-sonnet-5-5", "svc-max-coding"),
        ("claude-sonnet-5-5[1m]", "svc-standard"),
        ("claude-\"quoted\"\n", "svc-native-fast"),
    ] {
        let answer = gateway.chat(&hello(asked)).await;
        assert_eq!(answer.assert_ok()["model"], asked);
        assert_eq!(charged_model(&gateway).await, model, "{asked}");
    }
}

#[tokio::test]
async fn a_stream_repeats_the_alias_in_every_chunk() {
    let gateway = gateway().await;
    gateway.upstream.answer_chunks(&two_words());
    let stream = gateway.stream(&hello("claude-opus-5-5")).await;
    let chunks = stream.chunks();
    assert!(chunks.len() > 2);
    for chunk in chunks {
        assert_eq!(chunk["model"], "claude-opus-5-5");
    }
    assert_eq!(charged_model(&gateway).await, "svc-native-fast");
}

#[tokio::test]
async fn responses_repeat_the_alias_streamed_and_stored() {
    let gateway = gateway().await;
    gateway.upstream.answer_json(200, &completion("Hi."));
    let asked = asking(json!({ "model": "claude-opus-5-5" }));
    let whole = gateway.respond(&asked).await;
    assert_eq!(whole.assert_ok()["model"], "claude-opus-5-5");
    let stored = gateway.shown(whole.body["id"].as_str().unwrap()).await;
    assert_eq!(stored.assert_ok()["model"], "claude-opus-5-5");

    gateway.upstream.answer_chunks(&two_words());
    let events = gateway.events(&asked).await;
    let first = &events.all()[0];
    assert_eq!(first["response"]["model"], "claude-opus-5-5");
    assert_eq!(events.finished()["model"], "claude-opus-5-5");
    assert_eq!(charged_model(&gateway).await, "svc-native-fast");
}

#[tokio::test]
async fn an_id_wins_over_aliases_even_if_it_is_disabled() {
    let gateway = gateway().await;
    gateway.upstream.answer_json(200, &completion("Hi."));
    for id in ["svc-pro", "svc-native-light"] {
        gateway.chat(&hello(id)).await.assert_ok();
        assert_eq!(charged_model(&gateway).await, id);
        let path = format!("/operator/models/{id}");
        let disabled = Some(json!({ "enabled": false }));
        gateway
            .operate(Method::PUT, &path, disabled)
            .await
            .assert_ok();
        let refused = gateway.chat(&hello(id)).await;
        let code = Some("model_not_found");
        refused.assert_error(404, "invalid_request_error", code, Some("model"));
    }
}

#[tokio::test]
async fn an_alias_lowers_a_budget_to_the_maximum_and_an_id_does_not() {
    let gateway = gateway().await;
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        for budget in [66_001, 128_000, u64::MAX] {
            let asked = |model| hello_with(model, json!({ name: budget }));
            let sent = gateway.forwards(&asked("claude-sonnet-5")).await;
            assert_eq!(sent["max_tokens"], 66_000, "{name}: {budget}");
            gateway.refuses(&asked("svc-standard"), name).await;
        }
        let small = hello_with("claude-sonnet-5", json!({ name: 500 }));
        assert_eq!(gateway.forwards(&small).await["max_tokens"], 500);
        // A budget below the minimum cannot be raised: it would cost more than was asked for.
        let below = hello_with("claude-sonnet-5", json!({ name: 127 }));
        gateway.refuses(&below, name).await;
    }
}

#[tokio::test]
async fn a_lowered_budget_is_reserved_and_shown() {
    let gateway = gateway().await;
    gateway.upstream.answer_json(200, &completion("Hi."));
    let limit = json!({ "account": gateway.account_id, "model": "svc-standard", "tpm": 70_000 });
    gateway
        .operate(Method::PUT, "/operator/limits", Some(limit))
        .await
        .assert_ok();
    let asked = json!({ "model": "claude-sonnet-5", "max_output_tokens": 128_000 });
    let response = gateway.respond(&asking(asked)).await;
    assert_eq!(response.assert_ok()["max_output_tokens"], 66_000);
    let id = &usage(&gateway).await[0]["id"];
    let path = format!("/operator/requests/{}", id.as_str().unwrap());
    let request = gateway.operate(Method::GET, &path, None).await;
    let reserved = request.assert_ok()["admission"]["reserved_tokens"].as_u64();
    assert!(
        reserved.is_some_and(|tokens| (66_000..70_000).contains(&tokens)),
        "{reserved:?}"
    );
}

#[tokio::test]
async fn aliases_share_the_limits_of_their_model() {
    let gateway = gateway().await;
    gateway.upstream.answer_json(200, &completion("Hi."));
    let limit = json!({ "account": gateway.account_id, "model": "svc-native-fast", "rpm": 2 });
    gateway
        .operate(Method::PUT, "/operator/limits", Some(limit))
        .await
        .assert_ok();
    gateway.chat(&hello("claude-a")).await.assert_ok();
    gateway.chat(&hello("svc-native-fast")).await.assert_ok();
    let refused = gateway.chat(&hello("claude-b")).await;
    refused.assert_error(429, "rate_limit_exceeded", Some("rpm_exceeded"), None);
}

#[tokio::test]
async fn an_alias_needs_the_plan_of_its_model() {
    let gateway = gateway().await;
    gateway.upstream.answer_json(200, &completion("Hi."));
    let (_, free) = gateway.account(Plan::FREE).await;
    gateway
        .chat_as(&free, &hello("claude-haiku"))
        .await
        .assert_ok();
    let refused = gateway.chat_as(&free, &hello("claude-sonnet-5")).await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.error()["model"], "claude-sonnet-5");
    assert_eq!(refused.error()["required_tier"], "standard");
    let hidden = gateway
        .client
        .get(gateway.url("/v1/models/claude-sonnet-5"));
    assert_eq!(answer(hidden.bearer_auth(&free)).await.status, 404);
}

#[tokio::test]
async fn a_hybrid_can_have_an_alias() {
    let gateway = gateway().await;
    gateway.upstream.answer_json(200, &completion("Hi."));
    let answer = gateway.chat(&hello("gpt-4o-mini")).await;
    assert_eq!(answer.assert_ok()["model"], "gpt-4o-mini");
    let routed = answer.headers["x-routed-model"].to_str().unwrap();
    assert!(routed.starts_with("svc-"), "{routed}");
    let charged = &usage(&gateway).await[0];
    assert_eq!(charged["model"], "svc-hybrid-cost");
    assert_eq!(charged["routed_model"], routed);
}

fn listed<'a>(list: &'a Answer, id: &str) -> Option<&'a Value> {
    let data = list.assert_ok()["data"].as_array().unwrap();
    data.iter().find(|model| model["id"] == id)
}

#[tokio::test]
async fn exact_aliases_are_listed_and_every_alias_is_found() {
    let gateway = gateway().await;
    let list = gateway.get("/v1/models").await;
    let alias = listed(&list, "claude-sonnet-5-5").unwrap();
    let model = listed(&list, "svc-max-coding").unwrap();
    let mut expected = model.clone();
    expected["id"] = "claude-sonnet-5-5".into();
    expected["alias_of"] = "svc-max-coding".into();
    assert_eq!(*alias, expected);
    assert_eq!(model.get("alias_of"), None);
    let count = list.body["data"].as_array().unwrap().len();
    assert_eq!(count, 18, "no pattern, and no second `svc-pro`");

    let found = gateway.get("/v1/models/claude-sonnet-5-5").await;
    assert_eq!(*found.assert_ok(), expected);
    let found = gateway.get("/v1/models/claude-opus-5-5").await;
    assert_eq!(found.assert_ok()["alias_of"], "svc-native-fast");
    assert_eq!(found.body["id"], "claude-opus-5-5");
    let by_id = gateway.get("/v1/models/svc-pro").await;
    assert_eq!(by_id.assert_ok().get("alias_of"), None);
    assert_eq!(gateway.get("/v1/models/gemini-3").await.status, 404);

    let general = gateway.get("/v1/models?category=general").await;
    assert_eq!(listed(&general, "claude-sonnet-5-5"), None);
    let anonymous = answer(gateway.client.get(gateway.url("/v1/models"))).await;
    assert_eq!(listed(&anonymous, "claude-sonnet-5-5"), None, "not free");

    let disabled = Some(json!({ "enabled": false }));
    let path = "/operator/models/svc-max-coding";
    let operated = gateway.operate(Method::PUT, path, disabled).await;
    assert_eq!(
        operated.assert_ok()["aliases"],
        json!(["claude-sonnet-5-5"])
    );
    let list = gateway.get("/v1/models").await;
    assert_eq!(listed(&list, "claude-sonnet-5-5"), None);
    let refused = gateway.chat(&hello("claude-sonnet-5-5")).await;
    assert_eq!(refused.status, 404);
    assert!(
        refused.error()["message"]
            .as_str()
            .unwrap()
            .contains("claude-sonnet-5-5")
    );
}

#[tokio::test]
async fn a_long_name_matches_no_pattern() {
    let gateway = gateway().await;
    for path in ["/v1/chat/completions", PATH] {
        let mut body = asking(json!({ "model": format!("claude-{}", "x".repeat(10_000)) }));
        body["messages"] = json!([{ "role": "user", "content": "Hello" }]);
        let refused = answer(gateway.request(Method::POST, path).json(&body)).await;
        let code = Some("model_not_found");
        refused.assert_error(404, "invalid_request_error", code, Some("model"));
    }
    assert_eq!(gateway.upstream.calls(), 0);
}
