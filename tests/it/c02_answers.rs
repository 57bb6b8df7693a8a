//! §2.5: complete responses, whatever the provider sends.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::support::{
    TestGateway,
    bodies::{hello_with, tool},
    gateway::hello,
    models::{MODELS, has_prompt_caching},
    upstream::completion,
};

const MODEL: &str = "svc-native-fast";

/// The response to a greeting, without its ID and time, which are asserted here because they always differ.
async fn answer(gateway: &TestGateway, upstream: &Value) -> Value {
    gateway.upstream.answer_json(200, upstream);
    let answer = gateway.chat(&hello(MODEL)).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert!(answer.headers.contains_key("x-request-id"));
    let mut body = answer.assert_ok().clone();
    let id = body["id"].as_str().unwrap();
    assert!(id.starts_with("chatcmpl-") && id.len() > 20, "{id}");
    assert_ne!(Some(id), answer.headers["x-request-id"].to_str().ok());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let age = now.unwrap().as_secs() - body["created"].as_u64().unwrap();
    assert!(age < 60, "created {age} seconds ago");
    body["id"] = "[id]".into();
    body["created"] = "[created]".into();
    body
}

/// A provider's response with this message.
fn message(message: &Value, finish: Option<&str>) -> Value {
    let mut upstream = completion("");
    upstream["choices"][0]["message"] = message.clone();
    upstream["choices"][0]["finish_reason"] = finish.into();
    upstream
}

fn call(name: &str) -> Value {
    json!({ "id": "call_1", "type": "function", "function": { "name": name, "arguments": "{\"a\":1}" } })
}

