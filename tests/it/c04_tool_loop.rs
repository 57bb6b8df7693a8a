//! SPEC §4.1, tool systems: the tools that the gateway runs itself, step by step.

use serde_json::{Value, json};

use crate::support::{
    Books, TestGateway,
    bodies::hello_with,
    books::MODEL,
    gateway::hello,
    turns::{BUILT_IN, CONVERT, CONVERTED, Call, Turn, calls_json, offered, usage},
};

fn tool_message((id, _, _): Call, text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": text })
}

#[tokio::test]
async fn a_model_that_calls_nothing_is_asked_once() {
    let gateway = TestGateway::start().await;
    for stream in [false, true] {
        let purse = gateway.purse().await;
        let before = gateway.upstream.calls();
        gateway.upstream.converse([Turn::says("Hello there")]);
        let id = format!("plain-{stream}");
        let heard = purse.hear(&id, &hello(MODEL), stream).await.unwrap();
        assert_eq!(heard.choices, [("Hello there".into(), "stop".into())]);
        assert_eq!(heard.usage, usage(11, 3));
        assert_eq!(gateway.upstream.calls() - before, 1);
        assert_eq!(purse.books().await, Books::charged(1));
        assert_eq!(gateway.steps(&id).await, ["fake - 11+3"]);
    }
}

#[tokio::test]
async fn a_call_is_run_and_the_model_asked_again() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let purse = gateway.purse().await;
        gateway
            .upstream
            .converse([Turn::calls(&[CONVERT]), Turn::says("A billion.")]);
        let heard = purse.hear("one", &hello(MODEL), stream).await.unwrap();
        assert_eq!(heard.choices, [("A billion.".into(), "stop".into())]);
        assert_eq!(heard.usage, usage(22, 6), "of both");
        assert_eq!(purse.books().await, Books::charged_steps(2));
        let steps = [
            "fake tool_calls 11+3",
            "convert_units done",
            "fake stop 11+3",
        ];
        assert_eq!(gateway.steps("one").await, steps);
        let received = gateway.upstream.received();
        let [first, second] = received.as_slice() else {
            panic!("asked twice: {}", received.len());
        };
        let mut messages = first.body["messages"].as_array().unwrap().clone();
        messages.push(json!({ "role": "assistant", "content": null,
                              "tool_calls": calls_json(&[CONVERT]) }));
        messages.push(tool_message(CONVERT, CONVERTED));
        let mut expected = first.body.clone();
        expected["messages"] = messages.into();
        assert_eq!(second.body, expected, "all else as it was");
        for request in &received {
            let sent = format!("{}{}", request.head, request.text);
            assert!(!sent.contains(&purse.key), "a key is for the gateway alone");
        }
        let metrics = gateway
            .client
            .get(format!("http://{}/metrics", gateway.operator));
        let metrics = metrics.bearer_auth(crate::support::gateway::OPERATOR_TOKEN);
        let metrics = metrics.send().await.unwrap().text().await.unwrap();
        let counted = metrics.lines().any(|line| {
            line.contains("convert_units") && line.contains("done") && line.ends_with(" 1")
        });
        assert!(counted, "{metrics}");
    }
}

/// What each step used is summed, cached input and all, and charged as one.
#[tokio::test]
async fn steps_follow_each_other_until_the_model_answers() {
    const ADDRESS: Call = ("call_b", "inspect_address", r#"{"address":"0x12"}"#);
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let purse = gateway.purse().await;
        gateway.upstream.converse([
            Turn::calls(&[CONVERT]).using(100, 10).cached(40),
            Turn::calls(&[ADDRESS]).using(200, 20),
            Turn::says("Done.").using(300, 30).cached(60),
        ]);
        let heard = purse.hear("two", &hello(MODEL), stream).await.unwrap();
        assert_eq!(heard.choices, [("Done.".into(), "stop".into())]);
        let mut sum = usage(600, 60);
        sum["prompt_tokens_details"] = json!({ "cached_tokens": 100 });
        assert_eq!(heard.usage, sum);
        let expected = Books {
            spent: 500 * 2_000 + 100 * 200 + 60 * 9_000,
            charges: 1,
            requests: 1,
            tokens: 660,
        };
        assert_eq!(purse.books().await, expected);
        let steps = [
            "fake tool_calls 100+10",
            "convert_units done",
            "fake tool_calls 200+20",
            "inspect_address done",
            "fake stop 300+30",
        ];
        assert_eq!(gateway.steps("two").await, steps);
        let settlement = gateway.story("two").await["settlement"].clone();
        assert_eq!(settlement["usage"]["total_tokens"], 660);
        assert_eq!(settlement["charge"], "0.001560");
        let messages = gateway.upstream.messages();
        assert_eq!(messages[2][..messages[1].len()], messages[1][..]);
        let added = &messages[2][messages[1].len()..];
        assert_eq!(added[0]["tool_calls"], calls_json(&[ADDRESS]));
        assert_eq!(added[1]["tool_call_id"], "call_b");
        assert_eq!(added.len(), 2);
    }
}

