//! Hybrids (§2.8): escalation to another target after a failure or a poor response, and its charge.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, Step,
    hybrids::{Hybrids, question, question_with, routed, status},
    responses::{calling, tool_call},
    turns::CONVERT,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

#[tokio::test]
async fn a_failure_before_the_first_byte_goes_up_a_tier() {
    let empty = {
        let mut answer = completion("");
        answer["choices"][0]["message"]["content"] = json!("");
        response(200, "application/json", &answer.to_string())
    };
    let silent = events(&[chunk(json!({}), Some("stop")), usage_chunk(9, 1)]);
    let silent = [stream_head(), silent.into_bytes()].concat();
    let cases = [
        (false, status(500), "TIER_ESCALATED_5XX"),
        (true, status(503), "TIER_ESCALATED_5XX"),
        (false, vec![Step::Reset], "TIER_ESCALATED_5XX"),
        (
            false,
            vec![Step::Pause(std::time::Duration::from_secs(4))],
            "TIER_ESCALATED_TIMEOUT",
        ),
        (false, vec![Step::Send(empty)], "TIER_ESCALATED_EMPTY"),
        (true, vec![Step::Send(silent)], "TIER_ESCALATED_EMPTY"),
    ];
    // With built-in tools on offer, and without.
    let executions = ["execute", "passthrough"];
    let cases = cases
        .iter()
        .flat_map(|case| executions.map(|execution| (case.clone(), execution)));
    for ((streamed, steps, reason), execution) in cases {
        let hybrids = Hybrids::start().await;
        hybrids.failing(&["small"], steps);
        let mut body = question_with("low", json!({ "tool_execution": execution }));
        body["stream"] = streamed.into();
        let request = hybrids
            .gateway
            .request(Method::POST, "/v1/chat/completions");
        let sent = request.header("x-request-id", "up").json(&body).send();
        let answer = sent.await.unwrap();
        assert_eq!(answer.status(), 200, "{reason}");
        assert_eq!(answer.headers()["x-routed-model"], "middle");
        assert!(answer.text().await.unwrap().contains("middle"));
        assert_eq!(hybrids.models_called(), ["small", "middle"]);
        let details = hybrids.details("up").await;
        assert_eq!(details["routed_model"], "middle");
        assert_eq!(details["settlement"]["charge"], "0.004100");
        assert_eq!(details["failed_attempts"].as_array().unwrap().len(), 1);
        let decision = &details["decision"];
        assert_eq!(decision["chosen"], "middle");
        assert_eq!(decision["reason"], reason);
        let up = json!([{ "from": "small", "to": "middle", "reason": reason }]);
        assert_eq!(decision["escalations"], up);
    }
}

