//! A fake source of market data with `CoinGecko`'s API and configurable faults.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse as _, Response},
};
use tokio::net::TcpListener;

/// More digits than a float can represent.
pub const BITCOIN_PRICE: &str = "67187.335893656612345678901234567";

#[derive(Clone)]
pub struct FakeMarket {
    pub address: SocketAddr,
    state: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    fault: Mutex<Option<Fault>>,
    received: Mutex<Vec<(Uri, HeaderMap)>>,
    /// Slow responses in progress, and the highest number so far.
    now: AtomicUsize,
    most: AtomicUsize,
}

/// What the server does instead of responding normally.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Delays the response.
    Slow(Duration),
    Redirect(SocketAddr),
    Status(u16),
    /// A JSON body of this many bytes.
    Huge(usize),
    /// A body that never ends, sent piece by piece.
    Endless,
    Body(&'static str),
}

impl FakeMarket {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let market = Self {
            address: listener.local_addr().unwrap(),
            state: Arc::default(),
        };
        let router = Router::new()
            .fallback(answer)
            .with_state(market.state.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        market
    }

    pub fn break_with(&self, fault: impl Into<Option<Fault>>) {
        *self.state.fault.lock().unwrap() = fault.into();
    }

    /// Request URIs since the last call.
    pub fn requests(&self) -> Vec<String> {
        let mut received = self.state.received.lock().unwrap();
        received.drain(..).map(|(uri, _)| uri.to_string()).collect()
    }

    /// The highest number of simultaneous slow responses.
    pub fn most_at_once(&self) -> usize {
        self.state.most.load(Ordering::Relaxed)
    }

    pub fn last_headers(&self) -> HeaderMap {
        let received = self.state.received.lock().unwrap();
        received.last().expect("it got a request").1.clone()
    }
}

async fn answer(State(state): State<Arc<Shared>>, request: Request) -> Response {
    let uri = request.uri().clone();
    let requests = (uri.clone(), request.headers().clone());
    state.received.lock().unwrap().push(requests);
    let fault = state.fault.lock().unwrap().clone();
    match fault {
        None => {}
        Some(Fault::Slow(pause)) => {
            let now = state.now.fetch_add(1, Ordering::Relaxed) + 1;
            state.most.fetch_max(now, Ordering::Relaxed);
            tokio::time::sleep(pause).await;
            state.now.fetch_sub(1, Ordering::Relaxed);
        }
        Some(Fault::Redirect(to)) => {
            let to = format!("http://{to}/stolen");
            return (StatusCode::FOUND, [(header::LOCATION, to)]).into_response();
        }
        Some(Fault::Status(status)) => {
            let words = "who asks 127.0.0.1 with the key market-key?";
            return (StatusCode::from_u16(status).unwrap(), words).into_response();
        }
        Some(Fault::Huge(bytes)) => return format!("\"{}\"", "x".repeat(bytes)).into_response(),
        Some(Fault::Endless) => {
            let piece = || Some((Ok::<_, std::io::Error>("x".repeat(64 << 10)), ()));
            let pieces = futures_util::stream::unfold((), move |()| async move { piece() });
            return Body::from_stream(pieces).into_response();
        }
        Some(Fault::Body(body)) => return body.into_response(),
    }
    match uri.path() {
        "/api/v3/ping" => r#"{"gecko_says":"(V3) To the Moon!"}"#.into_response(),
        "/api/v3/simple/price" => prices().into_response(),
        "/api/v3/search" => search(uri.query().unwrap_or_default()).into_response(),
        "/api/v3/coins/bitcoin/market_chart" => chart().into_response(),
        _ => (StatusCode::NOT_FOUND, r#"{"error":"coin not found"}"#).into_response(),
    }
}

fn prices() -> String {
    format!(
        r#"{{"bitcoin":{{"usd":{BITCOIN_PRICE},"usd_market_cap":1317802988326.25,
            "usd_24h_vol":31260929299.52484,"usd_24h_change":3.637278946773539,
            "last_updated_at":1711356300}},
            "pepe":{{"usd":8.1e-06,"usd_market_cap":null,"last_updated_at":1711356301}}}}"#
    )
}

fn search(query: &str) -> &'static str {
    match query {
        "query=pepe" => {
            r#"{"coins":[{"id":"pepe-2","symbol":"PEPE","market_cap_rank":1200},
                {"id":"pepe","symbol":"PEPE","market_cap_rank":30}]}"#
        }
        // Found by the search, and unknown to every other endpoint.
        "query=gone" => r#"{"coins":[{"id":"gone","symbol":"GONE","market_cap_rank":null}]}"#,
        _ => r#"{"coins":[{"id":"near-miss","symbol":"NEARMISS","market_cap_rank":1}]}"#,
    }
}

/// Hourly points of a week: 169, from 60000 to a little over 60168.
fn chart() -> String {
    let points = |of: fn(u64) -> String| {
        let points = (0..169_u64).map(|hour| {
            let time = 1_711_843_200_000 + hour * 3_600_000;
            format!("[{time},{}]", of(hour))
        });
        points.collect::<Vec<_>>().join(",")
    };
    format!(
        r#"{{"prices":[{}],"market_caps":[{}],"total_volumes":[{}]}}"#,
        points(|hour| format!("{}.000000000000000000001", 60_000 + hour)),
        points(|hour| format!("{}", 1_300_000_000_000 + hour)),
        points(|_| "31260929299.52484".into()),
    )
}
