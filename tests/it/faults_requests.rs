//! Invalid, odd or malicious requests: refused ones leave no trace, and served ones cost as much as without the
//! tricks.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{
    Customer, LedgerView, Step, TestGateway, View,
    bodies::{hello_with, tool},
    gateway::{answer, hello},
    ledger_view::MODEL,
};

fn written(content: &str, more: &str) -> String {
    format!(r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":{content}}}]{more}}}"#)
}

/// Requests that are refused before a provider is called, and their status.
fn refused(
    gateway: &TestGateway,
    customer: &Customer<'_>,
) -> Vec<(&'static str, u16, RequestBuilder)> {
    let (key, url) = (&customer.key, gateway.url("/v1/chat/completions"));
    let bare = |url: &str| gateway.client.post(url).json(&hello(MODEL));
    let text = |body: Vec<u8>| gateway.client.post(&url).bearer_auth(key).body(body);
    let json = |more: Value| customer.request(&hello_with(MODEL, more));
    let deep = "[".repeat(100_000);
    let closed_deep = format!("{deep}{}", "]".repeat(100_000));
    let big = written(&format!("{:?}", "x".repeat(1 << 20)), "");
    let in_pieces = big.as_bytes().chunks(10_000).map(<[u8]>::to_vec);
    let in_pieces: Vec<_> = in_pieces.map(Ok::<_, std::io::Error>).collect();
    let in_pieces = reqwest::Body::wrap_stream(futures_util::stream::iter(in_pieces));
    vec![
        ("a body over the limit", 413, text(big.clone().into())),
        (
            "the same in pieces",
            413,
            gateway.client.post(&url).bearer_auth(key).body(in_pieces),
        ),
        ("100,000 brackets", 400, text(written(&deep, "").into())),
        (
            "100,000 brackets, closed",
            400,
            text(written("\"Hi\"", &format!(",\"x\":{closed_deep}")).into()),
        ),
        (
            "bytes that are no text",
            400,
            text(b"{\"model\":\"\xff\"}".to_vec()),
        ),
        (
            "half a surrogate",
            400,
            text(written(r#""\ud83d""#, "").into()),
        ),
        ("a NUL", 400, text(written("\"\0\"", "").into())),
        (
            "a byte order mark",
            400,
            text(format!("\u{feff}{}", hello(MODEL)).into()),
        ),
        (
            "half a body",
            400,
            text(hello(MODEL).to_string()[..20].into()),
        ),
        (
            "a budget that is too large",
            400,
            json(json!({ "max_tokens": 1_000_000 })),
        ),
        (
            "a budget that is too large in the end",
            400,
            text(written("\"Hi\"", ",\"max_tokens\":200,\"max_tokens\":1000000").into()),
        ),
        (
            "a budget that is too small",
            400,
            json(json!({ "max_tokens": 1 })),
        ),
        (
            "an invalid number",
            400,
            json(json!({ "temperature": "hot" })),
        ),
        (
            "a model there is not",
            404,
            json(json!({ "model": "svc-nothing" })),
        ),
        (
            "no route",
            404,
            gateway
                .client
                .post(gateway.url("/v1/embeddings"))
                .bearer_auth(key)
                .json(&hello(MODEL)),
        ),
        ("no key", 401, bare(&url)),
        (
            "the key in the query",
            401,
            bare(&format!("{url}?api_key={key}")),
        ),
        (
            "the key in another header",
            401,
            bare(&url).header("x-api-key", key),
        ),
        (
            "the key twice",
            401,
            bare(&url).bearer_auth(key).bearer_auth(key),
        ),
        (
            "the key and another",
            401,
            bare(&url).bearer_auth(key).bearer_auth(&gateway.key),
        ),
        ("half a key", 401, bare(&url).bearer_auth(&key[..30])),
    ]
}

#[tokio::test]
async fn refused_requests_leave_no_trace() {
    let gateway = TestGateway::start_set(&[("SERVER__MAX_BODY_BYTES", "1048576")]).await;
    let customer = gateway.customer().await;
    for (what, status, request) in refused(&gateway, &customer) {
        let reply = answer(request).await;
        assert_eq!(reply.status, status, "{what}: {}", reply.body);
        reply.error();
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::default(),
            "{what}"
        );
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

/// The budget that is held is the budget that the provider gets.
#[tokio::test]
async fn of_two_budgets_the_one_that_is_held_is_the_one_that_is_sent() {
    let gateway = TestGateway::start().await;
    // Enough for 200 tokens at 9,000 nano-dollars, not for 60,000.
    let customer = gateway.customer_with("0.01", 1_000_000).await;
    let ask = |more: &str| {
        let url = gateway.url("/v1/chat/completions");
        let request = gateway.client.post(url).bearer_auth(&customer.key);
        answer(request.body(written("\"Hi\"", more)))
    };
    let refused = ask(r#","max_tokens":200,"max_tokens":60000"#).await;
    refused.assert_error(402, "insufficient_credits", Some("payment_required"), None);
    assert_eq!(
        (customer.ledger_view().await, gateway.upstream.calls()),
        (LedgerView::default(), 0)
    );
    ask(r#","max_tokens":60000,"max_tokens":200"#)
        .await
        .assert_ok();
    assert_eq!(gateway.upstream.last_body()["max_tokens"], 200);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(1));
}

/// Bodies that contain a URL to fetch, and fields that callers may not set.
fn pointing_at(canary: &str) -> Vec<(&'static str, Value)> {
    let parts = |part: Value| json!({ "messages": [{ "role": "user", "content": [part] }] });
    let image = |url: String| parts(json!({ "type": "image_url", "image_url": { "url": url } }));
    let port = canary.rsplit(':').next().unwrap();
    let base = format!("http://{canary}/v1");
    let mut with_reference = tool("f");
    with_reference["function"]["parameters"]["$ref"] = json!(base);
    vec![
        ("an image", image(format!("http://{canary}/a.png"))),
        (
            "an image at another spelling",
            image(format!("http://[::ffff:127.0.0.1]:{port}/a.png")),
        ),
        (
            "an image at a name",
            image(format!("http://localhost:{port}/a.png")),
        ),
        (
            "an image at a number",
            image(format!("http://2130706433:{port}/a.png")),
        ),
        (
            "a file",
            parts(json!({ "type": "file", "file": { "file_url": base } })),
        ),
        (
            "a sound",
            parts(json!({ "type": "input_audio", "input_audio": { "url": base } })),
        ),
        ("a schema elsewhere", json!({ "tools": [with_reference] })),
        (
            "arguments of a tool",
            json!({ "messages": [
            { "role": "user", "content": "Hi" },
            { "role": "assistant", "tool_calls": [{ "id": "c", "type": "function",
                "function": { "name": "f", "arguments": json!({ "url": base }).to_string() } }] },
            { "role": "tool", "tool_call_id": "c", "content": base },
        ] }),
        ),
        ("api_base", json!({ "api_base": base, "api_key": "mine" })),
        (
            "base_url",
            json!({ "base_url": base, "BASE_URL": base, "Api_Base": base }),
        ),
        (
            "fallbacks",
            json!({ "fallbacks": [{ "model": MODEL, "api_base": base }] }),
        ),
        (
            "extra_body",
            json!({ "extra_body": { "api_base": base, "model": "dearer" } }),
        ),
        (
            "extra_headers",
            json!({ "extra_headers": { "host": canary } }),
        ),
        (
            "metadata",
            json!({ "metadata": { "callback_url": base }, "webhook": base }),
        ),
    ]
}

#[tokio::test]
async fn urls_in_a_body_are_never_fetched_and_the_price_stays() {
    let gateway = TestGateway::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let canary = listener.local_addr().unwrap().to_string();
    for (what, more) in pointing_at(&canary) {
        let customer = gateway.customer().await;
        let reply = answer(customer.request(&hello_with(MODEL, more))).await;
        assert_eq!(reply.status, 200, "{what}: {}", reply.body);
        assert_eq!(
            customer.ledger_view().await,
            LedgerView::charged(1),
            "{what}"
        );
        let sent = gateway.upstream.last_body();
        let sent = sent.as_object().unwrap().keys().map(String::as_str);
        let known = ["model", "messages", "tools", "max_tokens", "stream", "user"];
        for key in sent {
            assert!(known.contains(&key), "{what}: {key} was sent on");
        }
    }
    let redirect = format!(
        "HTTP/1.1 307 X\r\nlocation: http://{canary}/v1/chat/completions\r\ncontent-length: 0\r\n\r\n"
    );
    gateway
        .upstream
        .play(vec![Step::Send(redirect.into_bytes())]);
    let customer = gateway.customer().await;
    let failed = View::Failed(Some("307".into()));
    assert_eq!(customer.ask("a redirect", false).await, failed);
    assert_eq!(customer.ledger_view().await, LedgerView::free(1));
    let came = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(came.is_err(), "no connection was made");
}