/// If the request demands JSON, a response that is not JSON is a poor one.
#[tokio::test]
async fn a_response_that_is_not_json_goes_up_a_tier() {
    let said = |text: &str| {
        let answer = completion(text).to_string();
        vec![Step::Send(response(200, "application/json", &answer))]
    };
    let json = json!({ "response_format": { "type": "json_object" },
        "messages": [{ "role": "user", "content": "Give me JSON" }] });
    for (text, wants_json, called) in [
        ("Here you are", true, &["small", "middle"][..]),
        ("```json\n{}\n```", true, &["small", "middle"]),
        (r#"{"a": [1, 2]}"#, true, &["small"]),
        ("Here you are", false, &["small"]),
    ] {
        let hybrids = Hybrids::start().await;
        hybrids.failing(&["small"], said(text));
        let more = if wants_json { json.clone() } else { json!({}) };
        let answer = hybrids.gateway.chat(&question_with("low", more)).await;
        assert_eq!(routed(&answer), *called.last().unwrap());
        assert_eq!(hybrids.models_called(), called, "{text}");
        if called.len() > 1 {
            let decision = &hybrids.details_of(&answer).await["decision"];
            assert_eq!(decision["reason"], "TIER_ESCALATED_NOT_JSON");
        }
    }
    // There is one escalation only: the second response is relayed whatever it is.
    let hybrids = Hybrids::start().await;
    hybrids.failing(&["small", "middle", "large"], said("no"));
    let body = question_with("low", json);
    let answer = hybrids.gateway.chat(&body).await;
    assert_eq!(routed(&answer), "middle");
    assert_eq!(hybrids.models_called(), ["small", "middle"]);
    // If the better target fails, the poor response is relayed and charged.
    let hybrids = Hybrids::start().await;
    hybrids.gateway.upstream.play_for_each(move |received| {
        if received.body["model"] == "small" {
            said("no")
        } else {
            status(500)
        }
    });
    let answer = hybrids.gateway.chat(&body).await;
    assert_eq!(routed(&answer), "small");
    assert_eq!(hybrids.models_called(), ["small", "middle", "large"]);
    assert_eq!(answer.body["choices"][0]["message"]["content"], "no");
    let details = hybrids.details_of(&answer).await;
    assert_eq!(details["routed_model"], "small");
    assert_eq!(details["decision"]["chosen"], "small");
    assert_eq!(details["settlement"]["prices"]["prompt"], "0.0000001");
}

/// A poor response is better than none, and it is never replaced by a worse one.
#[tokio::test]
async fn a_poor_answer_is_kept_while_a_better_target_is_tried() {
    let end = chunk(json!({}), Some("stop"));
    let silent = events(&[end, usage_chunk(100, 1)]);
    let silent = [stream_head(), silent.into_bytes()].concat();
    let empty = {
        let mut answer = completion("");
        answer["usage"] =
            json!({ "prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101 });
        response(200, "application/json", &answer.to_string())
    };
    for (stream, execution) in [
        (false, "execute"),
        (false, "passthrough"),
        (true, "execute"),
        (true, "passthrough"),
    ] {
        let hybrids = Hybrids::start().await;
        let poor = if stream {
            silent.clone()
        } else {
            empty.clone()
        };
        hybrids.gateway.upstream.play_for_each(move |received| {
            match received.body["model"].as_str().unwrap() {
                "middle" => vec![Step::Send(poor.clone())],
                "large" => status(500),
                // This target would respond, but it is not better.
                other => {
                    let answer = completion(other).to_string();
                    vec![Step::Send(response(200, "application/json", &answer))]
                }
            }
        });
        let mut body = question_with("mid", json!({ "tool_execution": execution }));
        body["stream"] = stream.into();
        let request = hybrids
            .gateway
            .request(Method::POST, "/v1/chat/completions");
        let sent = request.header("x-request-id", "poor").json(&body).send();
        let answer = sent.await.unwrap();
        assert_eq!(answer.status(), 200, "{stream} {execution}");
        assert_eq!(answer.headers()["x-routed-model"], "middle");
        answer.text().await.unwrap();
        assert_eq!(hybrids.models_called(), ["middle", "large"]);
        let details = hybrids.details("poor").await;
        assert_eq!(details["routed_model"], "middle");
        assert_eq!(details["decision"]["chosen"], "middle");
        assert_eq!(details["settlement"]["charge"], "0.000104");
    }
}

/// A request with tools whose first target failed: all its steps go to the next tier.
#[tokio::test]
async fn tools_are_run_for_the_target_that_serves_after_a_failure() {
    for responses in [false, true] {
        let hybrids = Hybrids::start().await;
        hybrids.gateway.upstream.play_for_each(|received| {
            let body = &received.body;
            let messages = body["messages"].as_array().unwrap();
            let counted = |mut answer: Value| {
                answer["usage"] = json!({ "prompt_tokens": 1_000, "completion_tokens": 1_000,
                    "total_tokens": 2_000 });
                vec![Step::Send(response(
                    200,
                    "application/json",
                    &answer.to_string(),
                ))]
            };
            match messages.last().unwrap()["role"].as_str().unwrap() {
                _ if body["model"] != "middle" => status(500),
                "tool" => counted(completion("It is a billion.")),
                _ => counted(calling(&[tool_call(CONVERT.0, CONVERT.1, CONVERT.2)])),
            }
        });
        let answer = if responses {
            let body = json!({ "model": "low", "input": "Hello" });
            hybrids.gateway.respond(&body).await
        } else {
            hybrids.gateway.chat(&question("low")).await
        };
        assert_eq!(routed(&answer), "middle");
        assert_eq!(hybrids.models_called(), ["small", "middle", "middle"]);
        let details = hybrids.details_of(&answer).await;
        assert_eq!(details["model"], "low");
        assert_eq!(details["routed_model"], "middle");
        // Two steps of 1,000 and 1,000 tokens at 1.00 and 4.00 dollars per million.
        assert_eq!(details["settlement"]["charge"], "0.010000");
        assert_eq!(details["steps"].as_array().unwrap().len(), 3);
    }
}

/// A tool conversation that one model began is not continued by another.
#[tokio::test]
async fn after_a_first_step_the_target_stays() {
    let hybrids = Hybrids::start().await;
    hybrids.gateway.upstream.play_for_each(|received| {
        let messages = received.body["messages"].as_array().unwrap();
        if messages.last().unwrap()["role"] == "tool" {
            return status(500);
        }
        let answer = calling(&[tool_call(CONVERT.0, CONVERT.1, CONVERT.2)]);
        vec![Step::Send(response(
            200,
            "application/json",
            &answer.to_string(),
        ))]
    });
    let answer = hybrids.gateway.chat(&question("low")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.models_called(), ["small", "small"]);
    let details = hybrids.details_of(&answer).await;
    assert_eq!(details["settlement"]["charge"], "0.000000");
}

/// A target whose circuit opens during the call is skipped.
#[tokio::test]
async fn a_target_that_has_failed_meanwhile_is_skipped() {
    let hybrids = Hybrids::start().await;
    let gate = Gate::default();
    let opened = gate.clone();
    hybrids.gateway.upstream.play_for_each(move |received| {
        match received.body["model"].as_str().unwrap() {
            "small" => [vec![Step::Until(opened.clone())], status(500)].concat(),
            "middle" => {
                let rest = b"HTTP/1.1 503 X\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n";
                vec![Step::Send(rest.to_vec())]
            }
            other => {
                let answer = completion(other).to_string();
                vec![Step::Send(response(200, "application/json", &answer))]
            }
        }
    });
    let body = question("low");
    let (answer, ()) = tokio::join!(hybrids.gateway.chat(&body), async {
        crate::support::gateway::until("the provider gets the request", || {
            hybrids.gateway.upstream.calls() == 1
        })
        .await;
        let refused = hybrids.gateway.chat(&question("middle")).await;
        assert_eq!(refused.status, 502);
        gate.open();
    });
    assert_eq!(routed(&answer), "large");
    assert_eq!(hybrids.models_called(), ["small", "middle", "large"]);
}

/// Settings that one target does not support may be supported by another.
#[tokio::test]
async fn each_target_gets_the_settings_it_supports() {
    let hybrids = Hybrids::start().await;
    hybrids.failing(&["small"], status(500));
    let body = question_with("low", json!({ "temperature": 0.5, "seed": 7 }));
    assert_eq!(routed(&hybrids.gateway.chat(&body).await), "middle");
    let received = hybrids.gateway.upstream.received();
    let sent = |at: usize, key: &str| received[at].body[key].clone();
    assert_eq!(
        [sent(0, "temperature"), sent(0, "seed")],
        [json!(null), json!(7)]
    );
    assert_eq!(
        [sent(1, "temperature"), sent(1, "seed")],
        [json!(0.5), json!(7)]
    );
}

#[tokio::test]
async fn when_all_fail_each_was_tried_and_nothing_is_charged() {
    let hybrids = Hybrids::start().await;
    for (hybrid, order) in [
        ("low", &["small", "middle", "large"][..]),
        ("high", &["large", "middle"]),
    ] {
        let before = hybrids.models_called().len();
        hybrids.failing(&["small", "middle", "large"], status(500));
        let answer = hybrids.gateway.chat(&question(hybrid)).await;
        assert_eq!(answer.status, 502);
        assert_eq!(hybrids.models_called()[before..], *order);
        let details = hybrids.details_of(&answer).await;
        assert_eq!(details["settlement"]["charge"], "0.000000");
    }
    // An error in the request is an error for every target.
    let before = hybrids.models_called().len();
    hybrids.failing(&["small"], status(400));
    let answer = hybrids.gateway.chat(&question("low")).await;
    assert_eq!(answer.status, 502);
    assert_eq!(hybrids.models_called()[before..], ["small"]);
}
