//! Charges are bounded: the most that a call can cost is fixed when it is admitted, whatever its caller sends and
//! whatever its provider reports.

use std::{fmt::Write as _, time::Duration};

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, Step, TestGateway,
    bodies::hello_with,
    gateway::{answer, hello},
    turns::{CONVERT, Turn},
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// Costs 0.20 / 0.80 dollars per million tokens; no minimum, no built-in tools.
const MODEL: &str = "svc-native-fast";
/// Costs 2.00 / 9.00 dollars per million tokens; at least 128 output tokens if the request names no budget.
const CAPPED: &str = "svc-standard";
/// The largest input and output of these models.
const CONTEXT: u32 = 1_050_000;
const MAX_OUTPUT: u32 = 66_000;

/// Creates an account with this much credit and returns its ID and a key.
async fn account_with(gateway: &TestGateway, dollars: &str) -> (String, String) {
    let body = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let made = gateway.operate(Method::POST, "/operator/accounts", Some(body));
    let id = made.await.assert_ok()["id"].as_str().unwrap().to_owned();
    let grants = format!("/operator/accounts/{id}/grants");
    let grant = Some(json!({ "amount": dollars }));
    let given = gateway.operate(Method::POST, &grants, grant).await;
    given.assert_ok();
    let (_, key) = gateway.new_key(&id).await;
    (id, key)
}

/// The balance in nano-dollars, once no call is running.
async fn balance(gateway: &TestGateway, id: &str) -> i64 {
    gateway.idle().await;
    let path = format!("/operator/accounts/{id}");
    let account = gateway.operate(Method::GET, &path, None).await;
    assert_eq!(account.assert_ok()["held"], "0.000000");
    nanos(&account.body["balance"])
}

fn nanos(dollars: &Value) -> i64 {
    let text = dollars.as_str().unwrap();
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let (whole, decimals) = text.split_once('.').unwrap();
    sign * format!("{whole}{decimals:0<9}").parse::<i64>().unwrap()
}

/// The details of a finished request.
async fn details(gateway: &TestGateway, request_id: &str) -> Value {
    let path = format!("/operator/requests/{request_id}");
    let details = gateway.operate(Method::GET, &path, None).await;
    details.assert_ok().clone()
}

/// Makes the provider report these counts, in plain and in streamed responses.
fn reports(gateway: &TestGateway, prompt: u32, output: u32) {
    let mut whole = completion("Hi");
    whole["usage"] = json!({ "prompt_tokens": prompt, "completion_tokens": output });
    let whole = response(200, "application/json", &whole.to_string());
    let last = [
        chunk(json!({ "content": "Hi" }), Some("stop")),
        usage_chunk(prompt, output),
    ];
    let streamed = [stream_head(), events(&last).into_bytes()].concat();
    gateway.upstream.play_for_each(move |request| {
        if request.body["stream"] == true {
            vec![Step::Send(streamed.clone()), Step::Close]
        } else {
            vec![Step::Send(whole.clone())]
        }
    });
}

