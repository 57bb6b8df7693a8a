//! The playground: calls the real endpoint, charged to the visitor's account.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    TestGateway,
    gateway::hello,
    portal::Browser,
    upstream::{chunk, usage_chunk},
};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn an_answer_is_streamed_and_paid_by_the_visitors_own_account() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let page = browser.get("/portal/playground").await;
    page.assert_page();
    let words = chunk(json!({ "content": "Good day" }), None);
    let end = chunk(json!({}), Some("stop"));
    gateway
        .upstream
        .answer_chunks(&[words, end, usage_chunk(11, 3)]);
    let mut body = hello(MODEL);
    body["stream"] = json!(true);
    let ask = |token: String| {
        let request = browser.request(Method::POST, "/portal/playground/run");
        let request = request
            .header("origin", browser.origin())
            .header("x-form-token", token);
        browser.send(request.json(&body))
    };
    assert_eq!(ask("forged".into()).await.status, 403);
    assert_eq!(gateway.upstream.calls(), 0);
    let streamed = ask(browser.token()).await;
    assert_eq!(streamed.status, 200, "{}", streamed.text);
    assert!(
        streamed
            .header("content-type")
            .starts_with("text/event-stream")
    );
    assert!(streamed.text.trim_end().ends_with("data: [DONE]"));
    gateway.idle().await;
    let usage = format!("/operator/accounts/{}/usage", browser.account_id);
    let usage = gateway.operate(Method::GET, &usage, None).await;
    assert_eq!(usage.assert_ok()["data"].as_array().unwrap().len(), 1);
    let request_id = streamed.header("x-request-id");
    let charge = format!("/portal/playground/charge?request={request_id}");
    let told = browser.get(&charge).await;
    assert!(told.text.contains("\"cost\":\"$0.00"), "{}", told.text);
    assert!(told.text.contains("\"path\":\"/portal/requests/call_"));
    let stranger = Browser::signed_in(&gateway).await;
    stranger.get(&charge).await.assert_pending();
    for unknown in ["unknown", "%00", ""] {
        let path = format!("/portal/playground/charge?request={unknown}");
        browser.get(&path).await.assert_pending();
    }
    let keys = browser.get("/portal/keys").await;
    assert_eq!(
        keys.text
            .matches("<th scope=\"row\">Playground</th>")
            .count(),
        1
    );

    // The key is reused for the next call; while it is disabled, calls are refused.
    assert_eq!(ask(browser.token()).await.status, 200);
    let keys = browser.get("/portal/keys").await;
    assert_eq!(
        keys.text
            .matches("<th scope=\"row\">Playground</th>")
            .count(),
        1
    );
    let id = keys.between("/portal/keys/key_", "\"").to_owned();
    browser
        .post(&format!("/portal/keys/key_{id}/disable"), &[])
        .await;
    assert_eq!(ask(browser.token()).await.status, 401);
    gateway.stop().await;
}