#[tokio::test]
async fn calls_side_by_side_are_run_in_order_with_a_message_each() {
    const CALLS: [Call; 3] = [
        CONVERT,
        ("call_2", "inspect_address", r#"{"address":"nonsense"}"#),
        (
            "call_3",
            "convert_units",
            r#"{"amount":"5","from":"satoshi","to":"bitcoin"}"#,
        ),
    ];
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let purse = gateway.purse().await;
        gateway
            .upstream
            .converse([Turn::calls(&CALLS), Turn::says("Done.")]);
        let body = hello_with(MODEL, json!({ "parallel_tool_calls": true }));
        purse.hear("many", &body, stream).await.unwrap();
        let messages = gateway.upstream.messages();
        let added = &messages[1][messages[0].len()..];
        assert_eq!(added[0]["tool_calls"], calls_json(&CALLS));
        let ids: Vec<_> = added[1..]
            .iter()
            .map(|said| &said["tool_call_id"])
            .collect();
        assert_eq!(ids, ["call_convert", "call_2", "call_3"]);
        assert_eq!(added[1]["content"], CONVERTED);
        let last = added[3]["content"].as_str().unwrap();
        assert!(last.contains("0.00000005"), "{last}");
        assert_eq!(purse.books().await, Books::charged_steps(2));
        assert_eq!(gateway.steps("many").await.len(), 5);
        assert_eq!(gateway.upstream.last_body()["parallel_tool_calls"], true);
    }
}

/// What goes wrong with a tool is told to the model, and never an invented number.
#[tokio::test]
async fn a_tool_that_fails_is_a_message_to_the_model() {
    for stream in [false, true] {
        for (name, arguments, words, step) in [
            (
                "rm_rf",
                "{}",
                "there is no tool `rm_rf`",
                "(unknown) unknown_tool",
            ),
            (
                "convert_units",
                r#"{"amount": "1"#,
                "",
                "convert_units bad_arguments",
            ),
            ("convert_units", "[]", "", "convert_units bad_arguments"),
            ("convert_units", "null", "", "convert_units bad_arguments"),
            (
                "convert_units",
                r#"{"amount":"1","from":"ether","to":"satoshi"}"#,
                "",
                "convert_units failed",
            ),
            (
                "crypto_price",
                r#"{"symbols":["BTC"]}"#,
                "market data is not configured",
                "crypto_price failed",
            ),
        ] {
            let gateway = TestGateway::start().await;
            let purse = gateway.purse().await;
            let call: Call = ("call_x", name, arguments);
            gateway
                .upstream
                .converse([Turn::calls(&[call]), Turn::says("I could not.")]);
            let heard = purse.hear("failing", &hello(MODEL), stream).await.unwrap();
            assert_eq!(heard.choices, [("I could not.".into(), "stop".into())]);
            let messages = gateway.upstream.messages();
            let added = &messages[1][messages[0].len()..];
            assert_eq!(
                added[0]["tool_calls"],
                calls_json(&[call]),
                "as it was written"
            );
            assert_eq!(added[1]["tool_call_id"], "call_x");
            let said = added[1]["content"].as_str().unwrap();
            assert!(!said.is_empty() && said.contains(words), "{said}");
            let no_number = name != "crypto_price" || !said.contains(|c: char| c.is_ascii_digit());
            assert!(no_number, "{said}");
            assert_eq!(
                gateway.steps("failing").await[1],
                step,
                "{name} {arguments}"
            );
            assert_eq!(purse.books().await, Books::charged_steps(2));
        }
    }
}

/// Calls beyond the most that are run in one answer are answered too, or the provider would refuse
/// the conversation.
#[tokio::test]
async fn of_too_many_calls_the_last_are_not_run() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let purse = gateway.purse().await;
        let calls: Vec<Call> = (0..18)
            .map(|number| {
                let id: &'static str = format!("call_{number}").leak();
                (id, CONVERT.1, CONVERT.2)
            })
            .collect();
        gateway
            .upstream
            .converse([Turn::calls(&calls), Turn::says("Done.")]);
        purse.hear("crowd", &hello(MODEL), stream).await.unwrap();
        let messages = gateway.upstream.messages();
        let added = &messages[1][messages[0].len() + 1..];
        assert_eq!(added.len(), 18);
        for (number, said) in added.iter().enumerate() {
            assert_eq!(said["tool_call_id"], calls[number].0);
            assert_eq!(said["content"] == CONVERTED, number < 16, "{said}");
        }
    }
}

