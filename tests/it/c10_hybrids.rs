//! Hybrids (§2.8): which target is chosen, and what is charged for it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, Step,
    bodies::tool,
    gateway::{self, Plan},
    hybrids::{Hybrids, question, question_with, routed, status},
    upstream::{completion, response},
};

#[tokio::test]
async fn the_serving_target_is_named_charged_and_recorded() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    for (hybrid, target, reason, cost) in [
        ("low", "small", "TIER_SCORE", "0.000410"),
        ("high", "large", "TIER_SCORE", "0.041000"),
        ("cheap", "thrifty", "COST_OK", "0.000041"),
        ("plain", "thrifty", "COST_ONLY_FIT", "0.000041"),
    ] {
        let answer = hybrids.gateway.chat(&question(hybrid)).await;
        assert_eq!(routed(&answer), target);
        assert_eq!(answer.body["model"], hybrid);
        let details = hybrids.details_of(&answer).await;
        assert_eq!(details["model"], hybrid);
        assert_eq!(details["routed_model"], target);
        assert_eq!(details["settlement"]["charge"], cost);
        assert_eq!(details["decision"]["chosen"], target);
        assert_eq!(details["decision"]["reason"], reason);
        let stream = hybrids.gateway.open_stream(&question(hybrid)).await;
        assert_eq!(stream.headers()["x-routed-model"], target);
        stream.text().await.unwrap();
    }
    let plain = hybrids.gateway.chat(&question("small")).await;
    assert_eq!(hybrids.details_of(&plain).await["decision"], json!(null));
    let routing = hybrids.get("/operator/routing").await;
    let rows = routing["hybrids"].as_array().unwrap();
    let row = rows.iter().find(|row| row["model"] == "low").unwrap();
    assert_eq!(row["answered"], 2);
    assert_ne!(row["estimated_saving"], "0.000000");
    let saved = row["estimated_saving"].clone();
    let chosen = json!([{ "routed_model": "small", "reason": "TIER_SCORE", "answered": 2,
        "estimated_saving": saved }]);
    assert_eq!(row["chosen"], chosen);
    let explained = hybrids.explain(&question("low")).await;
    for tier in 0..4 {
        let expected = explained.assert_ok()["quality"][tier].as_f64().unwrap();
        let shown = row["quality"]["p50"][tier].as_f64().unwrap();
        assert!((expected - shown).abs() <= 0.005, "{row}");
    }
    let url = format!("http://{}/metrics", hybrids.gateway.operator);
    let request = hybrids.gateway.client.get(url);
    let request = request.bearer_auth(crate::support::gateway::OPERATOR_TOKEN);
    let metrics = request.send().await.unwrap().text().await.unwrap();
    let counted = r#"tollgate_routed_total{hybrid="low",model="small",reason="TIER_SCORE"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");
    assert!(
        metrics.contains("tollgate_route_seconds_count 8"),
        "{metrics}"
    );
}

/// The hold must cover every target that may still serve the call.
#[tokio::test]
async fn the_hold_covers_the_most_expensive_possible_target() {
    let hybrids = Hybrids::start().await;
    let gate = Gate::default();
    let body = completion("Hi").to_string();
    hybrids.gateway.upstream.play(vec![
        Step::Until(gate.clone()),
        Step::Send(response(200, "application/json", &body)),
    ]);
    let request = question_with("low", json!({ "max_tokens": 1_000 }));
    let (answer, ()) = tokio::join!(hybrids.gateway.chat(&request), async {
        crate::support::gateway::until("the provider gets the request", || {
            hybrids.gateway.upstream.calls() == 1
        })
        .await;
        let path = format!("/operator/accounts/{}", hybrids.gateway.account_id);
        let held = hybrids.get(&path).await["held"].clone();
        let held: f64 = held.as_str().unwrap().parse().unwrap();
        assert!(
            (0.04..0.05).contains(&held),
            "1,000 tokens of `large`: {held}"
        );
        gate.open();
    });
    assert_eq!(routed(&answer), "small");
    // Credit for the chosen target alone is not enough.
    hybrids.answering();
    let body = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let made = hybrids
        .gateway
        .operate(Method::POST, "/operator/accounts", Some(body))
        .await;
    let id = made.assert_ok()["id"].as_str().unwrap();
    let path = format!("/operator/accounts/{id}/grants");
    let grant = Some(json!({ "amount": "0.01" }));
    let given = hybrids.gateway.operate(Method::POST, &path, grant).await;
    given.assert_ok();
    let (_, key) = hybrids.gateway.new_key(id).await;
    assert_eq!(hybrids.gateway.chat_as(&key, &request).await.status, 402);
    let small = question_with("small", json!({ "max_tokens": 1_000 }));
    hybrids.gateway.chat_as(&key, &small).await.assert_ok();
}