/// Request bodies that are large and that an estimate might take for small.
fn attacks() -> Vec<Value> {
    let said = |text: &str| json!([{ "role": "user", "content": text }]);
    let with = |messages: Value, more: Value| {
        let mut body = hello_with(MODEL, more);
        body["messages"] = messages;
        body
    };
    let long = "word ".repeat(20_000);
    let tool = json!({ "type": "function", "function": { "name": "f", "description": long } });
    let format = json!({ "name": "f", "description": long, "schema": { "type": "object" } });
    let call =
        json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": long } });
    vec![
        with(said("Hello"), json!({ "max_tokens": 10 })),
        with(said("Hello"), json!({})),
        with(said("Hello"), json!({ "max_tokens": 1, "n": 128 })),
        with(said(&"\r\n".repeat(100_000)), json!({ "max_tokens": 10 })),
        with(said(&"\t \n".repeat(50_000)), json!({ "max_tokens": 10 })),
        with(
            json!([{ "role": "user", "content": "Hi", "name": long }]),
            json!({ "max_tokens": 10 }),
        ),
        with(said("Hi"), json!({ "max_tokens": 10, "stop": [long] })),
        with(
            said("Hi"),
            json!({ "max_tokens": 10, "thinking": { "note": long } }),
        ),
        with(said("Hi"), json!({ "max_tokens": 10, "tools": [tool] })),
        with(
            said("Hi"),
            json!({ "max_tokens": 10, "response_format": { "type": "json_schema", "json_schema": format } }),
        ),
        with(
            json!([
                { "role": "user", "content": "Hi" },
                { "role": "assistant", "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "c", "content": "1" },
            ]),
            json!({ "max_tokens": 10 }),
        ),
    ]
}

#[tokio::test]
async fn no_request_and_no_provider_exceed_the_overdraft() {
    let gateway = TestGateway::start_set(&[("CREDIT__MAX_OVERDRAFT", "0.10")]).await;
    reports(&gateway, CONTEXT, MAX_OUTPUT);
    for body in attacks() {
        let (id, key) = account_with(&gateway, "0.05").await;
        let calls = (0..12).map(|at| {
            let mut body = body.clone();
            body["stream"] = (at % 2 == 1).into();
            let url = gateway.url("/v1/chat/completions");
            let request = gateway.client.post(url).bearer_auth(&key).json(&body);
            async { request.send().await.unwrap().error_for_status().is_ok() }
        });
        let answered = join_all(calls).await.into_iter().filter(|ok| *ok).count();
        let left = balance(&gateway, &id).await;
        let start = body.to_string().chars().take(120).collect::<String>();
        assert!(left >= -100_000_000, "{start}: {left}");
        assert!(answered > 0, "{start}: nothing was tried");
        let usage = format!("/operator/accounts/{id}/usage");
        let rows = gateway.operate(Method::GET, &usage, None).await;
        let rows = rows.assert_ok()["data"].as_array().unwrap().clone();
        assert_eq!(rows.len(), answered, "{start}: every answer was charged");
    }
}

#[tokio::test]
async fn usage_beyond_the_bound_is_not_charged() {
    let gateway = TestGateway::start().await;
    reports(&gateway, CONTEXT, MAX_OUTPUT);
    let (id, key) = account_with(&gateway, "1").await;
    for stream in [false, true] {
        let before = balance(&gateway, &id).await;
        let body = hello_with(MODEL, json!({ "max_tokens": 10, "stream": stream }));
        let url = gateway.url("/v1/chat/completions");
        let request = gateway.client.post(url).bearer_auth(&key).json(&body);
        let answered = request.send().await.unwrap();
        let request_id = answered.headers()["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned();
        answered.text().await.unwrap();
        let left = balance(&gateway, &id).await;
        let details = details(&gateway, &request_id).await;
        let usage = &details["settlement"]["usage"];
        assert_eq!(usage["completion_tokens"], 10, "{details}");
        let prompt = usage["prompt_tokens"].as_i64().unwrap();
        // Five letters, the account's ID, and the allowances for a request and a message.
        assert!((117..160).contains(&prompt), "{details}");
        assert_eq!(before - left, prompt * 200 + 10 * 800);
        assert_eq!(details["hold"]["most"], details["settlement"]["charge"]);
    }
    let metrics = format!("http://{}/metrics", gateway.operator);
    let metrics = gateway
        .client
        .get(metrics)
        .bearer_auth(crate::support::gateway::OPERATOR_TOKEN);
    let metrics = metrics.send().await.unwrap().text().await.unwrap();
    let counted = "tollgate_usage_over_bound_total{upstream=\"fake\"} 2";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Each step has its own bound; a step's unused part is not available to another.
#[tokio::test]
async fn steps_with_tools_are_bounded_one_by_one() {
    let gateway = TestGateway::start().await;
    let (id, key) = account_with(&gateway, "20").await;
    let huge = |turn: Turn| turn.using(CONTEXT, MAX_OUTPUT);
    gateway
        .upstream
        .converse([huge(Turn::calls(&[CONVERT])), huge(Turn::says("Done"))]);
    let body = hello_with("svc-basic", json!({ "max_tokens": 50 }));
    let answered = gateway.chat_as(&key, &body).await;
    assert_eq!(answered.assert_ok()["usage"]["completion_tokens"], 100);
    let request_id = answered.headers["x-request-id"].to_str().unwrap();
    let details = details(&gateway, request_id).await;
    let (charge, most) = (&details["settlement"]["charge"], &details["hold"]["most"]);
    assert!(nanos(charge) <= nanos(most), "{details}");
    assert_eq!(balance(&gateway, &id).await, 20_000_000_000 - nanos(charge));
}

#[tokio::test]
async fn definitions_of_built_in_tools_are_reserved_and_held() {
    let gateway = TestGateway::start().await;
    let mut found = Vec::new();
    for execution in ["execute", "passthrough"] {
        let body = hello_with(
            "svc-basic",
            json!({ "tool_execution": execution, "max_tokens": 10 }),
        );
        let answered = gateway.chat(&body).await;
        answered.assert_ok();
        let details = details(&gateway, answered.headers["x-request-id"].to_str().unwrap()).await;
        let reserved = details["admission"]["reserved_tokens"].as_i64().unwrap();
        found.push((reserved, nanos(&details["hold"]["amount"])));
    }
    let [(with, held), (without, less)] = found[..] else {
        unreachable!()
    };
    // Seven tools with some hundred tokens each.
    assert!(with > without + 500, "{with} and {without}");
    assert_eq!(held - less, (with - without) * 5_000, "at 5.00 a million");
}

/// Equal texts reserve equal amounts, however they are escaped.
#[tokio::test]
async fn escaped_text_reserves_as_much_as_plain_text() {
    let gateway = TestGateway::start().await;
    let russian = "Шлюз резервирует средства до вызова. ".repeat(30);
    let units = russian.encode_utf16();
    let escaped = units.fold(String::new(), |mut json, unit| {
        let _ = write!(json, "\\u{unit:04x}");
        json
    });
    let mut reserved = Vec::new();
    for text in [&russian, &escaped] {
        let body =
            format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"{text}"}}]}}"#);
        let answered = gateway.chat_text(body).await;
        answered.assert_ok();
        let details = details(&gateway, answered.headers["x-request-id"].to_str().unwrap()).await;
        reserved.push((details["admission"].clone(), details["hold"].clone()));
    }
    assert_eq!(
        reserved[0].0["reserved_tokens"],
        reserved[1].0["reserved_tokens"]
    );
    assert_eq!(reserved[0].1, reserved[1].1);
}

