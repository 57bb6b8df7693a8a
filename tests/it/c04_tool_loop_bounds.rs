//! Where the loop of built-in tools ends, and which of several choices it follows.

use serde_json::{Value, json};

use crate::support::{
    LedgerView, TestGateway,
    bodies::hello_with,
    gateway::hello,
    ledger_view::MODEL,
    turns::{BUILT_IN, CONVERT, CONVERTED, Call, Turn, calls_json, offered, usage},
};

/// Calls beyond the limit of one response get a tool message too; otherwise the provider would refuse the
/// conversation.
#[tokio::test]
async fn of_too_many_calls_the_last_are_not_run() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        let calls: Vec<Call> = (0..18)
            .map(|number| {
                let id: &'static str = format!("call_{number}").leak();
                (id, CONVERT.1, CONVERT.2)
            })
            .collect();
        gateway
            .upstream
            .converse([Turn::calls(&calls), Turn::says("Done.")]);
        customer.send("crowd", &hello(MODEL), stream).await.unwrap();
        let messages = gateway.upstream.messages();
        let added = &messages[1][messages[0].len() + 1..];
        assert_eq!(added.len(), 16);
        for (number, said) in added.iter().enumerate() {
            assert_eq!(said["tool_call_id"], calls[number].0);
            assert_eq!(said["content"], CONVERTED);
        }
    }
}

#[tokio::test]
async fn a_model_that_never_stops_calling_tools_reaches_the_step_limit() {
    for (stream, config, most) in [
        (false, "", 8),
        (true, "", 8),
        (false, "[tools]\nmax_steps = 2", 2),
        (true, "[tools]\nmax_steps = 1", 1),
    ] {
        let gateway = TestGateway::start_with(config).await;
        let customer = gateway.customer().await;
        gateway.upstream.converse([Turn::calls(&[CONVERT])]);
        let reply = customer
            .send("endless", &hello(MODEL), stream)
            .await
            .unwrap();
        let [(text, finish)] = reply.choices.as_slice() else {
            panic!("one choice: {reply:?}");
        };
        assert!(text.contains("gave no answer"), "{text}");
        assert_eq!(finish, "length");
        assert_eq!(reply.usage, usage(most * 11, most * 3));
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged_steps(most)
        );
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
        let customer = gateway.customer().await;
        gateway
            .upstream
            .converse([Turn::calls(&[CONVERT]), Turn::says("At last.")]);
        let reply = customer.send("last", &hello(MODEL), stream).await.unwrap();
        assert_eq!(reply.choices, [("At last.".into(), "stop".into())]);
        assert_eq!(gateway.upstream.last_body()["tool_choice"], "none");
        assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));
    }
}

/// §2.1: tool execution uses `choices[0]`.
#[tokio::test]
async fn of_several_choices_the_first_decides() {
    for stream in [false, true] {
        let gateway = TestGateway::start().await;
        let customer = gateway.customer().await;
        let two = hello_with(MODEL, json!({ "n": 2 }));
        let talks = || Turn::says("Talk.");
        let calls = || Turn::calls(&[CONVERT]);
        gateway.upstream.converse([
            calls().beside(talks()),
            Turn::says("One.").beside(Turn::says("Two.")),
        ]);
        let reply = customer.send("first", &two, stream).await.unwrap();
        let both = [
            ("One.".into(), "stop".into()),
            ("Two.".into(), "stop".into()),
        ];
        assert_eq!(reply.choices, both, "of the first answer nothing is seen");
        let messages = gateway.upstream.messages();
        let added = &messages[1][messages[0].len()..];
        assert_eq!(added.len(), 2);
        assert_eq!(added[0]["content"], Value::Null, "only what the first said");
        assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(2));

        let before = gateway.upstream.calls();
        gateway.upstream.converse([talks().beside(calls())]);
        let reply = customer.send("second", &two, stream).await.unwrap();
        assert_eq!(reply.choices[0], ("Talk.".into(), "stop".into()));
        assert_eq!(reply.choices[1], (String::new(), "stop".into()));
        assert_eq!(
            gateway.upstream.calls() - before,
            1,
            "nothing was run for it"
        );
    }
}

/// Some providers send choices in another order than their indexes.
#[tokio::test]
async fn the_first_choice_is_the_one_with_index_zero() {
    let gateway = TestGateway::start().await;
    let customer = gateway.customer().await;
    let calls = json!({ "index": 1, "finish_reason": "tool_calls", "message": {
        "role": "assistant", "content": null, "tool_calls": calls_json(&[CONVERT]) } });
    let talks = json!({ "index": 0, "finish_reason": "stop", "message": {
        "role": "assistant", "content": "Talk." } });
    let body = json!({ "choices": [calls, talks], "usage": usage(11, 3) });
    gateway.upstream.answer_json(200, &body);
    let two = hello_with(MODEL, json!({ "n": 2 }));
    let reply = customer.send("order", &two, false).await.unwrap();
    assert!(reply.choices.contains(&("Talk.".into(), "stop".into())));
    assert_eq!(
        gateway.upstream.calls(),
        1,
        "the choice that calls is not the first"
    );
}

/// The arguments of a truncated call may be incomplete.
#[tokio::test]
async fn truncated_calls_are_not_run() {
    for stream in [false, true] {
        for finish in ["length", "content_filter"] {
            for text in ["", "Let me"] {
                let gateway = TestGateway::start().await;
                let customer = gateway.customer().await;
                let turn = Turn::says_and_calls(text, &[CONVERT]).ending(finish);
                gateway.upstream.converse([turn]);
                let reply = customer.send("cut", &hello(MODEL), stream).await.unwrap();
                assert_eq!(reply.choices, [(text.to_owned(), finish.to_owned())]);
                assert_eq!(gateway.upstream.calls(), 1);
                assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
            }
        }
    }
}