/// No request is routed to a model that its account could not call by name: neither as the first choice nor after a
/// failure.
#[tokio::test]
async fn a_plan_is_routed_to_its_own_models_alone() {
    let hybrids = Hybrids::start().await;
    let (free_id, free) = hybrids.gateway.account(Plan::FREE).await;
    let (_, max) = hybrids.gateway.account(Plan::MAX).await;
    hybrids.failing(&["small"], status(500));
    let answer = hybrids.gateway.chat_as(&max, &question("mixed")).await;
    assert_eq!(routed(&answer), "vip");
    let before = hybrids.models_called().len();
    let answer = hybrids.gateway.chat_as(&free, &question("mixed")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.models_called()[before..], ["small"]);
    let details = hybrids.details_of(&answer).await;
    let candidates = details["decision"]["candidates"].as_array().unwrap();
    let vip = candidates.iter().find(|one| one["model"] == "vip").unwrap();
    assert_eq!(vip["rejected"], "not_entitled");
    // If all enabled targets are outside of the account's plan, the hybrid does not exist for it: not in the list
    // either.
    let sees = async |key: &str| {
        let get = |path: &str| {
            let url = hybrids.gateway.url(path);
            gateway::answer(hybrids.gateway.client.get(url).bearer_auth(key))
        };
        let list = get("/v1/models").await;
        let one = get("/v1/models/mixed").await;
        let listed = list.assert_ok()["data"].as_array().unwrap().clone();
        let listed = listed.iter().any(|model| model["id"] == "mixed");
        assert_eq!(one.status, if listed { 200 } else { 404 });
        listed
    };
    assert!(sees(&free).await);
    hybrids.set("small", false).await;
    let refused = hybrids.gateway.chat_as(&free, &question("mixed")).await;
    refused.assert_error(
        404,
        "invalid_request_error",
        Some("model_not_found"),
        Some("model"),
    );
    assert_eq!((sees(&free).await, sees(&max).await), (false, true));
    // A dry run is for one account, or without one for all models.
    let path = format!("/operator/routing/explain?account={free_id}");
    let body = Some(question("mixed"));
    let explained = hybrids
        .gateway
        .operate(Method::POST, &path, body.clone())
        .await;
    assert_eq!(explained.status, 404);
    let path = format!("/operator/routing/explain?account={free_id}");
    let above = Some(question("svc-hybrid-tiered"));
    let explained = hybrids.gateway.operate(Method::POST, &path, above).await;
    assert_eq!(
        explained.status, 403,
        "the hybrid itself is not of this plan"
    );
    let path = "/operator/routing/explain";
    let explained = hybrids
        .gateway
        .operate(Method::POST, path, body.clone())
        .await;
    assert_eq!(explained.assert_ok()["chosen"], "vip");
    let path = "/operator/routing/explain?account=acct_nobody";
    let explained = hybrids.gateway.operate(Method::POST, path, body).await;
    assert_eq!(explained.status, 404);
}

