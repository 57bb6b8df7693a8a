//! Data sources of the tools: only those that the configuration names.

use std::{collections::BTreeMap, time::Duration};

use super::{chain::Chain, failure::Failure, market::Market, web::Web};
use crate::config;

pub(crate) struct Sources {
    market: Option<Market>,
    chains: BTreeMap<String, Chain>,
}

/// Connect timeout; short, because a tool call as a whole has only seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Sources {
    pub(crate) fn new(config: &config::Tools) -> Result<Self, String> {
        let web = Web::new(CONNECT_TIMEOUT.min(config.timeout))?;
        let market = config.market.as_ref();
        // Each source has a concurrency limit of its own, so that one that hangs does not block the others.
        let market = market
            .map(|market| Market::new(market, web.with_own_limit()))
            .transpose()?;
        let chains = config.chains.iter().map(|(name, chain)| {
            let chain = Chain::new(name, chain, web.with_own_limit())?;
            Ok((name.clone(), chain))
        });
        Ok(Self {
            market,
            chains: chains.collect::<Result<_, String>>()?,
        })
    }

    pub(crate) fn market(&self) -> Result<&Market, Failure> {
        let market = self.market.as_ref();
        market.ok_or_else(|| Failure::other("market data is not configured"))
    }

    pub(crate) fn chain(&self, name: &str) -> Result<&Chain, Failure> {
        let name = name.trim();
        let mut chains = self.chains.iter();
        let found = chains.find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, chain)| chain).ok_or_else(|| {
            if self.chains.is_empty() {
                return Failure::other("no chain is configured");
            }
            // Arbitrary text of a model, so it is cut.
            let name: String = name.chars().take(40).collect();
            let known = self.chain_names().join(", ");
            Failure::other(format!(
                "the chain `{name}` is not configured; configured: {known}"
            ))
        })
    }

    pub(crate) fn chain_names(&self) -> Vec<&str> {
        self.chains.keys().map(String::as_str).collect()
    }

    /// Probes each source; fails for a source that does not respond within `timeout`.
    pub(crate) async fn probe(&self, timeout: Duration) -> Vec<(String, Result<String, String>)> {
        let mut found = Vec::new();
        if let Some(market) = &self.market {
            found.push((
                "market data".to_owned(),
                with_timeout(timeout, market.probe()).await,
            ));
        }
        for (name, chain) in &self.chains {
            let result = with_timeout(timeout, chain.probe()).await;
            found.push((format!("chain `{name}`"), result));
        }
        found
    }
}

async fn with_timeout(
    timeout: Duration,
    probe: impl Future<Output = Result<String, String>>,
) -> Result<String, String> {
    let late = |_| {
        Err(format!(
            "does not answer within {} seconds",
            timeout.as_secs()
        ))
    };
    tokio::time::timeout(timeout, probe)
        .await
        .unwrap_or_else(late)
}
