//! §2.7, §4.6: the model object and the provider object.

use reqwest::Method;
use serde_json::json;

use crate::{
    c03_models::{CATALOG, Expected, TIERS},
    support::{Plan, TestGateway, gateway::answer},
};

#[tokio::test]
async fn the_model_object() {
    let gateway = TestGateway::start().await;
    let model = gateway.get("/v1/models/svc-flex-beta-3.6").await;
    insta::assert_json_snapshot!(model.assert_ok(), @r#"
    {
      "id": "svc-flex-beta-3.6",
      "object": "model",
      "name": "Flex Beta 3.6",
      "created": 1767225600,
      "owned_by": "tollgate",
      "description": "Business Flex: pinned version.",
      "pricing": {
        "prompt": "0.0000018",
        "completion": "0.000009",
        "image": "0",
        "request": "0",
        "input_cache_read": "0.00000018"
      },
      "context_length": 1050000,
      "max_output_length": 66000,
      "input_modalities": [
        "text"
      ],
      "output_modalities": [
        "text"
      ],
      "quantization": "unknown",
      "architecture": {
        "tokenizer": "unknown",
        "instruct_type": "general"
      },
      "top_provider": {
        "is_moderated": false
      },
      "supported_sampling_parameters": [
        "stop",
        "seed",
        "logit_bias",
        "logprobs",
        "top_logprobs",
        "max_tokens"
      ],
      "supported_features": [
        "tools",
        "json_mode",
        "structured_outputs",
        "streaming",
        "reasoning",
        "prompt_caching"
      ]
    }
    "#);
}

/// The published Personal catalog is the same for every caller (§4.6).
#[tokio::test]
async fn the_provider_object() {
    let gateway = TestGateway::start().await;
    let provider = gateway.get("/v1/provider").await;
    insta::assert_json_snapshot!(provider.assert_ok(), @r#"
    {
      "object": "provider",
      "name": "Tollgate",
      "description": "A metered, OpenAI-compatible inference gateway.",
      "features": [
        "json_mode",
        "prompt_caching",
        "reasoning",
        "routing",
        "streaming",
        "structured_outputs",
        "tools"
      ],
      "model_count": 15,
      "pricing": {
        "basic": {
          "prompt": "0.000005",
          "completion": "0.00003"
        },
        "free": {
          "prompt": "0.000002",
          "completion": "0.000009"
        },
        "max": {
          "prompt": "0.0000048",
          "completion": "0.000028"
        },
        "pro": {
          "prompt": "0.0000008",
          "completion": "0.000003"
        },
        "standard": {
          "prompt": "0.000005",
          "completion": "0.00003"
        }
      },
      "specializations": [
        "coding",
        "general"
      ]
    }
    "#);
    let (_, free) = gateway.account(Plan::FREE).await;
    let url = gateway.url("/v1/provider");
    for request in [
        gateway.client.get(&url),
        gateway.client.get(&url).bearer_auth(free),
        gateway.client.get(&url).bearer_auth("nonsense"),
    ] {
        assert_eq!(answer(request).await.assert_ok(), &provider.body);
    }
}

/// The tiers' prices are an upper bound: no model of the tier costs more.
#[tokio::test]
async fn the_providers_tier_prices_are_those_of_the_dearest_model() {
    let gateway = TestGateway::start().await;
    let provider = gateway.get("/v1/provider").await;
    let dearest = |tier: &str, price: fn(&Expected) -> &'static str| {
        let of_tier = CATALOG.iter().filter(|model| model.tier == tier);
        let prices = of_tier.map(price);
        prices.max_by(|a, b| a.parse::<f64>().unwrap().total_cmp(&b.parse().unwrap()))
    };
    for tier in &TIERS[..5] {
        let expected = json!({
            "prompt": dearest(tier, |model| model.prompt),
            "completion": dearest(tier, |model| model.completion),
        });
        assert_eq!(provider.body["pricing"][tier], expected, "{tier}");
    }
    assert_eq!(provider.body["pricing"].as_object().unwrap().len(), 5);
    assert_eq!(provider.body["model_count"], 15);
}

#[tokio::test]
async fn discovery_supports_head() {
    let gateway = TestGateway::start().await;
    for path in ["/v1/models", "/v1/models/svc-native-fast", "/v1/provider"] {
        let head = gateway.client.request(Method::HEAD, gateway.url(path));
        let head = head.send().await.unwrap();
        assert_eq!(head.status(), 200, "{path}");
        assert!(head.headers().contains_key("x-request-id"), "{path}");
    }
}
