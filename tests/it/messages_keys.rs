//! §4.9, §5: a key in `x-api-key` or as a bearer token.

use reqwest::RequestBuilder;
use serde_json::json;

use crate::support::{
    Answer, TestGateway,
    gateway::answer,
    messages::{COUNT, PATH, writing},
};

/// A well-formed key that no account has.
const UNKNOWN: &str = "sk-svc-000000000000000000000000000000000000000000000000";
/// A key of another service.
const FOREIGN: &str = "sk-ant-api03-abc";

fn post(gateway: &TestGateway, path: &str, headers: &[(&str, &str)]) -> RequestBuilder {
    let request = gateway
        .client
        .post(gateway.url(path))
        .json(&writing(json!({})));
    let headers = headers.iter();
    headers.fold(request, |request, (name, value)| {
        request.header(*name, *value)
    })
}

async fn sent(gateway: &TestGateway, headers: &[(&str, &str)]) -> Answer {
    answer(post(gateway, PATH, headers)).await
}

#[tokio::test]
async fn one_good_key_is_enough() {
    let gateway = TestGateway::start().await;
    let bearer = format!("Bearer {}", gateway.key);
    let lower = format!("bearer   {}", gateway.key);
    for headers in [
        &[("x-api-key", gateway.key.as_str())][..],
        &[("authorization", &bearer)],
        &[("authorization", &lower)],
        &[("x-api-key", &gateway.key), ("authorization", "Bearer ")],
        &[("x-api-key", ""), ("authorization", &bearer)],
        &[("x-api-key", FOREIGN), ("authorization", &bearer)],
        &[("x-api-key", UNKNOWN), ("authorization", &bearer)],
        &[
            ("x-api-key", &gateway.key),
            ("authorization", "Bearer sk-ant-oat01-x"),
        ],
        &[("x-api-key", &gateway.key), ("authorization", "Basic eDp5")],
    ] {
        let answer = sent(&gateway, headers).await;
        assert_eq!(answer.status, 200, "{headers:?} gives {}", answer.body);
        let received = gateway.upstream.received();
        let head = &received.last().unwrap().head;
        assert!(
            !head.contains("sk-svc-") && !head.contains("sk-ant-"),
            "{head}"
        );
    }
}

#[tokio::test]
async fn without_a_good_key_the_request_is_refused_and_not_retried() {
    let gateway = TestGateway::start().await;
    let foreign = format!("Bearer {FOREIGN}");
    let unknown = format!("Bearer {UNKNOWN}");
    for (headers, code) in [
        (&[][..], "missing_api_key"),
        (
            &[("x-api-key", ""), ("authorization", "")],
            "missing_api_key",
        ),
        (&[("x-api-key", "  ")], "missing_api_key"),
        (&[("authorization", "Basic eDp5")], "missing_api_key"),
        (&[("x-api-key", FOREIGN)], "invalid_api_key"),
        (
            &[("x-api-key", FOREIGN), ("authorization", &foreign)],
            "invalid_api_key",
        ),
        (&[("x-api-key", UNKNOWN)], "invalid_api_key"),
        (
            &[("x-api-key", UNKNOWN), ("authorization", &unknown)],
            "invalid_api_key",
        ),
    ] {
        for path in [PATH, COUNT] {
            let refused = answer(post(&gateway, path, headers)).await;
            refused.assert_message_error(401, "authentication_error", Some(code), None);
            assert_eq!(refused.headers["x-should-retry"], "false", "{headers:?}");
        }
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn other_endpoints_take_bearer_tokens_only() {
    let gateway = TestGateway::start().await;
    let chat = gateway.client.post(gateway.url("/v1/chat/completions"));
    let chat = chat
        .header("x-api-key", &gateway.key)
        .json(&writing(json!({})));
    let refused = answer(chat).await;
    refused.assert_error(401, "authentication_error", Some("missing_api_key"), None);
    assert_eq!(refused.headers.get("request-id"), None);
}