/// The hold uses the minimum output that the gateway applies; the reservation in the window is unaffected.
#[tokio::test]
async fn a_minimum_that_the_gateway_applies_is_what_is_held() {
    let gateway = TestGateway::start().await;
    let (_, key) = account_with(&gateway, "0.01").await;
    let body = hello_with(CAPPED, json!({ "tool_execution": "passthrough" }));
    let answered = gateway.chat_as(&key, &body).await;
    answered.assert_ok();
    assert_eq!(gateway.upstream.last_body()["max_tokens"], 128);
    let details = details(&gateway, answered.headers["x-request-id"].to_str().unwrap()).await;
    let reserved = details["admission"]["reserved_tokens"].as_i64().unwrap();
    let input = reserved - 4_096;
    assert!((1..200).contains(&input), "{details}");
    assert_eq!(
        nanos(&details["hold"]["amount"]),
        input * 2_000 + 128 * 9_000
    );
}

#[tokio::test]
async fn a_refusal_for_credit_names_the_amount_and_what_would_fit() {
    let gateway = TestGateway::start().await;
    let (_, key) = account_with(&gateway, "0.01").await;
    let ask = async |tokens: u64| {
        let body = hello_with(
            CAPPED,
            json!({ "max_tokens": tokens, "tool_execution": "passthrough" }),
        );
        gateway.chat_as(&key, &body).await
    };
    let refused = ask(60_000).await;
    refused.assert_error(402, "insufficient_credits", Some("payment_required"), None);
    let error = refused.error();
    assert_eq!(refused.headers["x-should-retry"], "false");
    assert!(!refused.headers.contains_key("retry-after"));
    assert_eq!(
        (&error["available"], &error["held"]),
        (&json!("0.010000"), &json!("0.000000"))
    );
    assert!(nanos(&error["needed"]) >= 60_000 * 9_000, "{error}");
    let fits = error["max_tokens_that_fit"].as_u64().unwrap();
    assert!((1_000..1_111).contains(&fits), "{fits}");
    assert_eq!(ask(fits + 1).await.error()["max_tokens_that_fit"], fits);
    ask(fits).await.assert_ok();

    let (_, poor) = account_with(&gateway, "0.000001").await;
    let refused = gateway.chat_as(&poor, &hello(CAPPED)).await;
    assert_eq!(refused.error()["max_tokens_that_fit"], Value::Null);
    assert_eq!(refused.headers["x-should-retry"], "false");
}

