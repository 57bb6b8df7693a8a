//! §2.7, §2.8, §4.4–4.6: the catalog as the contract prints it, and which callers see which part of it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{Answer, Plan, TestGateway, gateway::answer};

/// A model as §2.8 describes it; prices in dollars per token.
pub struct Expected {
    pub id: &'static str,
    pub tier: &'static str,
    pub prompt: &'static str,
    pub completion: &'static str,
    cached: &'static str,
    max_output: u64,
    routing: bool,
    drops: &'static [&'static str],
}

const fn model(id: &'static str, tier: &'static str, prices: [&'static str; 3]) -> Expected {
    let [prompt, completion, cached] = prices;
    Expected {
        id,
        tier,
        prompt,
        completion,
        cached,
        max_output: 66_000,
        routing: false,
        drops: &[],
    }
}

const fn hybrid(id: &'static str, tier: &'static str, dearest: [&'static str; 3]) -> Expected {
    Expected {
        routing: true,
        ..model(id, tier, dearest)
    }
}

const BASIC_PRICES: [&str; 3] = ["0.000005", "0.00003", "0.0000005"];
const FAST_PRICES: [&str; 3] = ["0.0000002", "0.0000008", "0.00000002"];
const STANDARD_PRICES: [&str; 3] = ["0.000002", "0.000009", "0.0000002"];
const PRO_PRICES: [&str; 3] = ["0.0000008", "0.000003", "0.00000008"];

#[rustfmt::skip]
pub const CATALOG: [Expected; 17] = [
    model("svc-standard", "standard", STANDARD_PRICES),
    model("svc-native-fast", "free", FAST_PRICES),
    model("svc-native-flash", "free", ["0.00000014", "0.0000008", "0.00000001"]),
    model("svc-native-light", "free", FAST_PRICES),
    model("svc-native-standard", "standard", ["0.0000012", "0.0000044", "0.00000012"]),
    model("svc-native-promax", "max", ["0.0000048", "0.000028", "0.00000048"]),
    model("svc-basic", "basic", BASIC_PRICES),
    model("svc-pro", "pro", PRO_PRICES),
    model("svc-light-coding", "free", ["0.0000002", "0.00000076", "0.00000002"]),
    model("svc-pro-coding", "pro", PRO_PRICES),
    model("svc-max-coding", "max", ["0.000002", "0.00001", "0.0000002"]),
    hybrid("svc-hybrid-semantic", "standard", BASIC_PRICES),
    hybrid("svc-hybrid-cost", "free", STANDARD_PRICES),
    hybrid("svc-hybrid-tiered", "standard", BASIC_PRICES),
    hybrid("svc-hybrid-turn", "basic", BASIC_PRICES),
    Expected {
        max_output: 128_000,
        drops: &[
            "frequency_penalty", "logit_bias", "presence_penalty", "seed", "temperature", "top_p",
        ],
        ..model("svc-flex-alpha-5.6", "flex", ["0.000006", "0.000036", "0.0000006"])
    },
    Expected {
        drops: &["frequency_penalty", "presence_penalty", "temperature", "top_k", "top_p"],
        ..model("svc-flex-beta-3.6", "flex", ["0.0000018", "0.000009", "0.00000018"])
    },
];

const PARAMETERS: [&str; 11] = [
    "temperature",
    "top_p",
    "top_k",
    "stop",
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "max_tokens",
];

/// In ascending order; `flex` belongs to the Business track.
pub const TIERS: [&str; 6] = ["free", "basic", "standard", "pro", "max", "flex"];

fn rank(tier: &str) -> usize {
    TIERS.iter().position(|known| *known == tier).unwrap()
}

/// The models that an account of this tier can call.
fn within(tier: &str) -> BTreeSet<&'static str> {
    let callable = |model: &&Expected| rank(model.tier) <= rank(tier);
    CATALOG
        .iter()
        .filter(callable)
        .map(|model| model.id)
        .collect()
}

fn plan(tier: &'static str) -> Plan {
    Plan(
        if tier == "flex" {
            "business"
        } else {
            "personal"
        },
        tier,
    )
}

fn ids(list: &Answer) -> BTreeSet<&str> {
    let list = list.assert_ok();
    assert_eq!(list["object"], "list");
    let data = list["data"].as_array().unwrap();
    let ids: BTreeSet<_> = data
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), data.len(), "no model twice");
    ids
}

