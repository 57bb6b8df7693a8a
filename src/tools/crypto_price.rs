//! `crypto_price`: current prices of coins.

use futures_util::future::try_join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{decimal::Decimal, failure::Failure, market::Prices, sources::Sources, tool::Tool};
use crate::base::timestamp;

const MAX_SYMBOLS: usize = 20;
/// More than the longest ID of a coin has.
pub(crate) const MAX_SYMBOL_CHARS: usize = 64;

pub(crate) struct CryptoPrice;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// Symbols or IDs of the coins, e.g. btc and eth; at most 20
    symbols: Vec<String>,
    /// The currency of the prices, e.g. usd, eur or btc; usd if it is left out
    currency: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Output {
    currency: String,
    prices: Vec<Coin>,
    /// Symbols that match no coin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown: Vec<String>,
    /// Symbols of coins for which the source has no price in this currency.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    without_price: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Coin {
    symbol: String,
    id: String,
    price: Decimal,
    #[serde(skip_serializing_if = "Option::is_none")]
    market_cap: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_24h: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change_24h_percent: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_updated_at: Option<String>,
}

impl Tool for CryptoPrice {
    const NAME: &'static str = "crypto_price";
    const DESCRIPTION: &'static str = "Current prices of cryptocurrencies, with market \
        capitalisation, volume and change over the last 24 hours.";
    type Arguments = Arguments;
    type Output = Output;

    async fn run(sources: &Sources, arguments: Arguments) -> Result<Output, Failure> {
        let symbols = symbols(arguments.symbols)?;
        let currency = currency(arguments.currency.as_deref())?;
        let market = sources.market()?;
        let ids = try_join_all(symbols.iter().map(|symbol| market.find(symbol))).await?;
        let requested: Vec<_> = symbols.into_iter().zip(ids).collect();
        let mut ids: Vec<&str> = requested
            .iter()
            .filter_map(|(_, id)| id.as_deref())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        let prices = if ids.is_empty() {
            Prices::new()
        } else {
            market.prices(&ids, &currency).await?
        };
        output(requested, currency, &prices)
    }
}

fn symbols(written: Vec<String>) -> Result<Vec<String>, Failure> {
    let trimmed = |symbol: String| symbol.trim().to_owned();
    let symbols: Vec<String> = written.into_iter().map(trimmed).collect();
    if symbols.is_empty() || symbols.len() > MAX_SYMBOLS {
        let message = format!("`symbols` must have from 1 to {MAX_SYMBOLS} entries");
        return Err(Failure::arguments(message));
    }
    let usable = |symbol: &String| (1..=MAX_SYMBOL_CHARS).contains(&symbol.len());
    if !symbols.iter().all(usable) {
        return Err(Failure::arguments("`symbols` must be symbols, e.g. `btc`"));
    }
    Ok(symbols)
}

fn currency(written: Option<&str>) -> Result<String, Failure> {
    let currency = written.map_or("usd", str::trim).to_lowercase();
    let letters = currency.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if !letters || !(2..=10).contains(&currency.len()) {
        return Err(Failure::arguments("`currency` must be a code, e.g. `usd`"));
    }
    Ok(currency)
}

fn output(
    requested: Vec<(String, Option<String>)>,
    currency: String,
    known: &Prices,
) -> Result<Output, Failure> {
    let (mut prices, mut unknown, mut without_price) = (Vec::new(), Vec::new(), Vec::new());
    for (symbol, id) in requested {
        let Some(id) = id else {
            unknown.push(symbol);
            continue;
        };
        let now = known.get(&id);
        let value = |key: String| now?.get(&key).cloned().flatten();
        let Some(price) = value(currency.clone()) else {
            without_price.push(symbol);
            continue;
        };
        let updated = value("last_updated_at".into()).and_then(|seconds| seconds.to_i64());
        prices.push(Coin {
            price,
            market_cap: value(format!("{currency}_market_cap")),
            volume_24h: value(format!("{currency}_24h_vol")),
            change_24h_percent: value(format!("{currency}_24h_change")),
            last_updated_at: updated.map(timestamp::shown),
            symbol,
            id,
        });
    }
    if prices.is_empty() && without_price.is_empty() {
        let unknown = unknown.join(", ");
        return Err(Failure::other(format!("no coin is known as {unknown}")));
    }
    Ok(Output {
        currency,
        prices,
        unknown,
        without_price,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_of_the_source_is_passed_on() {
        let known: Prices = serde_json::from_str(
            r#"{"bitcoin":{"usd":67187.33589365664123456789,"usd_market_cap":1317802988326.25,
                "usd_24h_vol":3.1260929299527e10,"usd_24h_change":3.637278946773539,
                "last_updated_at":1711356300},
                "dust":{"usd":1.5e-12,"usd_market_cap":null},
                "odd":{"last_updated_at":1711356300}}"#,
        )
        .unwrap();
        let requested = [
            ("BTC", Some("bitcoin")),
            ("dst", Some("dust")),
            ("nope", None),
            ("o", Some("odd")),
        ];
        let requested = requested.map(|(symbol, id)| (symbol.to_owned(), id.map(str::to_owned)));
        let output = output(requested.into(), "usd".into(), &known).unwrap();
        insta::assert_snapshot!(serde_json::to_string(&output).unwrap(), @r#"{"currency":"usd","prices":[{"symbol":"BTC","id":"bitcoin","price":"67187.33589365664123456789","market_cap":"1317802988326.25","volume_24h":"31260929299.527","change_24h_percent":"3.637278946773539","last_updated_at":"2024-03-25T08:45:00Z"},{"symbol":"dst","id":"dust","price":"0.0000000000015"}],"unknown":["nope"],"without_price":["o"]}"#);
    }

    #[test]
    fn nothing_known_is_a_failure() {
        let requested = vec![("nope".to_owned(), None)];
        let failure = output(requested, "usd".into(), &Prices::new()).unwrap_err();
        assert_eq!(failure.to_string(), "no coin is known as nope");
    }

    #[test]
    fn arguments_have_bounds() {
        let many = |count: usize| vec!["btc".to_owned(); count];
        assert!(symbols(many(1)).is_ok() && symbols(many(20)).is_ok());
        for wrong in [many(0), many(21), vec![" ".into()], vec!["x".repeat(65)]] {
            assert!(matches!(symbols(wrong), Err(Failure::Arguments(_))));
        }
        assert_eq!(currency(None).unwrap(), "usd");
        assert_eq!(currency(Some(" EUR ")).unwrap(), "eur");
        for wrong in ["", "u", "usd&x=1", "a/b", "dollarsdollars"] {
            assert!(currency(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
