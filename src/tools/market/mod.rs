//! Client for market data from an HTTP API like `CoinGecko`'s.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::Full;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, de::DeserializeOwned};

mod coins;

use super::{
    decimal::Decimal,
    failure::Failure,
    web::{Fault, Web},
};
use crate::config;

/// Characters to escape, so that text of a model stays one segment of a path or one value of a query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// Most entries of the cache of searched symbols; it is cleared when full.
const MAX_CACHED_IDS: usize = 10_000;

pub(crate) struct Market {
    web: Web,
    base_url: String,
    key: Option<(HeaderName, HeaderValue)>,
    /// Cache of searches: the ID of each symbol, `None` if there is no such coin. The IDs of coins do not change.
    ids: Mutex<HashMap<String, Option<String>>>,
}

/// Current values by coin ID, then by the API's field name (`usd`, `usd_market_cap`).
pub(crate) type Prices = BTreeMap<String, BTreeMap<String, Option<Decimal>>>;

/// A time in Unix milliseconds and the value at that time.
pub(crate) type Point = (i64, Option<Decimal>);

#[derive(Debug, Default, Deserialize)]
pub(crate) struct History {
    #[serde(default)]
    pub prices: Vec<Point>,
    #[serde(default)]
    pub market_caps: Vec<Point>,
    #[serde(default)]
    pub total_volumes: Vec<Point>,
}

impl Market {
    pub(crate) fn new(config: &config::Market, web: Web) -> Result<Self, String> {
        let key = config.api_key.as_ref().map(|key| {
            let mut value = HeaderValue::try_from(key.reveal())
                .map_err(|_| "the market data's key has characters that a header cannot carry")?;
            value.set_sensitive(true);
            Ok::<_, String>((config.api_key_header.clone(), value))
        });
        Ok(Self {
            web,
            base_url: config.base_url.clone(),
            key: key.transpose()?,
            ids: Mutex::default(),
        })
    }

    /// The ID of the coin with this symbol or ID; `None` if there is no such coin.
    pub(crate) async fn find(&self, symbol: &str) -> Result<Option<String>, Failure> {
        if let Some(id) = coins::well_known(symbol) {
            return Ok(Some(id.to_owned()));
        }
        let symbol = symbol.to_lowercase();
        let cached = self.ids().get(&symbol).cloned();
        if let Some(id) = cached {
            return Ok(id);
        }
        let path = format!("/search?query={}", encoded(&symbol));
        let found: coins::SearchResult = self.get(&path).await.map_err(failure)?;
        let id = found.best(&symbol);
        let mut ids = self.ids();
        if ids.len() >= MAX_CACHED_IDS {
            ids.clear();
        }
        ids.insert(symbol, id.clone());
        Ok(id)
    }

    pub(crate) async fn prices(&self, ids: &[&str], currency: &str) -> Result<Prices, Failure> {
        let ids: Vec<_> = ids.iter().map(|id| encoded(id)).collect();
        let path = format!(
            "/simple/price?ids={}&vs_currencies={}&include_market_cap=true&include_24hr_vol=true\
             &include_24hr_change=true&include_last_updated_at=true",
            ids.join(","),
            encoded(currency)
        );
        self.get(&path).await.map_err(failure)
    }

    /// History in US dollars; `None` if there is no such coin.
    pub(crate) async fn history(&self, id: &str, days: u32) -> Result<Option<History>, Failure> {
        let id = encoded(id);
        let path = format!("/coins/{id}/market_chart?vs_currency=usd&days={days}");
        match self.get(&path).await {
            Ok(history) => Ok(Some(history)),
            Err(Fault::Status(StatusCode::NOT_FOUND)) => Ok(None),
            Err(fault) => Err(failure(fault)),
        }
    }

    /// Sends a request that costs nothing; returns what is wrong, if anything.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        match self.get::<serde::de::IgnoredAny>("/ping").await {
            Ok(_) => Ok("answers".into()),
            Err(Fault::Status(StatusCode::NOT_FOUND)) => {
                Err("has no /ping (status 404): is `base_url` right?".into())
            }
            Err(fault) => Err(fault.to_string()),
        }
    }

    fn ids(&self) -> MutexGuard<'_, HashMap<String, Option<String>>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let uri = format!("{}{path}", self.base_url);
        let uri: Uri = uri.parse().map_err(|_| Fault::Unreachable)?;
        let mut request = Web::request(Method::GET, uri);
        if let Some((name, value)) = &self.key {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::new()));
        self.web
            .fetch_json(request.expect("made of checked parts"))
            .await
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Logs a fault and turns it into text for the model.
fn failure(fault: Fault) -> Failure {
    tracing::warn!(reason = %fault, "built-in tool failed: the source of market data {fault}");
    Failure::other(format!("the source of market data {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_model_cannot_change_the_url() {
        assert_eq!(encoded("usd-coin"), "usd-coin");
        assert_eq!(
            encoded("../x?y=1&z#w @/%00é"),
            "%2E%2E%2Fx%3Fy%3D1%26z%23w%20%40%2F%2500%C3%A9"
        );
    }
}
