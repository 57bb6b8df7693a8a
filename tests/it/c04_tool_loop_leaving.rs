//! Clients that disconnect and gateways that stop while tools are run: the usage is charged once, or the request is
//! free.

use serde_json::{Value, json};

use crate::support::{
    FakeUpstream, Gate, LedgerView, Process, RawConnection, Serving, Step, TestGateway,
    bodies::hello_with,
    gateway::until,
    ledger_view::MODEL,
    raw::chat_request,
    turns::{CONVERT, Turn, open_events},
    upstream::{events, stream_head, usage_chunk},
};

fn calls() -> Turn {
    Turn::calls(&[CONVERT])
}

/// Leaving early saves nothing, at whichever step; and after the client has left, no new step begins.
#[tokio::test]
async fn a_request_whose_client_leaves_is_charged_once_for_the_steps_that_were_begun() {
    for stream in [false, true] {
        for step in 0..3 {
            let gateway = TestGateway::start_with_long_timeouts().await;
            let (customer, gate) = (gateway.customer().await, Gate::default());
            let mut turns = vec![calls(), calls(), Turn::says("Done.")];
            turns[step] = turns[step].clone().after(&gate);
            gateway.upstream.converse(turns);
            let body = hello_with(MODEL, json!({ "stream": stream }));
            let mut connection = RawConnection::open(gateway.public).await;
            let id = "x-request-id: left\r\n";
            connection
                .send(chat_request(&customer.key, id, &body))
                .await;
            until("it is at that step", || gateway.upstream.calls() > step).await;
            connection.hang_up().await;
            gate.open();
            let begun = step + 1;
            let owed = LedgerView::charged_steps(u32::try_from(begun).unwrap());
            assert_eq!(customer.ledger_view().await, owed, "{step} {stream}");
            assert_eq!(gateway.details("left").await["outcome"], "client_left");
            assert_eq!(gateway.upstream.calls(), begun);
            // One provider request per step, and a tool between two of them.
            assert_eq!(gateway.steps("left").await.len(), 2 * begun - 1);
        }
    }
}

/// A long text that ends with a tool call, after the client has left.
#[tokio::test]
async fn a_stream_whose_client_leaves_midway_runs_its_tools_too() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    let chunks = Turn::says_and_calls(&"x".repeat(600), &[CONVERT]).chunks();
    let (words, call) = chunks.split_at(151);
    let rest = [call, &[usage_chunk(11, 3)]].concat();
    let long = Turn::plays(vec![
        Step::Send(stream_head()),
        Step::Send(open_events(words)),
        Step::Until(gate.clone()),
        Step::Send(events(&rest).into_bytes()),
        Step::Close,
    ]);
    gateway
        .upstream
        .converse([long, calls(), Turn::says("Done.")]);
    let body = hello_with(MODEL, json!({ "stream": true }));
    let mut connection = RawConnection::open(gateway.public).await;
    connection
        .send(chat_request(&customer.key, "", &body))
        .await;
    connection.until("\n\n", 50).await;
    connection.hang_up().await;
    gate.open();
    assert_eq!(customer.ledger_view().await, LedgerView::charged_steps(3));
}

async fn until_stopping(serving: &mut Serving) {
    serving.process.signal("TERM");
    let stopping = |process: &Process| process.stderr().contains("stopping: no new work");
    serving.process.until(stopping).await;
}

fn ask(serving: &Serving, stream: bool) -> tokio::task::JoinHandle<(u16, String)> {
    let request = serving.chat(&hello_with(MODEL, json!({ "stream": stream })));
    tokio::spawn(async move {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    })
}

#[tokio::test]
async fn a_stop_lets_the_steps_of_a_request_finish() {
    for stream in [false, true] {
        let (upstream, gate) = (FakeUpstream::start().await, Gate::default());
        upstream.converse([calls().after(&gate), calls(), Turn::says("Done.")]);
        let mut serving = Serving::start_on(&upstream, 60).await;
        let begun = ask(&serving, stream);
        until("the provider gets the request", || upstream.calls() == 1).await;
        until_stopping(&mut serving).await;
        gate.open();
        let (status, text) = begun.await.unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("Done"), "{text}");
        let (ended, restarted) = serving.ended_and_restarted().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        // Three times 49,000 nano-dollars.
        assert_eq!(restarted.ledger_view().await, ("99.999853".to_owned(), 1));
    }
}

#[tokio::test]
async fn a_stop_that_cannot_wait_ends_the_request_between_its_steps_and_it_is_free() {
    for stream in [false, true] {
        let (upstream, never) = (FakeUpstream::start().await, Gate::default());
        upstream.converse([calls(), calls().after(&never)]);
        let mut serving = Serving::start_on(&upstream, 1).await;
        let begun = ask(&serving, stream);
        until("its second step is sent", || upstream.calls() == 2).await;
        until_stopping(&mut serving).await;
        let (status, text) = begun.await.unwrap();
        assert_eq!(status, 503, "{text}");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert!(body["error"]["message"].is_string(), "{text}");
        let (ended, restarted) = serving.ended_and_restarted().await;
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(restarted.ledger_view().await, ("100.000000".to_owned(), 0));
    }
}

/// The usage of all steps is still in the window after a restart.
#[tokio::test]
async fn the_window_of_a_request_with_steps_survives_a_restart() {
    let gateway = TestGateway::start().await;
    let limits = json!({ "model": MODEL, "rpm": 5, "tpm": 10_000 });
    let limited = gateway
        .operate(reqwest::Method::PUT, "/operator/limits", Some(limits))
        .await;
    limited.assert_ok();
    gateway.upstream.converse([
        calls().using(1_000, 100),
        calls().using(1_000, 200),
        Turn::says("Done.").using(1_100, 200),
    ]);
    let small = hello_with(MODEL, json!({ "max_tokens": 200 }));
    gateway.chat(&small).await.assert_ok();
    gateway
        .upstream
        .converse([calls().using(300, 100), Turn::fails(500)]);
    let failed = gateway.chat(&small).await;
    assert_eq!(failed.status, 502, "what its first step used counts too");
    let key = gateway.key.clone();
    let too_much = hello_with(MODEL, json!({ "max_tokens": 9_990 }));
    let left = |refused: crate::support::Answer| {
        let code = Some("tpm_exceeded");
        refused.assert_error(429, "rate_limit_exceeded", code, None);
        let left = ["x-ratelimit-remaining", "x-ratelimit-remaining-tokens"];
        left.map(|name| refused.headers[name].to_str().unwrap().to_owned())
    };
    gateway.idle().await;
    assert_eq!(left(gateway.chat(&too_much).await), ["3", "6000"]);
    let data = gateway.stop().await;
    let gateway = TestGateway::start_in(data, "").await;
    assert_eq!(left(gateway.chat_as(&key, &too_much).await), ["3", "6000"]);
}
