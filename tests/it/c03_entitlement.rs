//! §3.3, §5, §9: which plan may call which model, and what operators can change.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    Answer, Plan, Stream, TestGateway,
    gateway::hello,
    upstream::{chunk, completion},
};

const PLANS: [Plan; 6] = [
    Plan::FREE,
    Plan("personal", "basic"),
    Plan("personal", "standard"),
    Plan("personal", "pro"),
    Plan::MAX,
    Plan::FLEX,
];

/// The lowest plan of each model, as an index into `PLANS`.
const LEAST: [(&str, usize); 17] = [
    ("svc-native-fast", 0),
    ("svc-native-light", 0),
    ("svc-native-flash", 0),
    ("svc-light-coding", 0),
    ("svc-hybrid-cost", 0),
    ("svc-basic", 1),
    ("svc-hybrid-turn", 1),
    ("svc-standard", 2),
    ("svc-native-standard", 2),
    ("svc-hybrid-semantic", 2),
    ("svc-hybrid-tiered", 2),
    ("svc-pro", 3),
    ("svc-pro-coding", 3),
    ("svc-native-promax", 4),
    ("svc-max-coding", 4),
    ("svc-flex-alpha-5.6", 5),
    ("svc-flex-beta-3.6", 5),
];

async fn set_model(gateway: &TestGateway, id: &str, settings: serde_json::Value) -> Answer {
    let path = format!("/operator/models/{id}");
    gateway.operate(Method::PUT, &path, Some(settings)).await
}

async fn lists(gateway: &TestGateway, id: &str) -> bool {
    let list = gateway.get("/v1/models").await;
    let data = list.assert_ok()["data"].as_array().unwrap();
    data.iter().any(|model| model["id"] == id)
}

#[track_caller]
fn assert_no_such_model(answer: &Answer) {
    answer.assert_error(
        404,
        "invalid_request_error",
        Some("model_not_found"),
        Some("model"),
    );
}

#[tokio::test]
async fn each_plan_calls_its_models_and_refusals_name_the_needed_plan() {
    let gateway =
        TestGateway::start_set(&[("SERVER__PUBLIC_URL", "https://llm.example.com")]).await;
    for (rank, plan) in PLANS.into_iter().enumerate() {
        let (_, key) = gateway.account(plan).await;
        for (model, least) in LEAST {
            let calls = gateway.upstream.calls();
            let answer = gateway.chat_as(&key, &hello(model)).await;
            if rank >= least {
                assert_eq!(answer.assert_ok()["model"], model);
                continue;
            }
            answer.assert_error(
                403,
                "tier_upgrade_required",
                Some("forbidden"),
                Some("model"),
            );
            let error = answer.error();
            assert_eq!(error["current_tier"], plan.1, "{model}");
            assert_eq!(error["required_tier"], PLANS[least].1, "{model}");
            assert_eq!(error["model"], model);
            assert_eq!(error["upgrade_url"], "https://llm.example.com/portal/plan");
            assert_eq!(
                answer.body.as_object().unwrap().len(),
                1,
                "all of it inside `error`"
            );
            assert_eq!(
                gateway.upstream.calls(),
                calls,
                "{model}: nothing was sent upstream"
            );
        }
    }
}

/// Order of checks: model known (404), then entitled (403), then values (400).
#[tokio::test]
async fn entitlement_is_checked_after_the_model_and_before_the_values() {
    let gateway = TestGateway::start().await;
    let (_, key) = gateway.account(Plan::FREE).await;
    let with_bad_value = |model: &str| {
        let mut body = hello(model);
        body["temperature"] = json!(99);
        body
    };
    assert_no_such_model(
        &gateway
            .chat_as(&key, &with_bad_value("no-such-model"))
            .await,
    );
    let refused = gateway.chat_as(&key, &with_bad_value("svc-pro")).await;
    refused.assert_error(
        403,
        "tier_upgrade_required",
        Some("forbidden"),
        Some("model"),
    );
    let refused = gateway
        .chat_as(&key, &with_bad_value("svc-native-fast"))
        .await;
    refused.assert_error(400, "invalid_request_error", None, Some("temperature"));
}

#[tokio::test]
async fn a_disabled_model_is_gone_for_everyone_until_it_is_enabled() {
    let gateway = TestGateway::start().await;
    for id in ["svc-native-fast", "svc-flex-alpha-5.6", "svc-hybrid-cost"] {
        for _ in 0..5 {
            let set = set_model(&gateway, id, json!({ "enabled": false })).await;
            assert_eq!(set.assert_ok()["enabled"], false);
            assert!(!lists(&gateway, id).await, "{id}");
            assert_no_such_model(&gateway.get(&format!("/v1/models/{id}")).await);
            assert_no_such_model(&gateway.chat(&hello(id)).await);
            set_model(&gateway, id, json!({ "enabled": true }))
                .await
                .assert_ok();
            assert!(lists(&gateway, id).await, "{id}");
            gateway.chat(&hello(id)).await.assert_ok();
        }
    }
}

#[tokio::test]
async fn a_disabled_model_is_404_even_for_those_whose_plan_lacks_it() {
    let gateway = TestGateway::start().await;
    let (_, free) = gateway.account(Plan::FREE).await;
    set_model(&gateway, "svc-pro", json!({ "enabled": false }))
        .await
        .assert_ok();
    assert_no_such_model(&gateway.chat_as(&free, &hello("svc-pro")).await);
}

