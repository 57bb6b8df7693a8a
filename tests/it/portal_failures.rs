//! What the page of a failed request says about sending it again.

use serde_json::json;

use crate::support::{admin::Admin, console, gateway::hello};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn a_failed_request_says_whether_it_is_worth_sending_again() {
    let admin = Admin::open().await;
    let operator = console::with_token(&admin.gateway).await;
    let again = "It is safe to send the request again";
    for (status, body, expected, other) in [
        (
            400,
            json!({ "error": { "message": "`messages` is wrong", "type": "invalid_request_error" } }),
            "it will fail again",
            again,
        ),
        (
            422,
            json!({ "error": { "message": "bad", "type": "invalid_request_error" } }),
            "it will fail again",
            again,
        ),
        (
            429,
            json!({ "error": { "message": "slow down" } }),
            "too many requests at that moment. It is safe to send the request again",
            "unchanged",
        ),
        (
            401,
            json!({ "error": { "message": "bad key" } }),
            "through a fault on our side",
            "unchanged",
        ),
        (
            500,
            json!({ "error": { "message": "oops" } }),
            again,
            "unchanged",
        ),
    ] {
        admin.gateway.upstream.answer_json(status, &body);
        let answer = admin.gateway.chat_as(&admin.key, &hello(MODEL)).await;
        assert!(answer.status >= 400, "{status}");
        admin.gateway.idle().await;
        let listed = admin.listed("/portal/requests").await;
        let page = admin.page(&listed[0]).await;
        assert!(page.contains(expected), "{status}: {page}");
        assert!(!page.contains(other), "{status}: {page}");
        assert!(!page.contains("Answered by"), "{status}: {page}");
        assert!(page.contains("Nothing was charged."), "{status}: {page}");
        let path = listed[0].replace("/portal/", "/portal/console/");
        let page = operator.get(&path).await;
        let text = page.assert_page();
        assert!(text.contains("Nothing was charged."), "{status}: {text}");
        assert!(!text.contains("Answered by"), "{status}: {text}");
    }
}