#[tokio::test]
async fn a_refusal_because_of_running_calls_may_be_retried() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (_, key) = account_with(&gateway, "0.01").await;
    let gate = Gate::default();
    let whole = response(200, "application/json", &completion("Hi").to_string());
    gateway
        .upstream
        .play(vec![Step::Until(gate.clone()), Step::Send(whole)]);
    let body = hello_with(
        CAPPED,
        json!({ "max_tokens": 900, "tool_execution": "passthrough" }),
    );
    let url = gateway.url("/v1/chat/completions");
    let first = answer(gateway.client.post(url).bearer_auth(&key).json(&body));
    let second = async {
        while gateway.upstream.calls() == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let refused = gateway.chat_as(&key, &body).await;
        gate.open();
        refused
    };
    let (first, refused) = tokio::join!(first, second);
    first.assert_ok();
    refused.assert_error(402, "insufficient_credits", Some("payment_required"), None);
    assert_eq!(refused.headers["x-should-retry"], "true");
    assert_eq!(refused.headers["retry-after"], "1");
    let error = refused.error();
    assert!(nanos(&error["held"]) >= 900 * 9_000, "{error}");
    assert!(
        nanos(&error["needed"]) > nanos(&error["available"]),
        "{error}"
    );
    gateway.chat_as(&key, &body).await.assert_ok();
}

#[tokio::test]
async fn responses_hold_the_largest_of_three_budgets() {
    let gateway = TestGateway::start().await;
    let ask = async |more: Value| {
        let mut body = json!({ "model": MODEL, "input": "Hello", "store": false });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        answer(gateway.request(Method::POST, "/v1/responses").json(&body)).await
    };
    for (budgets, largest) in [
        (json!({ "max_output_tokens": 77 }), 77),
        (json!({ "max_tokens": 78 }), 78),
        (json!({ "max_completion_tokens": 79 }), 79),
        (
            json!({ "max_output_tokens": 10, "max_tokens": 300, "max_completion_tokens": 20 }),
            300,
        ),
    ] {
        let answered = ask(budgets.clone()).await;
        answered.assert_ok();
        assert_eq!(
            gateway.upstream.last_body()["max_tokens"],
            largest,
            "{budgets}"
        );
        let request_id = answered.headers["x-request-id"].to_str().unwrap();
        let reserved = &details(&gateway, request_id).await["admission"]["reserved_tokens"];
        assert!(
            (largest..largest + 40).contains(&reserved.as_u64().unwrap()),
            "{budgets}"
        );
    }
    for name in ["max_tokens", "max_completion_tokens"] {
        let refused = ask(json!({ name: 66_001 })).await;
        refused.assert_error(400, "invalid_request_error", None, Some(name));
    }
}
