//! §4.2 with §5, §7 and §8: entitlement, the order of checks, and charges.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    LedgerView, Plan, TestGateway,
    gateway::{answer, hello},
    ledger_view::MODEL as PRICED,
    responses::{MODEL, PATH, asking, assert_not_found, function, two_words},
    upstream::{chunk, completion},
};

#[tokio::test]
async fn unsupported_fields_are_refused_by_name() {
    let gateway = TestGateway::start().await;
    let tool = |kind: &str| json!({ "tools": [function("f"), { "type": kind }] });
    let item = |item: Value| json!({ "input": [{ "role": "user", "content": "a" }, item] });
    for (more, param) in [
        (json!({ "background": true }), "background"),
        (json!({ "web_search_options": {} }), "web_search_options"),
        (json!({ "n": 2 }), "n"),
        (json!({ "stop": "end" }), "stop"),
        (json!({ "stop": ["", "end"] }), "stop"),
        (json!({ "conversation": "conv_1" }), "conversation"),
        (json!({ "prompt": { "id": "pmpt_1" } }), "prompt"),
        (tool("file_search"), "tools[1].type"),
        (tool("mcp"), "tools[1].type"),
        (tool("code_interpreter"), "tools[1].type"),
        (tool("computer"), "tools[1].type"),
        (tool("tool_search"), "tools[1].type"),
        (tool("shell"), "tools[1].type"),
        (tool("local_shell"), "tools[1].type"),
        (tool("apply_patch"), "tools[1].type"),
        (tool("custom"), "tools[1].name"),
        (
            item(json!({ "type": "compaction_trigger" })),
            "input[1].type",
        ),
        (item(json!({ "type": "compaction" })), "input[1].type"),
        (
            item(json!({ "role": "tool", "content": "" })),
            "input[1].role",
        ),
        (item(json!({ "role": "user" })), "input[1].content"),
        (json!({ "input": null }), "input"),
        (json!({ "input": [] }), "input"),
        (
            json!({ "input": [{ "type": "reasoning", "summary": [] }] }),
            "input",
        ),
        (json!({ "tool_choice": "any" }), "tool_choice"),
        (
            json!({ "tools": [function("f")], "tool_choice": { "type": "function", "name": "g" } }),
            "tool_choice",
        ),
        (json!({ "max_output_tokens": 0 }), "max_output_tokens"),
        (json!({ "max_output_tokens": 66_001 }), "max_output_tokens"),
        (
            json!({ "model": "svc-standard", "max_output_tokens": 127 }),
            "max_output_tokens",
        ),
        (json!({ "temperature": 2.1 }), "temperature"),
        (json!({ "temperature": "hot" }), "temperature"),
        (json!({ "top_p": -1 }), "top_p"),
        (
            json!({ "reasoning": { "effort": "huge" } }),
            "reasoning.effort",
        ),
        (
            json!({ "text": { "format": { "type": "json_schema", "name": "n" } } }),
            "text.format.schema",
        ),
        (json!({ "tools": vec![function("f"); 101] }), "tools"),
    ] {
        gateway.refuses_response(&asking(more), param).await;
    }
    // A call and its output must match.
    let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
    let output = json!({ "type": "function_call_output", "call_id": "d", "output": "1" });
    for input in [
        json!([call]),
        json!([output]),
        json!([call, output]),
        json!([call, { "role": "user", "content": "a" }]),
    ] {
        gateway
            .refuses_response(&asking(json!({ "input": input })), "input")
            .await;
    }
    for text in ["", "{", "[]", "5"] {
        let refused = answer(gateway.request(Method::POST, PATH).body(text)).await;
        refused.assert_error(400, "invalid_request_error", None, None);
    }
    // Values that a response could not echo are refused before a provider is called or a charge is made.
    for (more, param) in [
        (r#""metadata":{"a":"\ud800"}"#, "metadata"),
        (r#""metadata":{"a":1e999}"#, "metadata"),
        (r#""instructions":"\ud800""#, "instructions"),
    ] {
        let body = format!(r#"{{"model":"{MODEL}","input":"Hi",{more}}}"#);
        let refused = answer(gateway.request(Method::POST, PATH).body(body)).await;
        refused.assert_error(400, "invalid_request_error", None, Some(param));
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn a_minimum_is_applied_where_no_budget_is_sent() {
    let gateway = TestGateway::start().await;
    let body = asking(json!({ "model": "svc-standard" }));
    let answer = gateway.respond(&body).await;
    assert_eq!(answer.assert_ok()["max_output_tokens"], Value::Null);
    assert_eq!(gateway.upstream.last_body()["max_tokens"], 128);
}

/// Each body also fails every check after the one that refuses it.
#[tokio::test]
async fn checks_come_in_the_same_order_as_for_chat() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "1")]).await;
    let (_, free) = gateway.account(Plan::FREE).await;
    let all_wrong = json!({
        "model": "no-such-model", "input": [{ "role": "nobody" }], "temperature": 99,
        "previous_response_id": "resp_none",
    });
    let ask = async |key: &str, fixed: Value| {
        let mut body = all_wrong.clone();
        body.as_object_mut()
            .unwrap()
            .extend(fixed.as_object().unwrap().clone());
        gateway.respond_as(key, &body).await
    };
    let refused = ask("sk-svc-unknown", json!({})).await;
    refused.assert_error(401, "authentication_error", Some("invalid_api_key"), None);
    let refused = ask(&free, json!({})).await;
    refused.assert_error(400, "invalid_request_error", None, Some("input[0].role"));
    let refused = ask(&free, json!({ "input": "Hi" })).await;
    let code = Some("model_not_found");
    refused.assert_error(404, "invalid_request_error", code, Some("model"));
    let refused = ask(&free, json!({ "input": "Hi", "model": "svc-pro" })).await;
    let (kind, code) = ("tier_upgrade_required", Some("forbidden"));
    refused.assert_error(403, kind, code, Some("model"));
    let refused = ask(&free, json!({ "input": "Hi", "model": MODEL })).await;
    assert_not_found(&refused);
    let known = json!({ "input": "Hi", "model": MODEL, "previous_response_id": null });
    let refused = ask(&free, known.clone()).await;
    refused.assert_error(400, "invalid_request_error", None, Some("temperature"));
    // None of these refusals counted as a request.
    let mut right = known;
    right["temperature"] = json!(1);
    ask(&free, right.clone()).await.assert_ok();
    let refused = ask(&free, right).await;
    refused.assert_error(429, "rate_limit_exceeded", Some("rpm_exceeded"), None);
    assert!(refused.headers.contains_key("retry-after"));
    assert_eq!(gateway.upstream.calls(), 1);
}

#[tokio::test]
async fn unserved_routes_are_reported_only_to_callers_with_a_key() {
    let gateway = TestGateway::start().await;
    let id = gateway.response_id(&asking(json!({}))).await;
    for (method, path, served) in [
        (Method::POST, PATH.to_owned(), true),
        (Method::GET, format!("{PATH}/{id}"), true),
        (Method::DELETE, format!("{PATH}/{id}"), true),
        (Method::GET, PATH.to_owned(), false),
        (Method::DELETE, PATH.to_owned(), false),
        (Method::POST, format!("{PATH}/{id}"), false),
        (Method::GET, format!("{PATH}/{id}/input_items"), false),
        (Method::POST, format!("{PATH}/{id}/cancel"), false),
        (Method::POST, format!("{PATH}/compact"), false),
        (Method::POST, format!("{PATH}/input_tokens"), false),
    ] {
        let bare = gateway.client.request(method.clone(), gateway.url(&path));
        let refused = answer(bare).await;
        refused.assert_error(401, "authentication_error", Some("missing_api_key"), None);
        if !served {
            let refused = answer(gateway.request(method, &path)).await;
            refused.assert_error(404, "not_found", Some("route_not_found"), None);
        }
    }
    gateway.shown(&id).await.assert_ok();
}

#[tokio::test]
async fn a_response_costs_and_counts_like_a_chat_completion() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let body = asking(json!({ "model": PRICED }));
    gateway.respond_as(&customer.key, &body).await.assert_ok();
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
    gateway
        .chat_as(&customer.key, &hello(PRICED))
        .await
        .assert_ok();
    assert_eq!(customer.ledger_view().await, LedgerView::charged(2));
    gateway.upstream.answer_chunks(&two_words());
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let request = gateway.client.post(gateway.url(PATH));
    let request = request.bearer_auth(&customer.key).json(&streamed);
    request.send().await.unwrap().text().await.unwrap();
    assert_eq!(customer.ledger_view().await, LedgerView::charged(3));
    // Without usage, and after a failure, nothing is charged.
    gateway.upstream.answer_chunks(&two_words()[..4]);
    let request = gateway.client.post(gateway.url(PATH));
    let request = request.bearer_auth(&customer.key).json(&streamed);
    let text = request.send().await.unwrap().text().await.unwrap();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    gateway.upstream.answer_json(500, &json!({}));
    let failed = gateway.respond_as(&customer.key, &body).await;
    failed.assert_error(502, "upstream_error", Some("500"), None);
    let ledger_view = customer.ledger_view().await;
    assert_eq!((ledger_view.charges, ledger_view.requests), (3, 5));
    // Reading and deleting stored responses is free, too.
    gateway.upstream.answer_json(200, &completion("Hi"));
    let answered = gateway.respond_as(&customer.key, &body).await;
    let path = format!("{PATH}/{}", answered.assert_ok()["id"].as_str().unwrap());
    for method in [Method::GET, Method::DELETE] {
        let request = gateway.client.request(method, gateway.url(&path));
        answer(request.bearer_auth(&customer.key)).await.assert_ok();
    }
    let ledger_view = customer.ledger_view().await;
    assert_eq!((ledger_view.charges, ledger_view.requests), (4, 6));
}

#[tokio::test]
async fn both_endpoints_share_one_window() {
    let gateway = TestGateway::start_set(&[("LIMITS__RPM", "2")]).await;
    gateway.respond(&asking(json!({}))).await.assert_ok();
    gateway.chat(&hello(MODEL)).await.assert_ok();
    for refused in [
        gateway.respond(&asking(json!({}))).await,
        gateway.chat(&hello(MODEL)).await,
    ] {
        refused.assert_error(429, "rate_limit_exceeded", Some("rpm_exceeded"), None);
        assert_eq!(refused.headers["x-ratelimit-limit"], "2");
    }
    let other = asking(json!({ "model": "svc-native-light" }));
    gateway.respond(&other).await.assert_ok();
}

/// The model reads the whole conversation each time, so all of it is reserved.
#[tokio::test]
async fn an_earlier_conversation_counts_as_input() {
    let gateway = TestGateway::start_set(&[("LIMITS__TPM", "12000")]).await;
    let long = asking(json!({ "input": "word ".repeat(5_000), "max_output_tokens": 10 }));
    let id = gateway.response_id(&long).await;
    let next = json!({ "previous_response_id": id, "max_output_tokens": 11_000 });
    let refused = gateway.respond(&asking(next)).await;
    refused.assert_error(429, "rate_limit_exceeded", Some("tpm_exceeded"), None);
    let alone = asking(json!({ "max_output_tokens": 11_000 }));
    gateway.respond(&alone).await.assert_ok();
}

#[tokio::test]
async fn insufficient_credit_is_reported() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer_with("0.000001", 10).await;
    let refused = gateway
        .respond_as(&customer.key, &asking(json!({ "model": PRICED })))
        .await;
    let code = Some("payment_required");
    refused.assert_error(402, "insufficient_credits", code, None);
    assert!(refused.error()["balance"].is_string());
    assert!(refused.error()["billing_url"].is_string());
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn a_response_has_the_headers_of_a_chat_completion() {
    let gateway = TestGateway::start().await;
    let path = format!("/operator/accounts/{}/grants", gateway.account_id);
    let grant = json!({ "amount": "1", "expires_at": "2090-01-01T00:00:00Z" });
    let given = gateway.operate(Method::POST, &path, Some(grant)).await;
    given.assert_ok();
    let hybrid = asking(json!({ "model": "svc-hybrid-cost", "tool_execution": "passthrough" }));
    let request = gateway.request(Method::POST, PATH).json(&hybrid);
    let whole = answer(request.header("x-request-id", "my-own")).await;
    assert_eq!(whole.assert_ok()["model"], "svc-hybrid-cost");
    gateway.upstream.answer_chunks(&two_words());
    let stream = gateway.open_events(&hybrid).await;
    for headers in [&whole.headers, stream.headers()] {
        assert_eq!(headers["x-credits-expire-at"], "2090-01-01T00:00:00Z");
        let target = headers["x-routed-model"].to_str().unwrap();
        assert!(target.starts_with("svc-") && !target.contains("hybrid"));
        assert!(
            headers
                .keys()
                .all(|name| !name.as_str().starts_with("x-ratelimit"))
        );
    }
    assert_eq!(whole.headers["x-request-id"], "my-own");
    stream.text().await.unwrap();
}

#[tokio::test]
async fn an_error_before_a_stream_begins_is_an_ordinary_error() {
    let gateway = TestGateway::start().await;
    let error_event = "data: {\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n";
    let begun = chunk(json!({ "role": "assistant", "content": "" }), None);
    for body in [
        String::new(),
        "data: [DONE]\n\n".into(),
        error_event.into(),
        format!("data: {begun}\n\n{error_event}"),
    ] {
        gateway.upstream.answer_stream(&body);
        let response = gateway.open_events(&asking(json!({}))).await;
        assert_eq!(response.status(), 502, "{body}");
        assert_eq!(response.headers()["content-type"], "application/json");
        let error: Value = response.json().await.unwrap();
        assert_eq!(error["error"]["type"], "upstream_error");
        assert_eq!(error["error"]["code"], Value::Null);
        assert_eq!(error["error"]["param"], Value::Null);
        assert_eq!(error.as_object().unwrap().len(), 1);
    }
    gateway.upstream.answer_json(503, &json!({}));
    let response = gateway.open_events(&asking(json!({}))).await;
    assert_eq!(response.status(), 502);
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["code"], "503");
    let refused = gateway
        .open_events(&asking(json!({ "model": "none" })))
        .await;
    assert_eq!(refused.status(), 404);
}
