//! Bounds of what is kept of refused requests, and what is not kept of them.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    TestGateway,
    admin::Admin,
    bodies::hello_with,
    gateway::{answer, hello},
    refused::{page_of, request_id, stored},
    stores,
};

const MODEL: &str = "svc-native-fast";

#[tokio::test]
async fn thousands_of_refusals_are_all_counted_and_a_thousand_are_kept() {
    const SENDERS: usize = 8;
    const EACH: usize = 625;
    let gateway = TestGateway::start_set(&[("LIMITS__REFUSED_PER_ACCOUNT", "0")]).await;
    let send = async || {
        for _ in 0..EACH {
            let request = gateway.request(Method::GET, "/v1/nope");
            assert_eq!(request.send().await.unwrap().status(), 404);
        }
    };
    let sending = (0..SENDERS).map(|_| send());
    futures_util::future::join_all(sending).await;
    let (_, other) = gateway.account(crate::support::Plan::FREE).await;
    assert_eq!(gateway.chat_as(&other, &hello("nope")).await.status, 404);
    let data = gateway.stop().await;
    let (records, requests) = stored(data.path()).await;
    assert_eq!(requests, 5_001, "each is counted once");
    assert_eq!(records, 1_001, "the last thousand, and the other account's");
}

#[tokio::test]
async fn the_page_of_each_refusal_of_a_burst_opens() {
    let admin = Admin::open().await;
    let (former_id, former) = admin.new_key("former").await;
    let path = format!("/operator/keys/{former_id}/disable");
    admin.operate(Method::POST, &path, json!({})).await;
    let body = hello("no-such-model");
    let sending = (0..76).map(|number| {
        let key = if number % 4 == 0 { &former } else { &admin.key };
        admin.gateway.chat_as(key, &body)
    });
    for refused in &futures_util::future::join_all(sending).await {
        let page = admin.page(&page_of(&admin.gateway, refused.error())).await;
        assert!(page.contains(request_id(refused)), "{page}");
        assert!(page.contains("What to do"), "{page}");
    }
    assert_eq!(stored(admin.gateway.data.path()).await, (76, 76));
}

#[tokio::test]
async fn no_key_and_little_of_a_request_is_stored() {
    let gateway = TestGateway::start().await;
    let canary = "a canary \"of a\" prompt";
    let secret = format!("sk-svc-{}", "x".repeat(48));
    let mut wrong = hello_with(MODEL, json!({ "temperature": 99, "user": canary }));
    wrong["messages"][0]["content"] = canary.into();
    assert_eq!(gateway.chat(&wrong).await.status, 400);
    assert_eq!(gateway.chat(&hello(&secret)).await.status, 404);
    let long = hello_with(
        MODEL,
        json!({ "response_format": { "type": "ü".repeat(90_000) } }),
    );
    let refused = gateway.chat(&long).await;
    assert_eq!(refused.status, 400, "{}", refused.body);
    let id = gateway.request(Method::POST, "/v1/nope");
    let long_id = id.header("x-request-id", "i".repeat(5_000));
    let refused = answer(long_id).await;
    assert_eq!(request_id(&refused).len(), 5_000);
    let url = refused.error()["request_url"].as_str().unwrap();
    assert!(url.ends_with(&format!("/{}", "i".repeat(128))), "{url}");
    let prompts = [
        json!(canary),
        json!([canary]),
        json!([{ "role": canary, "content": "" }]),
    ];
    for messages in prompts {
        let quoting = json!({ "model": MODEL, "messages": messages });
        assert_eq!(gateway.chat(&quoting).await.status, 400);
    }
    let key = gateway.key.clone();
    let data = gateway.stop().await;
    assert_eq!(stored(data.path()).await, (7, 7));
    let bytes = String::from_utf8_lossy(&stores::bytes(data.path()).await).into_owned();
    for hidden in [
        canary,
        &secret[..20],
        &key,
        &"ü".repeat(310),
        &"i".repeat(129),
    ] {
        assert!(!bytes.contains(hidden), "{hidden}");
    }
    assert!(bytes.contains("temperature"));
}
