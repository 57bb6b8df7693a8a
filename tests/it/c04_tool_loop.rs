//! §4.1, tool systems: the tools that the gateway runs itself, step by step.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{
    LedgerView, TestGateway,
    bodies::hello_with,
    gateway::hello,
    ledger_view::MODEL,
    turns::{CONVERT, CONVERTED, Call, Turn, calls_json, usage},
};

fn tool_message((id, _, _): Call, text: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": text })
}

#[tokio::test]
async fn a_model_that_calls_no_tool_needs_one_step() {
    let gateway = TestGateway::start().await;
    for stream in [false, true] {
        let customer = gateway.customer().await;
        let before = gateway.upstream.calls();
        gateway.upstream.converse([Turn::says("Hello there")]);
        let id = format!("plain-{stream}");
        let reply = customer.send(&id, &hello(MODEL), stream).await.unwrap();
        assert_eq!(reply.choices, [("Hello there".into(), "stop".into())]);
        assert_eq!(reply.usage, usage(11, 3));
        assert_eq!(gateway.upstream.calls() - before, 1);
        assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
        assert_eq!(gateway.steps(&id).await, ["fake - 11+3"]);
    }
}

#[tokio::test]
async fn a_call_is_run_and_its_result_sent_to_the_model() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        gateway
            .upstream
            .converse([Turn::calls(&[CONVERT]), Turn::says("A billion.")]);
        let reply = customer.send("one", &hello(MODEL), stream).await.unwrap();
        assert_eq!(reply.choices, [("A billion.".into(), "stop".into())]);
        assert_eq!(reply.usage, usage(22, 6), "of both");
        assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));
        let steps = [
            "fake tool_calls 11+3",
            "convert_units done",
            "fake stop 11+3",
        ];
        assert_eq!(gateway.steps("one").await, steps);
        let received = gateway.upstream.received();
        let [first, second] = received.as_slice() else {
            panic!("two requests: {}", received.len());
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
            assert!(
                !sent.contains(&customer.key),
                "a key is for the gateway alone"
            );
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

/// The usage of all steps is summed, including cached input, and charged once.
#[tokio::test]
async fn steps_follow_each_other_until_the_model_answers() {
    const ADDRESS: Call = ("call_b", "inspect_address", r#"{"address":"0x12"}"#);
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        gateway.upstream.converse([
            Turn::calls(&[CONVERT]).using(100, 10).cached(40),
            Turn::calls(&[ADDRESS]).using(200, 20),
            Turn::says("Done.").using(300, 30).cached(60),
        ]);
        let reply = customer.send("two", &hello(MODEL), stream).await.unwrap();
        assert_eq!(reply.choices, [("Done.".into(), "stop".into())]);
        let mut sum = usage(600, 60);
        sum["prompt_tokens_details"]["cached_tokens"] = json!(100);
        sum["cost"] = json!("0.001560");
        assert_eq!(reply.usage, sum);
        let expected = LedgerView {
            spent: 500 * 2_000 + 100 * 200 + 60 * 9_000,
            charges: 1,
            requests: 1,
            tokens: 660,
        };
        assert_eq!(customer.ledger_view().await, expected);
        let steps = [
            "fake tool_calls 100+10",
            "convert_units done",
            "fake tool_calls 200+20",
            "inspect_address done",
            "fake stop 300+30",
        ];
        assert_eq!(gateway.steps("two").await, steps);
        let settlement = gateway.details("two").await["settlement"].clone();
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
async fn parallel_calls_are_run_in_order_with_a_message_each() {
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
        let customer = gateway.customer().await;
        gateway
            .upstream
            .converse([Turn::calls(&CALLS), Turn::says("Done.")]);
        let body = hello_with(MODEL, json!({ "parallel_tool_calls": true }));
        customer.send("many", &body, stream).await.unwrap();
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
        assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));
        assert_eq!(gateway.steps("many").await.len(), 5);
        assert_eq!(gateway.upstream.last_body()["parallel_tool_calls"], true);
    }
}

/// A tool's failure is reported to the model; a result is never invented.
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
            let customer = gateway.customer().await;
            let call: Call = ("call_x", name, arguments);
            gateway
                .upstream
                .converse([Turn::calls(&[call]), Turn::says("I could not.")]);
            let reply = customer
                .send("failing", &hello(MODEL), stream)
                .await
                .unwrap();
            assert_eq!(reply.choices, [("I could not.".into(), "stop".into())]);
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
            assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));
        }
    }
}

/// Steps of concurrent requests are not mixed up.
#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_are_each_charged_for_their_own_steps() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    gateway.upstream.play_for_each(|request| {
        let messages = request.body["messages"].as_array().unwrap();
        let answered = messages
            .iter()
            .filter(|said| said["role"] == "tool")
            .count();
        let user = messages
            .iter()
            .rfind(|said| said["role"] == "user")
            .unwrap();
        let question = user["content"].as_str().unwrap();
        let wanted: usize = question.parse().unwrap();
        let turn = if answered < wanted % 4 {
            Turn::calls(&[CONVERT])
        } else {
            Turn::says(&format!("Answer {question}"))
        };
        turn.steps(request.body["stream"] == true)
    });
    let asking = (0..80_usize).map(|number| {
        let customer = &customer;
        async move {
            let mut body = hello(MODEL);
            body["messages"][0]["content"] = number.to_string().into();
            let id = format!("many-{number}");
            let reply = customer.send(&id, &body, number % 8 < 4).await.unwrap();
            let text = format!("Answer {number}");
            assert_eq!(reply.choices, [(text, "stop".into())]);
            let steps = u32::try_from(number % 4 + 1).unwrap();
            assert_eq!(reply.usage, usage(11 * steps, 3 * steps));
        }
    });
    join_all(asking).await;
    // A quarter of the requests has one step, a quarter two, and so on.
    let expected = LedgerView {
        charges: 80,
        requests: 80,
        ..LedgerView::charged_steps(20 * (1 + 2 + 3 + 4))
    };
    assert_eq!(customer.ledger_view().await, expected);
}
