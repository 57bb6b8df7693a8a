//! Clients that leave: their responses are read to the end and charged, once and in full.

use serde_json::json;

use crate::support::{
    Customer, Gate, LedgerView, RawConnection, Step, TestGateway,
    gateway::{hello, until},
    ledger_view::MODEL,
    raw::chat_request,
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// How a client leaves. After `HangsUp` the test knows that the gateway has noticed; after `Resets` it does not.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    HangsUp,
    Resets,
}

impl Leaving {
    async fn now(self, connection: RawConnection) {
        match self {
            Self::HangsUp => connection.hang_up().await,
            Self::Resets => connection.reset(),
        }
    }
}

/// A client whose request has reached the provider.
async fn send_request(
    gateway: &TestGateway,
    customer: &Customer<'_>,
    stream: bool,
) -> RawConnection {
    let mut body = hello(MODEL);
    body["stream"] = stream.into();
    let calls = gateway.upstream.calls();
    let mut connection = RawConnection::open(gateway.public).await;
    connection
        .send(chat_request(&customer.key, "", &body))
        .await;
    until("the provider gets the request", || {
        gateway.upstream.calls() > calls
    })
    .await;
    connection
}

/// For each number of events after which a client leaves, none and all included.
#[tokio::test]
async fn leaving_a_stream_after_any_number_of_events_costs_all_of_it() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let words = |count: usize| {
        let word = format!("data: {}\n\n", chunk(json!({ "content": "word " }), None));
        Step::Send(word.repeat(count).into_bytes())
    };
    let end = events(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]);
    let end = Step::Send(end.into_bytes());
    // First the role, then four words; the terminal chunk and `[DONE]` follow.
    for leaving in [Leaving::HangsUp, Leaving::Resets] {
        for read in 0..=7 {
            let (customer, left) = (gateway.customer().await, Gate::default());
            let (before, after) = match read {
                0 => (vec![], vec![words(20)]),
                1..=5 => (vec![words(4)], vec![words(20)]),
                _ => (vec![words(4), end.clone()], vec![]),
            };
            let rest = [
                vec![Step::Until(left.clone())],
                after,
                vec![end.clone(), Step::Close],
            ];
            let head = vec![Step::Send(stream_head())];
            gateway
                .upstream
                .play([head, before, rest.concat()].concat());
            let mut connection = send_request(&gateway, &customer, true).await;
            connection.until("\n\n", read).await;
            leaving.now(connection).await;
            left.open();
            assert_eq!(
                customer.ledger_view().await,
                LedgerView::charged(1),
                "{leaving:?} after {read} events"
            );
        }
    }
}

#[tokio::test]
async fn leaving_before_a_whole_answer_costs_all_of_it() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let whole = response(200, "application/json", &completion("Hi").to_string());
    let (first, second) = whole.split_at(whole.len() / 2);
    for leaving in [Leaving::HangsUp, Leaving::Resets] {
        for sent in [&[], first] {
            let (customer, left) = (gateway.customer().await, Gate::default());
            let rest = if sent.is_empty() { &whole } else { second };
            gateway.upstream.play(vec![
                Step::Send(sent.to_vec()),
                Step::Until(left.clone()),
                Step::Send(rest.to_vec()),
            ]);
            let connection = send_request(&gateway, &customer, false).await;
            leaving.now(connection).await;
            left.open();
            assert_eq!(
                customer.ledger_view().await,
                LedgerView::charged(1),
                "{leaving:?}"
            );
        }
    }
}

/// A call that the provider fails is free, whether or not its client is still connected.
#[tokio::test]
async fn leaving_an_answer_that_then_fails_costs_nothing() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let word = format!("data: {}\n\n", chunk(json!({ "content": "word" }), None));
    for stream in [false, true] {
        let (customer, left) = (gateway.customer().await, Gate::default());
        gateway.upstream.play(vec![
            Step::Send(stream_head()),
            Step::Send(word.clone().into_bytes()),
            Step::Until(left.clone()),
            Step::Send(word.repeat(20).into_bytes()),
            Step::Close,
        ]);
        let connection = send_request(&gateway, &customer, stream).await;
        connection.hang_up().await;
        left.open();
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::free(1),
            "stream: {stream}"
        );
    }
}

/// An incomplete request has no effect.
#[tokio::test]
async fn leaving_in_the_middle_of_a_request_has_no_effect() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let customer = gateway.customer().await;
    let request = chat_request(&customer.key, "", &hello(MODEL));
    for sent in 0..request.len() {
        let mut connection = RawConnection::open(gateway.public).await;
        connection.send(&request[..sent]).await;
        connection.hang_up().await;
    }
    assert_eq!(customer.ledger_view().await, LedgerView::default());
    assert_eq!(gateway.upstream.calls(), 0);
}
