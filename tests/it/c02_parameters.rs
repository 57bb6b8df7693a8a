//! §2.1: sampling parameters are dropped, forwarded or refused, model by model.

use serde_json::{Value, json};

use crate::support::{
    Plan, TestGateway,
    bodies::{hello_with, tool},
    gateway::hello,
    models::{MODELS, drops},
};

/// A model that drops no parameter and has no minimum output.
const KEEPER: &str = "svc-native-fast";

/// Each sampling parameter with an allowed value and forbidden ones.
fn parameters() -> Vec<(&'static str, Value, Vec<Value>)> {
    let many = vec!["a", "b", "c", "d", "e"];
    vec![
        (
            "temperature",
            json!(0.7),
            vec![json!(-0.001), json!(2.001), json!("hot"), json!([1])],
        ),
        (
            "top_p",
            json!(0.9),
            vec![json!(-0.001), json!(1.001), json!("1"), json!(true)],
        ),
        ("top_k", json!(40), vec![json!("many"), json!(1.5)]),
        ("seed", json!(-7), vec![json!("x"), json!(0.5), json!({})]),
        (
            "frequency_penalty",
            json!(0.5),
            vec![json!(-2.001), json!(2.001), json!("0")],
        ),
        (
            "presence_penalty",
            json!(-0.5),
            vec![json!(-2.001), json!(2.001), json!({})],
        ),
        (
            "logit_bias",
            json!({ "50256": -100, "11": 0.5 }),
            vec![json!([]), json!({ "11": "much" }), json!(5)],
        ),
        ("logprobs", json!(true), vec![json!("yes"), json!(1)]),
        ("top_logprobs", json!(5), vec![json!("5"), json!(true)]),
        (
            "stop",
            json!(["END", "\n\n"]),
            vec![json!(5), json!([5]), json!({}), json!(many)],
        ),
    ]
}

#[tokio::test]
async fn each_model_drops_what_its_provider_rejects_and_nothing_else() {
    let gateway = TestGateway::start().await;
    let mut more = json!({});
    for (name, value, _) in parameters() {
        more[name] = value;
    }
    for model in MODELS {
        let sent = gateway.forwards(&hello_with(model, more.clone())).await;
        for (name, value, _) in parameters() {
            let expected = (!drops(model, name)).then_some(&value);
            assert_eq!(sent.get(name), expected, "{name} on {model}");
        }
    }
}

#[tokio::test]
async fn a_parameter_is_dropped_or_kept_whatever_comes_with_it() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        for (name, value, _) in parameters() {
            let sent = gateway
                .forwards(&hello_with(model, json!({ name: value })))
                .await;
            let expected = (!drops(model, name)).then_some(&value);
            assert_eq!(sent.get(name), expected, "{name} alone on {model}");
        }
    }
}

