//! The `[tools]` section: limits of the built-in tools, and their data sources.

use std::{collections::BTreeMap, time::Duration};

use axum::http::{HeaderName, HeaderValue, Uri};

use super::values::{Environment, http_url, seconds, secret};
use crate::base::{
    checked_toml::{self, Section, as_text},
    keys::Secret,
};

#[derive(Clone, Debug)]
pub struct Tools {
    pub enabled: bool,
    /// Most steps of one call: those whose response calls tools, and the final one.
    pub max_steps: u32,
    /// Timeout of one tool call.
    pub timeout: Duration,
    pub market: Option<Market>,
    /// EVM nodes by the chain names that models use.
    pub chains: BTreeMap<String, Chain>,
}

/// A source of market data with `CoinGecko`'s API.
#[derive(Clone, Debug)]
pub struct Market {
    pub base_url: String,
    pub api_key: Option<Secret>,
    pub api_key_header: HeaderName,
}

/// A node of an EVM chain.
#[derive(Clone, Debug)]
pub struct Chain {
    /// A secret, because the path of such URLs often contains a key.
    pub rpc_url: Secret,
    /// Symbol of the chain's native coin.
    pub symbol: String,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            enabled: true,
            max_steps: 8,
            timeout: Duration::from_secs(10),
            market: None,
            chains: BTreeMap::new(),
        }
    }
}

pub(crate) fn tools(mut section: Section, environment: &Environment) -> Tools {
    let default = Tools::default();
    let enabled = section.flag("enabled");
    let max_steps = section.optional("max_steps", "a number from 1 to 32", |value| {
        checked_toml::as_integer(value).filter(|steps| (1..=32).contains(steps))
    });
    let timeout = seconds(&mut section, "timeout_seconds", 1..=120);
    let has_market = section.contains("market");
    let market_section = section.section("market");
    let market = has_market
        .then(|| market(market_section, environment))
        .flatten();
    let chains = section.named_sections("chains").into_iter();
    let chains = chains
        .filter_map(|(name, section)| Some((name, chain(section, environment)?)))
        .collect();
    section.finish();
    Tools {
        enabled: enabled.unwrap_or(default.enabled),
        max_steps: max_steps.unwrap_or(default.max_steps),
        timeout: timeout.unwrap_or(default.timeout),
        market,
        chains,
    }
}

fn market(mut section: Section, environment: &Environment) -> Option<Market> {
    let expected = "a URL, e.g. `https://api.coingecko.com/api/v3`";
    let base_url = section.required("base_url", expected, http_url);
    let api_key = secret(&mut section, "api_key", None, environment);
    if let Some(key) = &api_key
        && HeaderValue::try_from(key.reveal()).is_err()
    {
        let message = "leads to a key with characters that a header cannot carry";
        section.mistake("api_key_env", message);
    }
    let expected = "the name of a header, e.g. `x-cg-pro-api-key`";
    let header = section.optional("api_key_header", expected, |value| {
        as_text(value)?.to_ascii_lowercase().parse().ok()
    });
    section.finish();
    Some(Market {
        base_url: base_url?,
        api_key,
        api_key_header: header.unwrap_or(HeaderName::from_static("x-cg-demo-api-key")),
    })
}

fn chain(mut section: Section, environment: &Environment) -> Option<Chain> {
    let expected = "a URL that begins with `http://` or `https://` and has no user in it";
    // Checked first, because reading a setting removes it from the section.
    let given = [section.contains("rpc_url"), section.contains("rpc_url_env")];
    let written = section.optional_secret("rpc_url", expected, |value| {
        as_text(value).filter(|url| is_rpc_url(url))
    });
    let expected_name = "the name of an environment variable";
    let named = section.optional("rpc_url_env", expected_name, as_text);
    match given {
        [true, true] => {
            let message = "is there, and so is `rpc_url_env`; expected one of the two";
            section.mistake("rpc_url", message);
        }
        [false, false] => {
            let message = format!("is missing; expected {expected}, or `rpc_url_env`");
            section.mistake("rpc_url", &message);
        }
        _ => {}
    }
    let from_environment = named.and_then(|variable| {
        let Some(url) = environment.get(&variable).map(|url| url.trim()) else {
            let hint = "which is not set; export it, or name another variable";
            let message = format!("names the variable {variable}, {hint}");
            section.mistake("rpc_url_env", &message);
            return None;
        };
        if !is_rpc_url(url) {
            let message = format!("names the variable {variable}, which does not hold {expected}");
            section.mistake("rpc_url_env", &message);
        }
        Some(url.to_owned())
    });
    let expected = "the name of its native coin, e.g. `ETH`";
    let symbol = section.optional("symbol", expected, |value| {
        as_text(value).filter(|symbol| !symbol.is_empty() && symbol.len() <= 20)
    });
    section.finish();
    Some(Chain {
        rpc_url: Secret::new(written.or(from_environment)?),
        symbol: symbol.unwrap_or_else(|| "ETH".into()),
    })
}

/// Whether this is a usable URL of a node. Unlike a base URL it may have a query, where some providers expect the key.
fn is_rpc_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    let host = uri.host().is_some_and(|host| !host.is_empty());
    // The HTTP client would not send a user and password, so every call would fail; refuse them here instead.
    let user = uri
        .authority()
        .is_some_and(|all| all.as_str().contains('@'));
    known && host && !user
}
