//! §8.3 and §2.8: the smallest and the largest output that a request may ask of a model.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    bodies::hello_with,
    gateway::{Plan, hello},
    models::{MODELS, is_hybrid, maximum_output, minimum_output},
};

/// The names that clients use for the output budget.
const NAMES: [&str; 3] = ["max_tokens", "max_completion_tokens", "max_output_tokens"];

#[tokio::test]
async fn a_minimum_is_applied_where_no_budget_is_sent_and_only_there() {
    let gateway = TestGateway::start().await;
    for model in MODELS.into_iter().filter(|model| !is_hybrid(model)) {
        let expected = minimum_output(model).map(Value::from);
        for body in [
            hello(model),
            hello_with(model, json!({ "max_tokens": null })),
        ] {
            let sent = gateway.forwards(&body).await;
            assert_eq!(sent.get("max_tokens"), expected.as_ref(), "{body}");
        }
    }
}

#[tokio::test]
async fn a_budget_below_the_minimum_is_refused_and_the_minimum_is_not() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let least = minimum_output(model).unwrap_or(1);
        for name in NAMES {
            for below in [0, least - 1] {
                let body = hello_with(model, json!({ name: below }));
                gateway.refuses(&body, name).await;
            }
            let body = hello_with(model, json!({ name: least }));
            let sent = gateway.forwards(&body).await;
            if !is_hybrid(model) {
                assert_eq!(sent["max_tokens"], least, "{body}");
            }
        }
    }
}

#[tokio::test]
async fn a_budget_above_the_maximum_is_refused_and_the_maximum_is_not() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let most = maximum_output(model);
        for name in NAMES {
            let sent = gateway
                .forwards(&hello_with(model, json!({ name: most })))
                .await;
            assert_eq!(sent["max_tokens"], most, "{name} on {model}");
            for above in [most + 1, u64::from(u32::MAX) + 4_097, u64::MAX] {
                let body = hello_with(model, json!({ name: above }));
                gateway.refuses(&body, name).await;
            }
        }
    }
}

#[tokio::test]
async fn the_budget_goes_upstream_under_one_name() {
    let gateway = TestGateway::start().await;
    for name in NAMES {
        let sent = gateway
            .forwards(&hello_with("svc-native-fast", json!({ name: 77 })))
            .await;
        assert_eq!(sent["max_tokens"], 77, "{name}");
        for other in ["max_completion_tokens", "max_output_tokens"] {
            assert_eq!(sent.get(other), None, "{name}");
        }
    }
}

#[tokio::test]
async fn of_several_budgets_each_must_be_allowed_and_the_newest_name_counts() {
    let gateway = TestGateway::start().await;
    let both = json!({ "max_tokens": 200, "max_completion_tokens": 300 });
    let sent = gateway.forwards(&hello_with("svc-pro", both)).await;
    assert_eq!(sent["max_tokens"], 300);
    for (low, high) in [
        ("max_tokens", "max_completion_tokens"),
        ("max_completion_tokens", "max_tokens"),
        ("max_output_tokens", "max_tokens"),
    ] {
        let body = hello_with("svc-pro", json!({ low: 127, high: 300 }));
        gateway.refuses(&body, low).await;
        let body = hello_with("svc-pro", json!({ high: 300, low: 66_001 }));
        gateway.refuses(&body, low).await;
    }
}

#[tokio::test]
async fn a_budget_is_a_whole_number() {
    let gateway = TestGateway::start().await;
    for name in NAMES {
        for wrong in [json!(-1), json!(1.5), json!("100"), json!(true), json!([])] {
            let body = hello_with("svc-native-fast", json!({ name: wrong }));
            gateway.refuses(&body, name).await;
        }
        let huge = format!(
            r#"{{"model":"svc-native-fast","messages":[{{"role":"user","content":"Hi"}}],"{name}":1{}}}"#,
            "0".repeat(30)
        );
        gateway.refuses_text(huge, Some(name)).await;
    }
}

/// A hybrid accepts a budget that some target accepts; if the only target left has a minimum, it applies to the
/// hybrid too.
#[tokio::test]
async fn a_hybrids_target_gets_a_budget_it_accepts() {
    let gateway = TestGateway::start().await;
    // Of a free account's models, only `svc-native-flash` is left, which has a minimum.
    let off = json!({ "enabled": false });
    let first = "/operator/models/svc-native-fast";
    gateway
        .operate(Method::PUT, first, Some(off))
        .await
        .assert_ok();
    let (_, free) = gateway.account(Plan::FREE).await;
    for name in NAMES {
        let body = hello_with("svc-hybrid-cost", json!({ name: 50 }));
        let refused = gateway.chat_as(&free, &body).await;
        refused.assert_error(400, "invalid_request_error", None, Some(name));
        let message = refused.error()["message"].as_str().unwrap();
        assert!(message.contains("4096"), "{message}");
    }
    for (sent, forwarded) in [
        (json!(4_096), 4_096),
        (json!(null), 4_096),
        (json!(5_000), 5_000),
    ] {
        let body = hello_with("svc-hybrid-cost", json!({ "max_tokens": sent }));
        gateway.chat_as(&free, &body).await.assert_ok();
        let received = gateway.upstream.received();
        assert_eq!(received.last().unwrap().body["max_tokens"], forwarded);
    }
}

/// The caller's budget takes precedence over the cheapest target.
#[tokio::test]
async fn a_hybrid_skips_targets_whose_minimum_exceeds_the_budget() {
    let gateway = TestGateway::start().await;
    let (_, free) = gateway.account(Plan::FREE).await;
    let long = "A long story about a road and a gate. ".repeat(1_000);
    for (budget, target, forwarded) in [
        (json!(16), "svc-native-fast", json!(16)),
        (json!(4_096), "svc-native-flash", json!(4_096)),
        (json!(null), "svc-native-flash", json!(4_096)),
    ] {
        let messages = json!([{ "role": "user", "content": long }]);
        let body = hello_with(
            "svc-hybrid-cost",
            json!({ "max_tokens": budget, "messages": messages }),
        );
        let answer = gateway.chat_as(&free, &body).await;
        answer.assert_ok();
        assert_eq!(answer.headers["x-routed-model"], target, "{budget}");
        let received = gateway.upstream.received();
        assert_eq!(received.last().unwrap().body["max_tokens"], forwarded);
    }
}