#[tokio::test]
async fn a_plain_answer() {
    let gateway = TestGateway::start().await;
    let body = answer(&gateway, &completion("Grüß dich 😀\n\u{0}")).await;
    insta::assert_json_snapshot!(body, @r#"
    {
      "id": "[id]",
      "object": "chat.completion",
      "created": "[created]",
      "model": "svc-native-fast",
      "choices": [
        {
          "index": 0,
          "message": {
            "role": "assistant",
            "content": "Grüß dich 😀\n\u0000"
          },
          "finish_reason": "stop"
        }
      ],
      "usage": {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "total_tokens": 14,
        "cost": "0.0000046",
        "prompt_tokens_details": {
          "cached_tokens": 0,
          "cache_write_tokens": 0
        }
      }
    }
    "#);
}

#[tokio::test]
async fn an_answer_that_calls_tools() {
    let gateway = TestGateway::start().await;
    let calls = json!([call("f"), {
        "id": "call_2", "type": "function", "index": 1, "provider_specific": true,
        "function": { "name": "g", "arguments": "" },
    }]);
    let upstream = message(
        &json!({ "role": "assistant", "content": null, "tool_calls": calls }),
        Some("tool_calls"),
    );
    insta::assert_json_snapshot!(answer(&gateway, &upstream).await, @r#"
    {
      "id": "[id]",
      "object": "chat.completion",
      "created": "[created]",
      "model": "svc-native-fast",
      "choices": [
        {
          "index": 0,
          "message": {
            "role": "assistant",
            "content": null,
            "tool_calls": [
              {
                "id": "call_1",
                "type": "function",
                "function": {
                  "name": "f",
                  "arguments": "{\"a\":1}"
                }
              },
              {
                "id": "call_2",
                "type": "function",
                "function": {
                  "name": "g",
                  "arguments": "{}"
                }
              }
            ]
          },
          "finish_reason": "tool_calls"
        }
      ],
      "usage": {
        "prompt_tokens": 11,
        "completion_tokens": 3,
        "total_tokens": 14,
        "cost": "0.0000046",
        "prompt_tokens_details": {
          "cached_tokens": 0,
          "cache_write_tokens": 0
        }
      }
    }
    "#);
}

#[tokio::test]
async fn an_answer_drops_everything_a_provider_adds() {
    let gateway = TestGateway::start().await;
    let mut upstream = completion("Hello");
    upstream["service_tier"] = "priority".into();
    upstream["provider"] = "vendor".into();
    upstream["choices"][0]["native_finish_reason"] = "end_turn".into();
    upstream["choices"][0]["message"]["annotations"] = json!([]);
    upstream["choices"][0]["message"]["reasoning_content"] = "vendor thoughts".into();
    upstream["choices"][0]["logprobs"] =
        json!({ "content": [{ "token": "Hello", "logprob": -0.1 }] });
    upstream["usage"] = json!({
        "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150, "cost": 0.5,
        "prompt_tokens_details": { "cached_tokens": 64, "audio_tokens": 0 },
        "completion_tokens_details": { "reasoning_tokens": 30, "audio_tokens": 0 },
    });
    insta::assert_json_snapshot!(answer(&gateway, &upstream).await, @r#"
    {
      "id": "[id]",
      "object": "chat.completion",
      "created": "[created]",
      "model": "svc-native-fast",
      "choices": [
        {
          "index": 0,
          "message": {
            "role": "assistant",
            "content": "Hello"
          },
          "logprobs": {
            "content": [
              {
                "token": "Hello",
                "logprob": -0.1
              }
            ]
          },
          "finish_reason": "stop"
        }
      ],
      "usage": {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "total_tokens": 150,
        "cost": "0.00004848",
        "prompt_tokens_details": {
          "cached_tokens": 64,
          "cache_write_tokens": 0
        },
        "completion_tokens_details": {
          "reasoning_tokens": 30
        }
      }
    }
    "#);
}

#[tokio::test]
async fn the_finish_reason_is_one_of_four() {
    let gateway = TestGateway::start().await;
    let text = json!({ "role": "assistant", "content": "Hello" });
    let calls = json!({ "role": "assistant", "content": null, "tool_calls": [call("f")] });
    let refusal = json!({ "role": "assistant", "content": null, "refusal": "I won't." });
    for (upstream, finish, normal) in [
        (&text, Some("stop"), "stop"),
        (&text, Some("length"), "length"),
        (&text, Some("content_filter"), "content_filter"),
        (&text, Some("max_tokens"), "length"),
        (&text, Some("eos"), "stop"),
        (&text, Some("end_turn"), "stop"),
        (&text, Some("stop_sequence"), "stop"),
        (&text, Some("refusal"), "content_filter"),
        (&text, Some(""), "stop"),
        (&text, None, "stop"),
        (&text, Some("tool_calls"), "stop"),
        (&calls, Some("tool_calls"), "tool_calls"),
        (&calls, Some("function_call"), "tool_calls"),
        (&calls, Some("tool_use"), "tool_calls"),
        (&calls, Some("stop"), "tool_calls"),
        (&calls, Some("eos"), "tool_calls"),
        (&calls, None, "tool_calls"),
        (&calls, Some("length"), "length"),
        (&refusal, Some("stop"), "content_filter"),
        // The values as other vendors spell them.
        (&text, Some("STOP"), "stop"),
        (&text, Some("MAX_TOKENS"), "length"),
        (&text, Some("SAFETY"), "content_filter"),
    ] {
        let body = answer(&gateway, &message(upstream, finish)).await;
        let choice = &body["choices"][0];
        assert_eq!(choice["finish_reason"], normal, "{finish:?} of {upstream}");
        assert_eq!(choice["message"]["content"], upstream["content"]);
    }
}

/// An error reported by a provider is a failure even with status 200.
#[tokio::test]
async fn a_failure_is_not_a_finish() {
    let gateway = TestGateway::start().await;
    let text = json!({ "role": "assistant", "content": "Hel" });
    for word in ["error", "aborted", "cancelled", "timeout"] {
        gateway
            .upstream
            .answer_json(200, &message(&text, Some(word)));
        let answer = gateway.chat(&hello(MODEL)).await;
        answer.assert_error(502, "upstream_error", None, None);
    }
}

#[tokio::test]
async fn content_beside_calls_is_kept_and_an_empty_one_is_null() {
    let gateway = TestGateway::start().await;
    for (content, shown) in [
        (json!("Let me see."), json!("Let me see.")),
        (json!(""), Value::Null),
        (json!(null), Value::Null),
    ] {
        let upstream =
            json!({ "role": "assistant", "content": content, "tool_calls": [call("f")] });
        let body = answer(&gateway, &message(&upstream, Some("tool_calls"))).await;
        assert_eq!(body["choices"][0]["message"]["content"], shown, "{content}");
    }
    let upstream = json!({ "role": "assistant", "content": "Hi", "tool_calls": [] });
    let body = answer(&gateway, &message(&upstream, Some("stop"))).await;
    assert_eq!(body["choices"][0]["message"].get("tool_calls"), None);
}

#[tokio::test]
async fn a_call_without_an_id_gets_one() {
    let gateway = TestGateway::start().await;
    for id in [json!(null), json!("")] {
        let (mut first, mut second) = (call("f"), call("f"));
        first["id"] = id.clone();
        second["id"] = id;
        let upstream =
            json!({ "role": "assistant", "content": null, "tool_calls": [first, second] });
        let body = answer(&gateway, &message(&upstream, Some("stop"))).await;
        let calls = &body["choices"][0]["message"]["tool_calls"];
        let ids = [0, 1].map(|at| calls[at]["id"].as_str().unwrap().to_owned());
        assert!(ids.iter().all(|id| (6..=40).contains(&id.len())), "{ids:?}");
        assert_ne!(ids[0], ids[1]);
    }
}

#[tokio::test]
async fn the_model_shown_is_the_one_asked_for() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        let body = hello_with(model, json!({ "tools": [tool("f")] }));
        let answer = gateway.chat(&body).await;
        assert_eq!(answer.assert_ok()["model"], model);
        assert_eq!(answer.body["object"], "chat.completion");
        let head = format!("{:?}", answer.headers);
        for shown in [answer.body.to_string(), head] {
            for name in ["vendor", "fp_upstream", "upstream-id", "fingerprint"] {
                assert!(!shown.contains(name), "{model}: {shown}");
            }
        }
    }
}

#[tokio::test]
async fn cached_tokens_are_shown_where_the_model_caches() {
    let gateway = TestGateway::start().await;
    for (details, cached) in [
        (
            json!({ "prompt_tokens_details": { "cached_tokens": 8 } }),
            8,
        ),
        (json!({ "prompt_tokens_details": null }), 0),
        (json!({ "prompt_tokens_details": {} }), 0),
        (json!({ "prompt_cache_hit_tokens": 7 }), 7),
        (json!({}), 0),
    ] {
        let mut upstream = completion("Hello");
        let usage = upstream["usage"].as_object_mut().unwrap();
        usage.extend(details.as_object().unwrap().clone());
        gateway.upstream.answer_json(200, &upstream);
        for model in MODELS {
            let body = hello_with(model, json!({ "tools": [tool("f")] }));
            let answer = gateway.chat(&body).await;
            let usage = &answer.assert_ok()["usage"];
            let expected = json!({ "cached_tokens": cached, "cache_write_tokens": 0 });
            let expected = has_prompt_caching(model).then_some(&expected);
            assert_eq!(usage.get("prompt_tokens_details"), expected, "{model}");
        }
    }
}

/// §2.5: the total is the sum of both counts, whatever total the provider sent.
#[tokio::test]
async fn the_total_is_the_sum() {
    let gateway = TestGateway::start().await;
    for total in [json!(14), json!(0), json!(9_999), json!(null)] {
        let mut upstream = completion("Hello");
        upstream["usage"]["total_tokens"] = total;
        let body = answer(&gateway, &upstream).await;
        let expected = json!({ "prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14,
            "cost": "0.0000046",
            "prompt_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 } });
        assert_eq!(body["usage"], expected);
    }
}

#[tokio::test]
async fn every_requested_completion_is_returned() {
    let gateway = TestGateway::start().await;
    let choice = |index: Value| {
        json!({ "index": index, "finish_reason": "stop",
            "message": { "role": "assistant", "content": format!("number {index}") } })
    };
    let mut upstream = completion("");
    upstream["choices"] = json!([choice(json!(0)), choice(json!(1)), choice(json!(2))]);
    gateway.upstream.answer_json(200, &upstream);
    let answer = gateway.chat(&hello_with(MODEL, json!({ "n": 3 }))).await;
    let choices = answer.assert_ok()["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 3);
    for (at, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], at);
        assert_eq!(choice["message"]["content"], format!("number {at}"));
    }
}