/// Thanks and other courtesies are scored by the conversation's topic.
#[tokio::test]
async fn a_courtesy_keeps_the_target_of_the_question() {
    let hybrids = Hybrids::start().await;
    let hard = json!({ "role": "user", "content": "Prove that there are infinitely many primes." });
    let ask = |messages: Value| question_with("low", json!({ "messages": messages }));
    let alone = hybrids.explain(&ask(json!([hard]))).await;
    let shall = json!({ "role": "assistant", "content": "Shall I use Euclid's way?" });
    let please = json!({ "role": "user", "content": "Ok, please!" });
    let later = hybrids.explain(&ask(json!([hard, shall, please]))).await;
    assert_eq!(later.assert_ok()["quality"], alone.assert_ok()["quality"]);
    assert_eq!(later.body["contributions"], alone.body["contributions"]);
    let hello = json!({ "role": "user", "content": "Hello!" });
    let hello = hybrids.explain(&ask(json!([hello]))).await;
    assert_eq!(hello.assert_ok()["quality"], json!([1.0, 1.0, 1.0, 1.0]));
}

#[tokio::test]
async fn targets_that_are_disabled_or_open_circuit_are_skipped() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let rejected = async |model: &str| {
        let answer = hybrids.explain(&question("low")).await;
        let decision = answer.assert_ok();
        let mut candidates = decision["candidates"].as_array().unwrap().iter();
        let found = candidates.find(|one| one["model"] == model).unwrap();
        found["rejected"].clone()
    };
    assert_eq!(rejected("small").await, json!(null));
    hybrids.set("small", false).await;
    assert_eq!(rejected("small").await, "disabled");
    assert_eq!(
        routed(&hybrids.gateway.chat(&question("low")).await),
        "middle"
    );
    hybrids.set("small", true).await;
    let rest = b"HTTP/1.1 503 X\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
    hybrids.failing(&["small"], vec![Step::Send(rest.to_vec())]);
    assert_eq!(hybrids.gateway.chat(&question("small")).await.status, 502);
    assert_eq!(rejected("small").await, "unhealthy");
    let before = hybrids.models_called().len();
    assert_eq!(
        routed(&hybrids.gateway.chat(&question("low")).await),
        "middle"
    );
    assert_eq!(
        hybrids.models_called()[before..],
        ["middle"],
        "it gets no request"
    );
    // If the circuits of all targets are open, one is tried all the same, and no other after it.
    let rest = vec![Step::Send(rest.to_vec())];
    hybrids.failing(&["small", "middle", "large"], rest);
    for model in ["middle", "large"] {
        assert_eq!(hybrids.gateway.chat(&question(model)).await.status, 502);
    }
    let before = hybrids.models_called().len();
    let answer = hybrids.gateway.chat(&question("low")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.models_called()[before..], ["small"]);
    let details = hybrids.details_of(&answer).await;
    assert_eq!(details["decision"]["reason"], "FALLBACK_HEALTH");
}

#[tokio::test]
async fn a_demand_that_no_target_supports_is_named() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let tools = json!({ "tools": [tool("look")] });
    let schema = json!({ "response_format": { "type": "json_schema", "json_schema": {
        "name": "x", "schema": { "type": "object" },
    } }, "tool_execution": "passthrough" });
    for (more, param, words) in [
        (tools, "tools", "takes these tools"),
        (schema, "response_format", "keeps to a JSON schema"),
    ] {
        let cheap = hybrids
            .gateway
            .chat(&question_with("cheap", more.clone()))
            .await;
        assert_eq!(routed(&cheap), "small", "the cheaper one cannot");
        let refused = hybrids.gateway.chat(&question_with("plain", more)).await;
        refused.assert_error(400, "invalid_request_error", None, Some(param));
        let message = refused.error()["message"].as_str().unwrap();
        assert!(
            message.contains("`plain`") && message.contains(words),
            "{message}"
        );
    }
}

