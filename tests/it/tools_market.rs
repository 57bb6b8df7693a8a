//! The market tools with a scripted data source.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tollgate::{
    base::keys::Secret,
    config::{Market, Tools},
    tools::{ToolOutcome, ToolResult, Toolbox},
};

use crate::support::market::{BITCOIN_PRICE, FakeMarket, Fault};

const KEY: &str = "market-key-0123456789";

fn toolbox(address: SocketAddr, timeout: Duration) -> Toolbox {
    let market = Market {
        base_url: format!("http://{address}/api/v3"),
        api_key: Some(Secret::new(KEY)),
        api_key_header: "x-cg-demo-api-key".parse().unwrap(),
    };
    let config = Tools {
        timeout,
        market: Some(market),
        ..Tools::default()
    };
    Toolbox::new(&config).unwrap()
}

async fn start() -> (FakeMarket, Toolbox) {
    let market = FakeMarket::start().await;
    let toolbox = toolbox(market.address, Duration::from_secs(10));
    (market, toolbox)
}

async fn prices(toolbox: &Toolbox, symbols: &[&str]) -> ToolResult {
    let arguments = json!({ "symbols": symbols });
    toolbox.run("crypto_price", &arguments.to_string()).await
}

#[track_caller]
fn done(ran: &ToolResult) -> Value {
    assert_eq!(ran.outcome, ToolOutcome::Done, "{}", ran.text);
    serde_json::from_str(&ran.text).unwrap()
}

/// Asserts a failure whose text does not reveal the data source.
#[track_caller]
fn assert_failed(ran: &ToolResult, outcome: ToolOutcome, words: &str, market: &FakeMarket) {
    assert_eq!(ran.outcome, outcome, "{}", ran.text);
    assert!(ran.text.contains(words), "{}", ran.text);
    let port = market.address.port().to_string();
    for secret in ["127.0.0.1", "http", "api/v3", "market-key", &port] {
        assert!(!ran.text.contains(secret), "{secret} is in {}", ran.text);
    }
}

#[tokio::test]
async fn prices_keep_their_digits() {
    let (market, toolbox) = start().await;
    let answer = done(&prices(&toolbox, &["BTC", "pepe", "nope"]).await);
    assert_eq!(
        answer,
        json!({
            "currency": "usd",
            "prices": [
                { "symbol": "BTC", "id": "bitcoin", "price": BITCOIN_PRICE,
                  "market_cap": "1317802988326.25", "volume_24h": "31260929299.52484",
                  "change_24h_percent": "3.637278946773539",
                  "last_updated_at": "2024-03-25T08:45:00Z" },
                { "symbol": "pepe", "id": "pepe", "price": "0.0000081",
                  "last_updated_at": "2024-03-25T08:45:01Z" },
            ],
            "unknown": ["nope"],
        })
    );
    assert_eq!(market.last_headers()["x-cg-demo-api-key"], KEY);
    let requests = market.requests();
    // A well-known symbol needs no search, and all prices come in one request.
    assert_eq!(requests.len(), 3, "{requests:?}");
    assert_eq!(
        requests[2],
        "/api/v3/simple/price?ids=bitcoin,pepe&vs_currencies=usd&include_market_cap=true\
         &include_24hr_vol=true&include_24hr_change=true&include_last_updated_at=true"
    );
}