fn texts(list: &Value) -> BTreeSet<&str> {
    let items = list.as_array().unwrap();
    items.iter().map(|item| item.as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_model_has_the_published_prices_sizes_features_and_parameters() {
    let gateway = TestGateway::start().await;
    let list = gateway.get("/v1/models").await;
    assert_eq!(ids(&list).len(), 17);
    for expected in &CATALOG {
        let id = expected.id;
        let data = list.body["data"].as_array().unwrap();
        let model = data.iter().find(|model| model["id"] == id).unwrap();
        assert_eq!(model["object"], "model", "{id}");
        assert_eq!(
            model["pricing"],
            json!({
                "prompt": expected.prompt, "completion": expected.completion,
                "image": "0", "request": "0", "input_cache_read": expected.cached,
            }),
            "{id}"
        );
        assert_eq!(model["context_length"], 1_050_000, "{id}");
        assert_eq!(model["max_output_length"], expected.max_output, "{id}");
        let own = if expected.routing {
            "routing"
        } else {
            "prompt_caching"
        };
        let features = [
            "tools",
            "json_mode",
            "structured_outputs",
            "streaming",
            "reasoning",
            own,
        ];
        assert_eq!(
            texts(&model["supported_features"]),
            BTreeSet::from(features),
            "{id}"
        );
        let mut parameters = BTreeSet::from(PARAMETERS);
        parameters.retain(|parameter| !expected.drops.contains(parameter));
        assert_eq!(
            texts(&model["supported_sampling_parameters"]),
            parameters,
            "{id}"
        );
        let instruct_type = if id.ends_with("-coding") {
            "coding"
        } else {
            "general"
        };
        assert_eq!(
            model["architecture"]["instruct_type"], instruct_type,
            "{id}"
        );
        assert_eq!(model["quantization"], "unknown", "{id}");
        assert!(model["top_provider"]["is_moderated"].is_boolean(), "{id}");
        assert!(
            model["created"].is_i64() && model["name"].is_string(),
            "{id}"
        );
        let one = gateway.get(&format!("/v1/models/{id}")).await;
        assert_eq!(one.assert_ok(), model, "{id}: alone as in the list");
    }
}

#[tokio::test]
async fn each_plan_sees_what_it_can_call_in_the_list_and_alone() {
    let gateway = TestGateway::start().await;
    for tier in TIERS {
        let (_, key) = gateway.account(plan(tier)).await;
        let get = |path: &str| answer(gateway.client.get(gateway.url(path)).bearer_auth(&key));
        assert_eq!(ids(&get("/v1/models").await), within(tier), "{tier}");
        for model in &CATALOG {
            let one = get(&format!("/v1/models/{}", model.id)).await;
            if within(tier).contains(model.id) {
                assert_eq!(one.assert_ok()["id"], model.id);
            } else {
                one.assert_error(
                    404,
                    "invalid_request_error",
                    Some("model_not_found"),
                    Some("model"),
                );
            }
        }
    }
}

#[tokio::test]
async fn without_a_valid_key_a_caller_is_treated_as_personal_and_free() {
    let gateway = TestGateway::start().await;
    let unknown = "Bearer sk-svc-000000000000000000000000000000000000000000000000";
    for header in [
        None,
        Some(unknown),
        Some("Bearer nonsense"),
        Some("Basic dTpw"),
        Some(""),
    ] {
        let get = |path: &str| {
            let request = gateway.client.get(gateway.url(path));
            answer(match header {
                Some(header) => request.header("authorization", header),
                None => request,
            })
        };
        assert_eq!(ids(&get("/v1/models").await), within("free"), "{header:?}");
        get("/v1/models/svc-native-fast").await.assert_ok();
        for hidden in ["svc-pro", "svc-flex-alpha-5.6"] {
            let hidden = get(&format!("/v1/models/{hidden}")).await;
            hidden.assert_error(
                404,
                "invalid_request_error",
                Some("model_not_found"),
                Some("model"),
            );
        }
    }
}

/// A query and the models that it filters out of the seventeen; `None` if no model is left.
#[tokio::test]
async fn filters_combine() {
    let gateway = TestGateway::start().await;
    let alpha = "svc-flex-alpha-5.6";
    let beta = "svc-flex-beta-3.6";
    let coding = ["svc-light-coding", "svc-pro-coding", "svc-max-coding"];
    let everything_but = |out: &[&str]| -> BTreeSet<&str> {
        within("flex")
            .into_iter()
            .filter(|id| !out.contains(id))
            .collect()
    };
    let none = BTreeSet::new();
    let general = everything_but(&coding);
    let without = |set: &BTreeSet<&'static str>, out: &str| -> BTreeSet<&'static str> {
        set.iter().copied().filter(|id| *id != out).collect()
    };
    for (query, expected) in [
        ("", everything_but(&[])),
        (
            "supported_parameters=temperature",
            everything_but(&[alpha, beta]),
        ),
        ("supported_parameters=top_k", everything_but(&[beta])),
        ("supported_parameters=seed", everything_but(&[alpha])),
        ("supported_parameters=logit_bias", everything_but(&[alpha])),
        (
            "supported_parameters=top_k,seed",
            everything_but(&[alpha, beta]),
        ),
        ("supported_parameters=top_k%2Cstop", everything_but(&[beta])),
        (
            "supported_parameters=%20seed%20,,stop,",
            everything_but(&[alpha]),
        ),
        (
            "supported_parameters=max_tokens,logprobs,top_logprobs,stop",
            everything_but(&[]),
        ),
        ("supported_parameters=", everything_but(&[])),
        ("supported_parameters=,", everything_but(&[])),
        ("supported_parameters=telepathy", none.clone()),
        ("supported_parameters=stop,telepathy", none.clone()),
        ("category=coding", BTreeSet::from(coding)),
        ("category=general", general.clone()),
        ("category=", everything_but(&[])),
        ("category=poetry", none.clone()),
        (
            "category=coding&supported_parameters=temperature",
            BTreeSet::from(coding),
        ),
        (
            "category=general&supported_parameters=seed",
            without(&general, alpha),
        ),
        (
            "supported_parameters=top_k&category=general",
            without(&general, beta),
        ),
        (
            "category=coding&supported_parameters=telepathy",
            none.clone(),
        ),
        ("limit=3&order=desc", everything_but(&[])),
    ] {
        let list = gateway.get(&format!("/v1/models?{query}")).await;
        assert_eq!(ids(&list), expected, "{query}");
    }
    // §4.4 has no status but 200, whatever the query is.
    for odd in [
        "category=%FF",
        "category=coding&category=general",
        "%",
        "&&=&",
        "category[]=x",
    ] {
        gateway.get(&format!("/v1/models?{odd}")).await.assert_ok();
    }
}

#[tokio::test]
async fn filters_do_not_show_what_a_plan_hides() {
    let gateway = TestGateway::start().await;
    let url = gateway.url("/v1/models?category=coding&supported_parameters=stop");
    let anonymous = answer(gateway.client.get(url)).await;
    assert_eq!(ids(&anonymous), BTreeSet::from(["svc-light-coding"]));
}

#[tokio::test]
async fn a_model_is_found_by_its_exact_id_however_it_is_encoded() {
    let gateway = TestGateway::start().await;
    for (path, id) in [
        ("svc-flex-alpha-5.6", "svc-flex-alpha-5.6"),
        ("svc-flex-alpha-5%2E6", "svc-flex-alpha-5.6"),
        ("svc%2Dnative%2dfast", "svc-native-fast"),
        ("%73vc-pro", "svc-pro"),
    ] {
        let found = gateway.get(&format!("/v1/models/{path}")).await;
        assert_eq!(found.assert_ok()["id"], id, "{path}");
    }
    for path in [
        "no-such-model",
        "SVC-NATIVE-FAST",
        "svc-native",
        "svc-native-fast%20",
        "svc-native-fast%00",
        "vendor%2Fmodel",
        "*",
        "%FF",
        "%",
    ] {
        let missing = gateway.get(&format!("/v1/models/{path}")).await;
        let found = (missing.status, missing.error()["code"].as_str());
        assert_eq!(found, (404, Some("model_not_found")), "{path}");
    }
    let decoded = gateway.get("/v1/models/vendor%2Fmodel").await;
    let message = decoded.error()["message"].as_str().unwrap();
    assert!(message.contains("vendor/model"), "{message}");
}

/// §4.4: a model that cannot be called now is not listed, not found, and refused.
#[tokio::test]
async fn a_model_without_a_deployment_does_not_exist() {
    let gateway = TestGateway::start_serving("svc-native-fast").await;
    let list = gateway.get("/v1/models").await;
    let listed = list.assert_ok()["data"].as_array().unwrap().iter();
    let listed: Vec<_> = listed.map(|model| model["id"].as_str().unwrap()).collect();
    // The hybrids that can choose it.
    let served = ["svc-native-fast", "svc-hybrid-cost"];
    assert!(served.iter().all(|id| listed.contains(id)), "{listed:?}");
    for id in ["svc-pro", "svc-native-flash", "svc-flex-alpha-5.6"] {
        assert!(!listed.contains(&id), "{listed:?}");
        let one = gateway.get(&format!("/v1/models/{id}")).await;
        one.assert_error(
            404,
            "invalid_request_error",
            Some("model_not_found"),
            Some("model"),
        );
        let body = json!({ "model": id, "messages": [{ "role": "user", "content": "Hi" }] });
        let refused = gateway.chat(&body).await;
        refused.assert_error(
            404,
            "invalid_request_error",
            Some("model_not_found"),
            Some("model"),
        );
    }
    for id in &listed {
        let body = json!({ "model": id, "messages": [{ "role": "user", "content": "Hi" }] });
        gateway.chat(&body).await.assert_ok();
    }
    // The published catalog does not depend on which models are served now.
    let provider = answer(gateway.client.get(gateway.url("/v1/provider"))).await;
    assert_eq!(provider.assert_ok()["model_count"], 15);
}

/// A repeated filter has several values.
#[tokio::test]
async fn a_category_filter_may_be_repeated() {
    let gateway = TestGateway::start().await;
    let ids = async |query: &str| -> BTreeSet<String> {
        let list = gateway.get(&format!("/v1/models{query}")).await;
        let models = list.assert_ok()["data"].as_array().unwrap().clone();
        models
            .iter()
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let (coding, general) = (
        ids("?category=coding").await,
        ids("?category=general").await,
    );
    assert!(!coding.is_empty() && !general.is_empty() && coding.is_disjoint(&general));
    assert_eq!(
        ids("?category=coding&category=general").await,
        &coding | &general
    );
    assert_eq!(ids("?category=coding&category=poetry").await, coding);
    let both = ids("?supported_parameters=seed&supported_parameters=top_k").await;
    assert_eq!(both, ids("?supported_parameters=seed,top_k").await);
    assert!(both.len() < ids("").await.len());
}