#[tokio::test]
async fn a_conversation_stays_where_it_is_while_tools_are_called() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let turn = |more: &[Value]| {
        let mut messages =
            vec![json!({ "role": "user", "content": "Look up the weather in Rome" })];
        messages.extend_from_slice(more);
        json!({ "model": "turn", "messages": messages, "tools": [tool("look")] })
    };
    let reason = async |body: &Value| {
        let answer = hybrids.gateway.chat(body).await;
        let details = hybrids.details_of(&answer).await;
        let reason = details["decision"]["reason"].as_str().unwrap().to_owned();
        (routed(&answer).to_owned(), reason)
    };
    assert_eq!(
        reason(&turn(&[])).await,
        ("small".into(), "TURN_FIRST".into())
    );
    let called = [
        json!({ "role": "assistant", "tool_calls": [
            { "id": "c", "type": "function", "function": { "name": "look", "arguments": "{}" } },
        ] }),
        json!({ "role": "tool", "tool_call_id": "c", "content": "Sunny" }),
    ];
    let locked = ("small".to_owned(), "TURN_LOCK_TOOL".to_owned());
    assert_eq!(reason(&turn(&called)).await, locked);
    let go_on = [
        json!({ "role": "assistant", "content": "Sunny." }),
        json!({ "role": "user", "content": "And then?" }),
    ];
    let body = turn(&go_on);
    assert_eq!(
        hybrids.explain(&body).await.assert_ok()["reason"],
        "TURN_CONTINUATION"
    );
    let went_on = ("small".to_owned(), "TURN_CONTINUATION".to_owned());
    assert_eq!(reason(&body).await, went_on);
    // A disabled target serves no call, even of a conversation that is locked to it.
    hybrids.set("small", false).await;
    assert_eq!(reason(&turn(&called)).await.0, "large");
    // An equal conversation of another account is a different one.
    let (_, other) = hybrids.gateway.account(Plan::FLEX).await;
    hybrids.set("small", true).await;
    let answer = hybrids.gateway.chat_as(&other, &turn(&called)).await;
    let details = hybrids.details_of(&answer).await;
    assert_eq!(details["decision"]["reason"], "TURN_FIRST");
}

#[tokio::test]
async fn topics_are_recognized_by_examples_and_by_domain() {
    let hybrids = Hybrids::start().await;
    hybrids.answering();
    let code = "Write a Python function that sorts a list of integers without using sorted().";
    for (prompt, target, reason, route) in [
        (
            "i want my money BACK!",
            "large",
            "SEM_EXEMPLAR",
            json!("refunds"),
        ),
        (code, "middle", "SEM_DOMAIN", json!("programs")),
        ("Hello", "small", "SEM_DEFAULT", json!(null)),
    ] {
        let messages = json!([{ "role": "user", "content": prompt }]);
        let body = question_with("kinds", json!({ "messages": messages }));
        let answer = hybrids.gateway.chat(&body).await;
        assert_eq!(routed(&answer), target, "{prompt}");
        let decision = &hybrids.details_of(&answer).await["decision"];
        assert_eq!(decision["reason"], reason);
        assert_eq!(decision["route"], route);
    }
}

/// The dry run's choice equals the real one, and a dry run changes no state.
#[tokio::test]
async fn an_explanation_equals_the_later_choice() {
    let hybrids = Hybrids::start().await;
    hybrids.gateway.upstream.answer_json(200, &completion("Hi"));
    let long = "Prove that the sum of 17 and 25 is 42, then 99 * 12345. ".repeat(40);
    for prompt in [
        "Which lake is deepest?",
        "fn main() { let x = (1 + 2); }",
        &long,
    ] {
        for hybrid in ["semantic", "cost", "tiered", "turn"] {
            let body = json!({
                "model": format!("svc-hybrid-{hybrid}"),
                "messages": [{ "role": "user", "content": prompt }],
            });
            let before = hybrids.gateway.upstream.calls();
            let mut explained = hybrids.explain(&body).await.assert_ok().clone();
            assert_eq!(hybrids.gateway.upstream.calls(), before);
            let answer = hybrids.gateway.chat(&body).await;
            assert_eq!(explained["chosen"], routed(&answer));
            let contributions = explained.as_object_mut().unwrap();
            let contributions = contributions.remove("contributions").unwrap();
            assert_eq!(contributions.as_array().unwrap().len(), 3);
            let mut decision = hybrids.details_of(&answer).await["decision"].take();
            assert_eq!(decision["router"], hybrid);
            for one in [&mut explained, &mut decision] {
                assert!(one["route_us"].take().is_u64());
            }
            assert_eq!(explained, decision);
        }
    }
    let refused = hybrids.explain(&question("small")).await;
    refused.assert_error(400, "invalid_request_error", None, Some("model"));
    let refused = hybrids.explain(&question("nobody")).await;
    assert_eq!(refused.status, 404);
}