#[tokio::test]
async fn a_wrong_value_is_refused_unless_the_parameter_is_dropped() {
    let gateway = TestGateway::start().await;
    for model in MODELS {
        for (name, _, wrong) in parameters() {
            for value in wrong {
                let body = hello_with(model, json!({ name: value }));
                if drops(model, name) {
                    let sent = gateway.forwards(&body).await;
                    assert_eq!(sent.get(name), None, "{body}");
                } else {
                    gateway.refuses(&body, name).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_range_includes_its_bounds() {
    let gateway = TestGateway::start().await;
    for (name, low, high) in [
        ("temperature", 0.0, 2.0),
        ("top_p", 0.0, 1.0),
        ("frequency_penalty", -2.0, 2.0),
        ("presence_penalty", -2.0, 2.0),
    ] {
        for bound in [low, high] {
            let sent = gateway
                .forwards(&hello_with(KEEPER, json!({ name: bound })))
                .await;
            assert_eq!(sent[name].as_f64(), Some(bound), "{name}");
        }
        // The next representable number above the bound.
        gateway
            .refuses(&hello_with(KEEPER, json!({ name: high.next_up() })), name)
            .await;
        gateway
            .refuses(&hello_with(KEEPER, json!({ name: low.next_down() })), name)
            .await;
    }
}

#[tokio::test]
async fn whole_numbers_serve_as_numbers() {
    let gateway = TestGateway::start().await;
    for (name, value) in [
        ("temperature", 1),
        ("top_p", 1),
        ("frequency_penalty", -2),
        ("presence_penalty", 0),
    ] {
        let sent = gateway
            .forwards(&hello_with(KEEPER, json!({ name: value })))
            .await;
        assert_eq!(sent[name].as_f64(), Some(f64::from(value)), "{name}");
    }
}

#[tokio::test]
async fn stop_is_a_string_or_up_to_four() {
    let gateway = TestGateway::start().await;
    for (stop, forwarded) in [
        (json!("END"), json!(["END"])),
        (json!(["END"]), json!(["END"])),
        (json!(["a", "b", "c", "d"]), json!(["a", "b", "c", "d"])),
        (json!("\u{0}😀"), json!(["\u{0}😀"])),
        (json!([]), Value::Null),
        (json!(null), Value::Null),
    ] {
        let sent = gateway
            .forwards(&hello_with(KEEPER, json!({ "stop": stop })))
            .await;
        assert_eq!(sent["stop"], forwarded, "{stop}");
    }
    let five = json!({ "stop": ["a", "b", "c", "d", "e"] });
    gateway.refuses(&hello_with(KEEPER, five), "stop").await;
}

#[tokio::test]
async fn passthrough_fields_arrive_as_they_were_sent() {
    let gateway = TestGateway::start().await;
    let more = json!({
        "n": 3, "logprobs": false, "top_logprobs": 20, "parallel_tool_calls": false,
        "reasoning_effort": "medium", "tools": [tool("f")],
        "thinking": { "type": "enabled", "budget_tokens": 2048, "later": [1.50, { "x": null }] },
    });
    for model in [KEEPER, "svc-pro", "svc-hybrid-cost", "svc-flex-alpha-5.6"] {
        let sent = gateway.forwards(&hello_with(model, more.clone())).await;
        for (name, value) in more.as_object().unwrap() {
            assert_eq!(sent.get(name), Some(value), "{name} on {model}");
        }
    }
}

#[tokio::test]
async fn the_thinking_block_is_not_rewritten() {
    let gateway = TestGateway::start().await;
    let block = r#"{"type":"enabled", "budget_tokens":1e3,"note":"\u00fc"}"#;
    let body = format!(
        r#"{{"model":"{KEEPER}","messages":[{{"role":"user","content":"Hi"}}],"thinking":{block}}}"#
    );
    gateway.chat_text(body).await.assert_ok();
    let text = gateway.upstream.last_text();
    assert!(text.contains(&format!(r#""thinking":{block}"#)), "{text}");
}

#[tokio::test]
async fn reasoning_effort_has_three_levels_and_knows_its_newer_names() {
    let gateway = TestGateway::start().await;
    for (effort, forwarded) in [
        ("low", Some("low")),
        ("medium", Some("medium")),
        ("high", Some("high")),
        ("minimal", Some("low")),
        ("xhigh", Some("high")),
        ("max", Some("high")),
        ("none", None),
    ] {
        let sent = gateway
            .forwards(&hello_with(KEEPER, json!({ "reasoning_effort": effort })))
            .await;
        let found = sent.get("reasoning_effort").and_then(Value::as_str);
        assert_eq!(found, forwarded, "{effort}");
    }
    for wrong in [json!("extreme"), json!(""), json!("LOW"), json!(3)] {
        let body = hello_with(KEEPER, json!({ "reasoning_effort": wrong }));
        gateway.refuses(&body, "reasoning_effort").await;
    }
}

#[tokio::test]
async fn n_must_be_at_least_one() {
    let gateway = TestGateway::start().await;
    for wrong in [json!(0), json!(-1), json!(1.5), json!("2"), json!(true)] {
        gateway
            .refuses(&hello_with(KEEPER, json!({ "n": wrong })), "n")
            .await;
    }
}

#[tokio::test]
async fn the_user_is_the_account_of_the_key() {
    let gateway = TestGateway::start().await;
    let (other_account, other_key) = gateway.account(Plan::FREE).await;
    assert_ne!(other_account, gateway.account_id);
    for body in [
        hello(KEEPER),
        hello_with(KEEPER, json!({ "user": "mallory" })),
        hello_with(KEEPER, json!({ "user": other_account })),
        hello_with(KEEPER, json!({ "user": null })),
    ] {
        let sent = gateway.forwards(&body).await;
        assert_eq!(sent["user"], gateway.account_id, "{body}");
        gateway.chat_as(&other_key, &body).await.assert_ok();
        assert_eq!(gateway.upstream.last_body()["user"], other_account);
    }
}

/// JSON has one kind of number: a number without a fractional part is an integer.
#[tokio::test]
async fn a_whole_number_may_be_written_with_a_point() {
    let gateway = TestGateway::start().await;
    for (field, written, forwarded) in [
        ("max_tokens", "10.0", json!(10)),
        ("max_tokens", "1e2", json!(100)),
        ("n", "2.0", json!(2)),
        ("n", "1", json!(1)),
        ("seed", "-7.0", json!(-7)),
        ("seed", "-0", json!(0)),
        ("top_k", "5.0", json!(5)),
    ] {
        let body = hello_with(KEEPER, json!({ field: "here" })).to_string();
        let body = body.replace("\"here\"", written);
        gateway.chat_text(body).await.assert_ok();
        assert_eq!(gateway.upstream.last_body()[field], forwarded, "{written}");
    }
    for (field, wrong) in [
        ("max_tokens", "10.5"),
        ("n", "1e300"),
        ("seed", "0.5"),
        ("max_tokens", "-1.0"),
    ] {
        let body = hello_with(KEEPER, json!({ field: "here" })).to_string();
        gateway
            .refuses_text(body.replace("\"here\"", wrong), Some(field))
            .await;
    }
}

/// Error messages use JSON's type names, not those of the Rust types.
#[tokio::test]
async fn a_wrong_type_is_named_in_json_terms() {
    let gateway = TestGateway::start().await;
    let surrogate =
        r#"{"model":"svc-native-fast","messages":[{"role":"user","content":"half \ud83d"}]}"#;
    let in_part = r#"{"model":"svc-native-fast","messages":[{"role":"user","content":[{"type":"text","text":"\ud83d"}]}]}"#;
    let with = |more: Value| hello_with(KEEPER, more).to_string();
    for (body, words) in [
        (
            with(json!({ "max_tokens": "many" })),
            "expected a whole number of at least 0",
        ),
        (
            with(json!({ "max_tokens": -5 })),
            "expected a whole number of at least 0",
        ),
        (with(json!({ "n": {} })), "invalid type: object"),
        (with(json!({ "tools": ["f"] })), "expected an object"),
        (with(json!({ "tools": [[1, 2]] })), "wrong type"),
        (with(json!({ "tools": {} })), "expected an array"),
        (with(json!({ "messages": "Hi" })), "expected an array"),
        (with(json!({ "messages": [5] })), "expected an object"),
        (with(json!({ "response_format": [] })), "expected"),
        (with(json!({ "stream": "yes" })), "expected a boolean"),
        (with(json!({ "stream_options": 5 })), "expected an object"),
        (surrogate.to_owned(), "half of a surrogate pair"),
        (in_part.to_owned(), "half of a surrogate pair"),
        (
            with(json!({ "messages": [{ "role": "user", "content": 5 }] })),
            "expected a string or an array",
        ),
    ] {
        let refused = gateway.chat_text(body.clone()).await;
        assert_eq!(refused.status, 400, "{body}");
        let message = refused.error()["message"].as_str().unwrap();
        assert!(message.contains(words), "{body}: {message}");
        for ours in [
            "u64", "i64", "u32", "struct ", "enum ", "Written", "sequence", "map,", "variant",
        ] {
            assert!(!message.contains(ours), "{body}: {message}");
        }
    }
}

/// An empty sequence stops nothing, and some providers refuse it.
#[tokio::test]
async fn an_empty_stop_sequence_is_dropped() {
    let gateway = TestGateway::start().await;
    for (sent, forwarded) in [
        (json!(""), None),
        (json!([""]), None),
        (json!([]), None),
        (json!(["", "end", ""]), Some(json!(["end"]))),
        (json!(["", "", "", "", "", "end"]), Some(json!(["end"]))),
    ] {
        let sent = gateway
            .forwards(&hello_with(KEEPER, json!({ "stop": sent })))
            .await;
        assert_eq!(sent.get("stop"), forwarded.as_ref());
    }
}

#[tokio::test]
async fn modalities_other_than_text_are_refused() {
    let gateway = TestGateway::start().await;
    for fine in [json!(["text"]), json!([]), json!(null)] {
        let sent = gateway
            .forwards(&hello_with(KEEPER, json!({ "modalities": fine })))
            .await;
        assert_eq!(sent.get("modalities"), None);
    }
    for wrong in [json!(["text", "audio"]), json!(["audio"]), json!(["image"])] {
        let body = hello_with(KEEPER, json!({ "modalities": wrong }));
        gateway.refuses(&body, "modalities").await;
    }
}