#[tokio::test]
async fn a_model_that_never_stops_calling_is_asked_so_often_and_no_more() {
    for (stream, config, most) in [
        (false, "", 8),
        (true, "", 8),
        (false, "[tools]\nmax_steps = 2", 2),
        (true, "[tools]\nmax_steps = 1", 1),
    ] {
        let gateway = TestGateway::start_with(config).await;
        let purse = gateway.purse().await;
        gateway.upstream.converse([Turn::calls(&[CONVERT])]);
        let heard = purse.hear("endless", &hello(MODEL), stream).await.unwrap();
        let [(text, finish)] = heard.choices.as_slice() else {
            panic!("one choice: {heard:?}");
        };
        assert!(text.contains("gave no answer"), "{text}");
        assert_eq!(finish, "length");
        assert_eq!(heard.usage, usage(most * 11, most * 3));
        assert_eq!(purse.books().await, Books::charged_steps(most));
        let received = gateway.upstream.received();
        assert_eq!(received.len(), most as usize);
        let (last, before) = received.split_last().unwrap();
        assert_eq!(last.body["tool_choice"], "none");
        assert_eq!(
            offered(&last.body),
            BUILT_IN,
            "its calls must be of tools that exist"
        );
        for request in before {
            assert_eq!(request.body.get("tool_choice"), None);
        }
        let ran = gateway.steps("endless").await;
        let ran = ran.iter().filter(|step| *step == "convert_units done");
        assert_eq!(ran.count(), most as usize - 1, "the last call is not run");
    }
}

#[tokio::test]
async fn the_last_step_may_be_an_answer() {
    for stream in [false, true] {
        let gateway = TestGateway::start_with("[tools]\nmax_steps = 2").await;
        let purse = gateway.purse().await;
        gateway
            .upstream
            .converse([Turn::calls(&[CONVERT]), Turn::says("At last.")]);
        let heard = purse.hear("last", &hello(MODEL), stream).await.unwrap();
        assert_eq!(heard.choices, [("At last.".into(), "stop".into())]);
        assert_eq!(gateway.upstream.last_body()["tool_choice"], "none");
        assert_eq!(purse.books().await, Books::charged_steps(2));
    }
}

/// SPEC §2.1: tool execution uses `choices[0]`.
#[tokio::test]
async fn of_several_choices_the_first_decides() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let purse = gateway.purse().await;
        let two = hello_with(MODEL, json!({ "n": 2 }));
        let talks = || Turn::says("Talk.");
        let calls = || Turn::calls(&[CONVERT]);
        gateway.upstream.converse([
            calls().beside(talks()),
            Turn::says("One.").beside(Turn::says("Two.")),
        ]);
        let heard = purse.hear("first", &two, stream).await.unwrap();
        let both = [
            ("One.".into(), "stop".into()),
            ("Two.".into(), "stop".into()),
        ];
        assert_eq!(heard.choices, both, "of the first answer nothing is seen");
        let messages = gateway.upstream.messages();
        let added = &messages[1][messages[0].len()..];
        assert_eq!(added.len(), 2);
        assert_eq!(added[0]["content"], Value::Null, "only what the first said");
        assert_eq!(purse.books().await, Books::charged_steps(2));

        let before = gateway.upstream.calls();
        gateway.upstream.converse([talks().beside(calls())]);
        let heard = purse.hear("second", &two, stream).await.unwrap();
        assert_eq!(heard.choices[0], ("Talk.".into(), "stop".into()));
        assert_eq!(heard.choices[1].1, "length", "{heard:?}");
        assert!(heard.choices[1].0.contains("gave no answer"), "{heard:?}");
        assert_eq!(
            gateway.upstream.calls() - before,
            1,
            "nothing was run for it"
        );
    }
}

/// Some providers count their choices in another order than they write them.
#[tokio::test]
async fn the_first_choice_is_the_one_with_the_number_zero() {
    let gateway = TestGateway::start().await;
    let purse = gateway.purse().await;
    let calls = json!({ "index": 1, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": null, "tool_calls": calls_json(&[CONVERT]) } });
    let talks = json!({ "index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": "Talk." } });
    let body = json!({ "choices": [calls, talks], "usage": usage(11, 3) });
    gateway.upstream.answer_json(200, &body);
    let two = hello_with(MODEL, json!({ "n": 2 }));
    let heard = purse.hear("order", &two, false).await.unwrap();
    assert!(heard.choices.contains(&("Talk.".into(), "stop".into())));
    assert_eq!(
        gateway.upstream.calls(),
        1,
        "the choice that calls is not the first"
    );
}

/// A call that was cut off may be half of what was meant.
#[tokio::test]
async fn calls_that_were_cut_off_are_not_run() {
    for stream in [false, true] {
        for finish in ["length", "content_filter"] {
            for text in ["", "Let me"] {
                let gateway = TestGateway::start().await;
                let purse = gateway.purse().await;
                let turn = Turn::says_and_calls(text, &[CONVERT]).ending(finish);
                gateway.upstream.converse([turn]);
                let heard = purse.hear("cut", &hello(MODEL), stream).await.unwrap();
                assert_eq!(heard.choices, [(text.to_owned(), finish.to_owned())]);
                assert_eq!(gateway.upstream.calls(), 1);
                assert_eq!(purse.books().await, Books::charged(1));
            }
        }
    }
}