#[tokio::test]
async fn a_history_is_summed_up() {
    let (market, toolbox) = start().await;
    let ran = toolbox
        .run("crypto_market", r#"{"symbol":"btc","days":7}"#)
        .await;
    let answer = done(&ran);
    assert_eq!(
        market.requests(),
        ["/api/v3/coins/bitcoin/market_chart?vs_currency=usd&days=7"]
    );
    let first = json!({ "time": "2024-03-31T00:00:00Z", "price": "60000.000000000000000000001" });
    let last = json!({ "time": "2024-04-07T00:00:00Z", "price": "60168.000000000000000000001" });
    assert_eq!((&answer["first"], &answer["lowest"]), (&first, &first));
    assert_eq!((&answer["last"], &answer["highest"]), (&last, &last));
    assert_eq!(answer["change_percent"], "0.28");
    assert_eq!(answer["market_cap"], "1300000000168");
    assert_eq!(answer["volume_24h"], "31260929299.52484");
    assert_eq!(answer["points"].as_array().unwrap().len(), 30);
}

#[tokio::test]
async fn an_unknown_coin_is_reported() {
    let (market, toolbox) = start().await;
    let ran = prices(&toolbox, &["nope", "nothing"]).await;
    let words = "no coin is known as nope, nothing";
    assert_failed(&ran, ToolOutcome::Failed, words, &market);
    let ran = toolbox.run("crypto_market", r#"{"symbol":"nope"}"#).await;
    assert_failed(
        &ran,
        ToolOutcome::Failed,
        "no coin is known as nope",
        &market,
    );
    // Found by the search, and unknown to the market endpoint.
    let ran = toolbox.run("crypto_market", r#"{"symbol":"gone"}"#).await;
    assert_failed(
        &ran,
        ToolOutcome::Failed,
        "no coin is known as gone",
        &market,
    );
    let answer = done(&prices(&toolbox, &["gone"]).await);
    assert_eq!(answer["without_price"], json!(["gone"]));
}

/// Whatever text a model writes, it stays within its parameter of a request to the configured source.
#[tokio::test]
async fn a_models_text_stays_within_its_parameter() {
    let (market, toolbox) = start().await;
    prices(&toolbox, &["../../admin?x=1&y#z", "@evil.example/"]).await;
    let requests = market.requests();
    let mut expected = [
        "/api/v3/search?query=%2E%2E%2F%2E%2E%2Fadmin%3Fx%3D1%26y%23z",
        "/api/v3/search?query=%40evil%2Eexample%2F",
    ];
    expected.sort_unstable();
    let mut found: Vec<_> = requests.iter().map(String::as_str).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    let ran = toolbox
        .run(
            "crypto_price",
            r#"{"symbols":["btc"],"currency":"usd&ids=x"}"#,
        )
        .await;
    assert_eq!(ran.outcome, ToolOutcome::BadArguments, "{}", ran.text);
    assert!(market.requests().is_empty());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (market, toolbox) = start().await;
    let elsewhere = FakeMarket::start().await;
    market.break_with(Fault::Redirect(elsewhere.address));
    let ran = prices(&toolbox, &["btc"]).await;
    assert_failed(
        &ran,
        ToolOutcome::Failed,
        "redirects, which is not followed",
        &market,
    );
    assert!(
        elsewhere.requests().is_empty(),
        "no other server gets a request"
    );
}

#[tokio::test]
async fn faults_are_reported_without_names() {
    let (market, toolbox) = start().await;
    for (fault, words) in [
        (
            Fault::Status(429),
            "received too many requests (status 429); try again later",
        ),
        (Fault::Status(500), "fails with status 500"),
        (Fault::Status(503), "fails with status 503"),
        (Fault::Status(401), "refuses our key (status 401)"),
        (Fault::Status(404), "fails with status 404"),
        (Fault::Status(204), "fails with status 204"),
        (Fault::Huge((1 << 20) - 1), "sent more than 1 MiB"),
        (Fault::Endless, "sent more than 1 MiB"),
        (
            Fault::Body("<html>no</html>"),
            "sent an unexpected response",
        ),
        (Fault::Body("[]"), "sent an unexpected response"),
        (
            Fault::Body(r#"{"bitcoin":{"usd":"lots"}}"#),
            "sent an unexpected response",
        ),
        (
            Fault::Body(r#"{"bitcoin":{"usd":1e999999999}}"#),
            "sent an unexpected response",
        ),
        (Fault::Body(""), "sent an unexpected response"),
    ] {
        market.break_with(fault.clone());
        let ran = prices(&toolbox, &["btc"]).await;
        let words = format!("the source of market data {words}");
        assert_failed(&ran, ToolOutcome::Failed, &words, &market);
    }
    // A body of the largest allowed size is read, and then refused as unexpected.
    market.break_with(Fault::Huge((1 << 20) - 2));
    let ran = prices(&toolbox, &["btc"]).await;
    assert_failed(
        &ran,
        ToolOutcome::Failed,
        "sent an unexpected response",
        &market,
    );
    market.break_with(None);
    done(&prices(&toolbox, &["btc"]).await);
}

#[tokio::test]
async fn a_slow_source_times_out() {
    let market = FakeMarket::start().await;
    let toolbox = toolbox(market.address, Duration::from_secs(1));
    market.break_with(Fault::Slow(Duration::from_mins(1)));
    let begun = Instant::now();
    let ran = prices(&toolbox, &["btc"]).await;
    let words = "crypto_price took more than 1 seconds and was stopped";
    assert_failed(&ran, ToolOutcome::TimedOut, words, &market);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let probed = toolbox.probe().await;
    assert_eq!(
        probed,
        [(
            "market data".to_owned(),
            Err("does not answer within 1 seconds".to_owned())
        )]
    );
}

#[tokio::test]
async fn an_unreachable_source_is_reported() {
    let (market, _) = start().await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = gone.local_addr().unwrap();
    drop(gone);
    let ran = prices(&toolbox(address, Duration::from_secs(10)), &["btc"]).await;
    let words = "the source of market data cannot be reached";
    assert_failed(&ran, ToolOutcome::Failed, words, &market);
    assert!(
        !ran.text.contains(&address.port().to_string()),
        "{}",
        ran.text
    );
}

/// Many at once: all succeed, though only a limited number of requests runs at a time.
#[tokio::test]
async fn many_concurrent_runs_are_queued() {
    let (market, toolbox) = start().await;
    market.break_with(Fault::Slow(Duration::from_millis(100)));
    let calls = (0..100).map(|_| prices(&toolbox, &["btc"]));
    for ran in futures_util::future::join_all(calls).await {
        done(&ran);
    }
    assert!((2..=32).contains(&market.most_at_once()));
}
