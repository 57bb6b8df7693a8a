//! Streams of `/v1/responses` that are taken up again (§4.2): `GET /v1/responses/{id}?stream=true&starting_after=N`.

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::Value;

use crate::support::{
    Gate, LedgerView, TestGateway,
    gateway::until,
    retries::{Api, Got, got, open, plays},
};

/// The events of a stream, with the text of each.
fn events(text: &str) -> Vec<(Value, String)> {
    let events = text.split_inclusive("\n\n").filter_map(|event| {
        let (_, data) = event.split_once("data: ")?;
        Some((serde_json::from_str(data).ok()?, event.to_owned()))
    });
    events.collect()
}

fn id(text: &str) -> String {
    let (created, _) = &events(text)[0];
    created["response"]["id"].as_str().unwrap().to_owned()
}

async fn resume(gateway: &TestGateway, key: &str, id: &str, query: &str) -> Got {
    let url = gateway.url(&format!("/v1/responses/{id}?{query}"));
    got(gateway.client.get(url).bearer_auth(key)).await
}

#[tokio::test]
async fn a_stored_stream_is_sent_again_from_any_event() {
    let gateway = TestGateway::start().await;
    gateway.upstream.play_for_each(plays(open()));
    let customer = gateway.customer().await;
    let body = Api::Responses.body("Hi", true);
    let first = got(gateway.asks(Api::Responses, &customer.key, &body))
        .await
        .ok();
    let (id, all) = (id(&first.body), events(&first.body));
    assert!(all.len() > 8 && first.body.ends_with("data: [DONE]\n\n"));
    let again = resume(&gateway, &customer.key, &id, "stream=true")
        .await
        .ok();
    assert_eq!(again.headers["content-type"], "text/event-stream");
    assert_eq!(again.body, first.body);
    for (at, (event, _)) in all.iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
        let query = format!("stream=true&starting_after={at}");
        let rest = resume(&gateway, &customer.key, &id, &query).await.ok();
        let expected: String = all[at + 1..]
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        assert_eq!(rest.body, expected + "data: [DONE]\n\n", "after {at}");
    }
    let beyond = resume(
        &gateway,
        &customer.key,
        &id,
        "stream=true&starting_after=99",
    )
    .await;
    assert_eq!(beyond.ok().body, "data: [DONE]\n\n");
    let whole = resume(&gateway, &customer.key, &id, "stream=false")
        .await
        .ok();
    assert_eq!(
        serde_json::from_str::<Value>(&whole.body).unwrap()["id"],
        id.as_str()
    );
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_client_left_is_taken_up_while_it_runs() {
    let gateway = TestGateway::start_with_long_timeouts().await;
    let (customer, gate) = (gateway.customer().await, Gate::default());
    gateway.upstream.play_for_each(plays(gate.clone()));
    let body = Api::Responses.body("Hi", true);
    let response = gateway
        .asks(Api::Responses, &customer.key, &body)
        .send()
        .await
        .unwrap();
    let mut stream = response.bytes_stream();
    let mut begun = String::new();
    while !begun.contains("one") {
        begun.push_str(std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap());
    }
    drop(stream);
    let (id, seen) = (id(&begun), events(&begun).len());
    let query = format!("stream=true&starting_after={}", seen - 1);
    let resuming = resume(&gateway, &customer.key, &id, &query);
    let retries = &gateway.inside().retries;
    let opening = async {
        until("it has attached", || retries.attached() == 1).await;
        gate.open();
    };
    let (rest, ()) = tokio::join!(resuming, opening);
    let all = begun + &rest.ok().body;
    for (at, (event, _)) in events(&all).iter().enumerate() {
        assert_eq!(event["sequence_number"], at);
    }
    assert!(
        all.contains("response.completed") && all.ends_with("data: [DONE]\n\n"),
        "{all}"
    );
    gateway.idle().await;
    let again = resume(&gateway, &customer.key, &id, "stream=true")
        .await
        .ok();
    assert_eq!(again.body, all);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

#[tokio::test]
async fn what_cannot_be_streamed_again_says_so() {
    let gateway = TestGateway::start().await;
    gateway.upstream.play_for_each(plays(open()));
    let (customer, other) = (gateway.customer().await, gateway.customer().await);
    let streamed = Api::Responses.body("Hi", true);
    let streamed = got(gateway.asks(Api::Responses, &customer.key, &streamed))
        .await
        .ok();
    let streamed = id(&streamed.body);
    let whole = Api::Responses.body("Hi", false);
    let whole = got(gateway.asks(Api::Responses, &customer.key, &whole))
        .await
        .ok();
    let whole: Value = serde_json::from_str(&whole.body).unwrap();
    let whole = whole["id"].as_str().unwrap();
    for (id, query, key, status, words) in [
        (whole, "stream=true", &customer.key, 400, "not streamed"),
        (&streamed, "stream=1", &customer.key, 400, "true"),
        (
            &streamed,
            "stream=true&starting_after=x",
            &customer.key,
            400,
            "sequence_number",
        ),
        (
            &streamed,
            "stream=true&starting_after=-1",
            &customer.key,
            400,
            "sequence_number",
        ),
        (
            &streamed,
            "stream=true",
            &other.key,
            404,
            "no stored response",
        ),
        (
            "resp_x",
            "stream=true",
            &customer.key,
            404,
            "no stored response",
        ),
    ] {
        let refused = resume(&gateway, key, id, query).await;
        assert_eq!(refused.status, status, "{query}: {}", refused.body);
        assert!(refused.body.contains(words), "{}", refused.body);
    }
    let path = format!("/v1/responses/{streamed}");
    let request = gateway.client.request(Method::DELETE, gateway.url(&path));
    got(request.bearer_auth(&customer.key)).await.ok();
    let gone = resume(&gateway, &customer.key, &streamed, "stream=true").await;
    assert_eq!(gone.status, 404);
}
