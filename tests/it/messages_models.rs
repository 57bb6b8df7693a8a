//! §4.4, §4.5: the list of models for clients of the Messages API.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, TestGateway, gateway::answer};

async fn list(gateway: &TestGateway, query: &str) -> Answer {
    let request = gateway
        .client
        .get(gateway.url(&format!("/v1/models{query}")));
    let request = request.header("anthropic-version", "2023-06-01");
    answer(request.header("x-api-key", &gateway.key)).await
}

fn ids(answer: &Answer) -> Vec<String> {
    let data = answer.assert_ok()["data"].as_array().unwrap();
    let ids = data.iter().map(|model| model["id"].as_str().unwrap());
    ids.map(str::to_owned).collect()
}

#[tokio::test]
async fn the_version_header_chooses_the_form() {
    let gateway = TestGateway::start().await;
    let listed = list(&gateway, "?limit=1000").await;
    assert_eq!(listed.headers["request-id"], listed.headers["x-request-id"]);
    let fast = listed.assert_ok()["data"].as_array().unwrap();
    let fast = fast.iter().find(|m| m["id"] == "svc-native-fast").unwrap();
    let mut fast = fast.clone();
    let (name, created) = (fast["display_name"].take(), fast["created_at"].take());
    assert!(
        name.is_string() && created.as_str().unwrap().ends_with('Z'),
        "{created}"
    );
    assert_eq!(
        fast,
        json!({ "type": "model", "id": "svc-native-fast", "display_name": null, "created_at": null,
            "lifecycle": "active", "max_input_tokens": 1_050_000, "max_tokens": 66_000 })
    );
    let plain = gateway.get("/v1/models").await;
    assert_eq!(plain.assert_ok()["object"], "list");
    assert_eq!(plain.headers.get("request-id"), None);
    assert_eq!(ids(&listed), ids(&plain));
    // Without a key, what anyone may see.
    let public = gateway.client.get(gateway.url("/v1/models"));
    let public = answer(public.header("anthropic-version", "1")).await;
    assert!(ids(&public).len() < ids(&listed).len());
}

#[tokio::test]
async fn the_list_has_pages() {
    let gateway = TestGateway::start().await;
    let all = ids(&list(&gateway, "?limit=1000").await);
    assert!(all.len() > 6, "{all:?}");
    let page = |body: &Value| {
        let more = body["has_more"].as_bool().unwrap();
        (body["first_id"].clone(), body["last_id"].clone(), more)
    };
    let first = list(&gateway, "?limit=3").await;
    assert_eq!(ids(&first), all[..3]);
    assert_eq!(page(&first.body), (json!(all[0]), json!(all[2]), true));
    let next = list(&gateway, &format!("?limit=3&after_id={}", all[2])).await;
    assert_eq!(ids(&next), all[3..6]);
    let before = list(&gateway, &format!("?limit=2&before_id={}", all[3])).await;
    assert_eq!(ids(&before), all[1..3]);
    assert_eq!(before.body["has_more"], true);
    let last = all.last().unwrap();
    let none = list(&gateway, &format!("?after_id={last}")).await;
    assert_eq!(page(&none.body), (Value::Null, Value::Null, false));
    for (query, param) in [
        ("?limit=0", "limit"),
        ("?limit=1001", "limit"),
        ("?limit=x", "limit"),
        ("?after_id=nope", "after_id"),
    ] {
        let refused = list(&gateway, query).await;
        refused.assert_message_error(400, "invalid_request_error", None, Some(param));
    }
}

#[tokio::test]
async fn one_model_has_the_same_form() {
    let gateway = TestGateway::start().await;
    let one = list(&gateway, "/svc-native-fast").await;
    assert_eq!(one.assert_ok()["type"], "model");
    let missing = list(&gateway, "/nope").await;
    missing.assert_message_error(
        404,
        "not_found_error",
        Some("model_not_found"),
        Some("model"),
    );
    let plain = gateway.request(Method::GET, "/v1/models/svc-native-fast");
    assert_eq!(answer(plain).await.assert_ok()["object"], "model");
}