#[tokio::test]
async fn the_provider_counts_neither_disabled_nor_unlisted_models() {
    let gateway = TestGateway::start().await;
    let count = async || gateway.get("/v1/provider").await.assert_ok()["model_count"].as_u64();
    assert_eq!(count().await, Some(15));
    set_model(&gateway, "svc-basic", json!({ "enabled": false }))
        .await
        .assert_ok();
    assert_eq!(count().await, Some(14));
    set_model(&gateway, "svc-pro", json!({ "unlisted": true }))
        .await
        .assert_ok();
    assert_eq!(count().await, Some(13));
    set_model(&gateway, "svc-flex-beta-3.6", json!({ "enabled": false }))
        .await
        .assert_ok();
    assert_eq!(count().await, Some(13), "the Flex SKUs were never counted");
    set_model(&gateway, "svc-max-coding", json!({ "unlisted": true }))
        .await
        .assert_ok();
    let provider = gateway.get("/v1/provider").await;
    let max = &provider.body["pricing"]["max"];
    assert_eq!(
        max,
        &json!({ "prompt": "0.0000048", "completion": "0.000028" })
    );
    set_model(&gateway, "svc-native-promax", json!({ "unlisted": true }))
        .await
        .assert_ok();
    let provider = gateway.get("/v1/provider").await;
    assert_eq!(
        provider.body["pricing"].get("max"),
        None,
        "a tier without models has no price"
    );
}

#[tokio::test]
async fn an_unlisted_model_stays_callable_and_is_shown_nowhere() {
    let gateway = TestGateway::start().await;
    let id = "svc-standard";
    set_model(&gateway, id, json!({ "unlisted": true }))
        .await
        .assert_ok();
    assert!(!lists(&gateway, id).await);
    assert_no_such_model(&gateway.get(&format!("/v1/models/{id}")).await);
    assert_eq!(gateway.chat(&hello(id)).await.assert_ok()["model"], id);
    let (_, free) = gateway.account(Plan::FREE).await;
    let refused = gateway.chat_as(&free, &hello(id)).await;
    refused.assert_error(
        403,
        "tier_upgrade_required",
        Some("forbidden"),
        Some("model"),
    );
    set_model(&gateway, id, json!({ "unlisted": false }))
        .await
        .assert_ok();
    assert!(lists(&gateway, id).await);
}

#[tokio::test]
async fn a_models_settings_outlive_the_process() {
    let gateway = TestGateway::start().await;
    set_model(&gateway, "svc-pro", json!({ "enabled": false }))
        .await
        .assert_ok();
    set_model(&gateway, "svc-basic", json!({ "unlisted": true }))
        .await
        .assert_ok();
    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    assert!(!lists(&gateway, "svc-pro").await);
    assert_no_such_model(&gateway.chat(&hello("svc-pro")).await);
    assert!(!lists(&gateway, "svc-basic").await);
    gateway.chat(&hello("svc-basic")).await.assert_ok();
    set_model(&gateway, "svc-pro", json!({ "enabled": true }))
        .await
        .assert_ok();
    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    gateway.chat(&hello("svc-pro")).await.assert_ok();
}

/// `X-Routed-Model` names a plain catalog model that costs no more than the hybrid's published price.
#[tokio::test]
async fn a_hybrid_names_its_target_and_never_costs_more_than_published() {
    let gateway = TestGateway::start().await;
    let list = gateway.get("/v1/models").await;
    let data = list.assert_ok()["data"].as_array().unwrap();
    let priced = |id: &str, price: &str| -> f64 {
        let model = data.iter().find(|model| model["id"] == id).unwrap();
        model["pricing"][price].as_str().unwrap().parse().unwrap()
    };
    for hybrid in [
        "svc-hybrid-semantic",
        "svc-hybrid-cost",
        "svc-hybrid-tiered",
        "svc-hybrid-turn",
    ] {
        let answer = gateway.chat(&hello(hybrid)).await;
        assert_eq!(
            answer.assert_ok()["model"],
            hybrid,
            "the response shows the requested model"
        );
        let target = answer.headers["x-routed-model"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(
            LEAST.iter().any(|(id, _)| *id == target),
            "{target} is a catalog ID"
        );
        assert!(!target.contains("hybrid"), "{target}");
        for price in ["prompt", "completion", "input_cache_read"] {
            assert!(
                priced(&target, price) <= priced(hybrid, price),
                "{hybrid} → {target}: {price}"
            );
        }
        gateway.upstream.answer_chunks(&[
            chunk(json!({ "role": "assistant", "content": "Hi" }), None),
            chunk(json!({}), Some("stop")),
        ]);
        let stream = gateway.open_stream(&hello(hybrid)).await;
        let target = stream.headers()["x-routed-model"].to_str().unwrap();
        assert!(LEAST.iter().any(|(id, _)| *id == target), "{target}");
        let text = stream.text().await.unwrap();
        Stream { text }.assert_complete(hybrid);
        gateway.upstream.answer_json(200, &completion("Hi"));
    }
    let plain = gateway.chat(&hello("svc-native-fast")).await;
    assert_eq!(plain.headers.get("x-routed-model"), None);
}

/// §3.3 holds for a hybrid's targets, too.
#[tokio::test]
async fn a_hybrid_skips_disabled_targets() {
    let gateway = TestGateway::start().await;
    let off = || json!({ "enabled": false });
    let routed = async || {
        let answer = gateway.chat(&hello("svc-hybrid-turn")).await;
        answer.assert_ok();
        answer.headers["x-routed-model"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    let first = routed().await;
    set_model(&gateway, &first, off()).await.assert_ok();
    let second = routed().await;
    assert_ne!(first, second);
    for model in [
        "svc-native-fast",
        "svc-native-light",
        "svc-native-standard",
        "svc-pro",
        "svc-standard",
        "svc-basic",
    ] {
        set_model(&gateway, model, off()).await.assert_ok();
    }
    let answer = gateway.chat(&hello("svc-hybrid-turn")).await;
    answer.assert_error(
        404,
        "invalid_request_error",
        Some("model_not_found"),
        Some("model"),
    );
}
