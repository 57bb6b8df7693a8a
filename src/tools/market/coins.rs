//! Finds the coin for a symbol, which several coins may share.

use serde::Deserialize;

/// Symbols that commonly mean one coin, with its ID.
const WELL_KNOWN: [(&str, &str); 30] = [
    ("aave", "aave"),
    ("ada", "cardano"),
    ("algo", "algorand"),
    ("apt", "aptos"),
    ("arb", "arbitrum"),
    ("atom", "cosmos"),
    ("avax", "avalanche-2"),
    ("bch", "bitcoin-cash"),
    ("bnb", "binancecoin"),
    ("btc", "bitcoin"),
    ("dai", "dai"),
    ("doge", "dogecoin"),
    ("dot", "polkadot"),
    ("eth", "ethereum"),
    ("fil", "filecoin"),
    ("link", "chainlink"),
    ("ltc", "litecoin"),
    ("near", "near"),
    ("op", "optimism"),
    ("shib", "shiba-inu"),
    ("sol", "solana"),
    ("sui", "sui"),
    ("ton", "the-open-network"),
    ("trx", "tron"),
    ("uni", "uniswap"),
    ("usdc", "usd-coin"),
    ("usdt", "tether"),
    ("xlm", "stellar"),
    ("xmr", "monero"),
    ("xrp", "ripple"),
];

pub(crate) fn well_known(text: &str) -> Option<&'static str> {
    let matches = |(symbol, id): &&(&str, &str)| {
        symbol.eq_ignore_ascii_case(text) || id.eq_ignore_ascii_case(text)
    };
    WELL_KNOWN.iter().find(matches).map(|(_, id)| *id)
}

/// Response of the search API.
#[derive(Deserialize)]
pub(crate) struct SearchResult {
    #[serde(default)]
    coins: Vec<Coin>,
}

#[derive(Deserialize)]
struct Coin {
    id: String,
    #[serde(default)]
    symbol: String,
    market_cap_rank: Option<u64>,
}

impl SearchResult {
    /// The highest-ranked coin whose symbol or ID equals `text`; coins without a rank come last.
    pub(crate) fn best(self, text: &str) -> Option<String> {
        let matches = |coin: &Coin| {
            coin.symbol.eq_ignore_ascii_case(text) || coin.id.eq_ignore_ascii_case(text)
        };
        let coins = self.coins.into_iter().filter(matches);
        let best = coins.min_by_key(|coin| coin.market_cap_rank.unwrap_or(u64::MAX));
        best.map(|coin| coin.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order_and_knows_ids_too() {
        assert!(WELL_KNOWN.is_sorted());
        assert_eq!(well_known("BTC"), Some("bitcoin"));
        assert_eq!(well_known("Bitcoin"), Some("bitcoin"));
        assert_eq!(well_known("bitcoi"), None);
    }

    #[test]
    fn the_best_ranked_exact_match_is_taken() {
        let found = || -> SearchResult {
            serde_json::from_str(
                r#"{"coins":[
                    {"id":"pepe-fork","symbol":"PEPE","market_cap_rank":null},
                    {"id":"pepecoin","symbol":"PEPECOIN","market_cap_rank":2},
                    {"id":"pepe-small","symbol":"pepe","market_cap_rank":900},
                    {"id":"pepe","symbol":"Pepe","market_cap_rank":30}],"exchanges":[]}"#,
            )
            .unwrap()
        };
        assert_eq!(found().best("pepe").as_deref(), Some("pepe"));
        assert_eq!(found().best("PEPE-FORK").as_deref(), Some("pepe-fork"));
        assert_eq!(found().best("pep"), None);
        let unranked: SearchResult = serde_json::from_str(r#"{"coins":[{"id":"x"}]}"#).unwrap();
        assert_eq!(unranked.best("X").as_deref(), Some("x"));
    }
}
