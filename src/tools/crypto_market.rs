//! `crypto_market`: price history of a coin.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    crypto_price::MAX_SYMBOL_CHARS,
    decimal::Decimal,
    failure::Failure,
    market::{History, Point},
    sources::Sources,
    tool::Tool,
};
use crate::base::timestamp;

/// Most points in the output: enough to show a trend, while a year of history has thousands.
const MAX_POINTS: usize = 30;
const MAX_DAYS: u32 = 365;

pub(crate) struct CryptoMarket;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The symbol or ID of the coin, e.g. btc
    symbol: String,
    /// How many days to look back, from 1 to 365; 7 if it is left out
    days: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Output {
    symbol: String,
    id: String,
    currency: &'static str,
    days: u32,
    first: PriceAt,
    last: PriceAt,
    lowest: PriceAt,
    highest: PriceAt,
    /// Change from the first to the last price, to four decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    change_percent: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    market_cap: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_24h: Option<Decimal>,
    /// Times and prices, thinned out evenly.
    points: Vec<(String, Decimal)>,
}

#[derive(Debug, Serialize)]
struct PriceAt {
    time: String,
    price: Decimal,
}

impl Tool for CryptoMarket {
    const NAME: &'static str = "crypto_market";
    const DESCRIPTION: &'static str = "How a cryptocurrency has done over some days, in US \
        dollars: first, last, lowest and highest price, change, volume, market capitalisation and \
        a thinned price history.";
    type Arguments = Arguments;
    type Output = Output;

    async fn run(sources: &Sources, arguments: Arguments) -> Result<Output, Failure> {
        let symbol = arguments.symbol.trim().to_owned();
        if !(1..=MAX_SYMBOL_CHARS).contains(&symbol.len()) {
            return Err(Failure::arguments("`symbol` must be a symbol, e.g. `btc`"));
        }
        let days = arguments.days.unwrap_or(7);
        if !(1..=MAX_DAYS).contains(&days) {
            let message = format!("`days` must be from 1 to {MAX_DAYS}");
            return Err(Failure::arguments(message));
        }
        let market = sources.market()?;
        let unknown = || Failure::other(format!("no coin is known as {symbol}"));
        let id = market.find(&symbol).await?.ok_or_else(unknown)?;
        let history = market.history(&id, days).await?.ok_or_else(unknown)?;
        output(symbol, id, days, history)
    }
}

fn output(symbol: String, id: String, days: u32, history: History) -> Result<Output, Failure> {
    let prices: Vec<(i64, Decimal)> = history.prices.into_iter().filter_map(with_price).collect();
    let (Some(first), Some(last)) = (prices.first(), prices.last()) else {
        return Err(Failure::other(format!("there is no history of {symbol}")));
    };
    let by_price = |a: &&(i64, Decimal), b: &&(i64, Decimal)| a.1.cmp(&b.1);
    // `max_by` returns the last of equal elements; reversed, it finds the first time of the highest price.
    let lowest = prices.iter().min_by(by_price).unwrap_or(first);
    let highest = prices.iter().rev().max_by(by_price).unwrap_or(first);
    let newest = |points: Vec<Point>| points.into_iter().rev().find_map(|(_, value)| value);
    Ok(Output {
        first: at(first),
        last: at(last),
        lowest: at(lowest),
        highest: at(highest),
        change_percent: first.1.change_percent(&last.1),
        market_cap: newest(history.market_caps),
        volume_24h: newest(history.total_volumes),
        points: thinned(&prices),
        currency: "usd",
        symbol,
        id,
        days,
    })
}

/// The point, unless its price is missing.
fn with_price((time, price): Point) -> Option<(i64, Decimal)> {
    Some((time, price?))
}

fn at((time, price): &(i64, Decimal)) -> PriceAt {
    PriceAt {
        time: shown(*time),
        price: price.clone(),
    }
}

fn shown(unix_ms: i64) -> String {
    timestamp::shown(unix_ms.div_euclid(1_000))
}

/// At most [`MAX_POINTS`] points at even distances, including the first and the last.
fn thinned(prices: &[(i64, Decimal)]) -> Vec<(String, Decimal)> {
    let count = prices.len().min(MAX_POINTS);
    let chosen = (0..count).map(|step| match count {
        1 => 0,
        _ => step * (prices.len() - 1) / (count - 1),
    });
    chosen
        .map(|at| (shown(prices[at].0), prices[at].1.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(count: i64) -> History {
        let price = |step: i64| Some(Decimal::parse(&format!("{step}.10")).unwrap());
        let points = |from: i64| {
            let steps = 0..count;
            steps
                .map(|step| (1_711_843_200_000 + step * 60_000, price(from + step)))
                .collect()
        };
        History {
            prices: points(1),
            market_caps: points(1_000),
            total_volumes: points(10),
        }
    }

    #[test]
    fn a_history_is_summarised() {
        let mut history = history(3);
        history.prices.insert(1, (1_711_843_260_000, None));
        history.prices.push((
            1_711_850_000_000,
            Some(Decimal::parse("0.0000001234").unwrap()),
        ));
        let output = output("BTC".into(), "bitcoin".into(), 7, history).unwrap();
        insta::assert_snapshot!(serde_json::to_string(&output).unwrap(), @r#"{"symbol":"BTC","id":"bitcoin","currency":"usd","days":7,"first":{"time":"2024-03-31T00:00:00Z","price":"1.10"},"last":{"time":"2024-03-31T01:53:20Z","price":"0.0000001234"},"lowest":{"time":"2024-03-31T01:53:20Z","price":"0.0000001234"},"highest":{"time":"2024-03-31T00:02:00Z","price":"3.10"},"change_percent":"-100","market_cap":"1002.10","volume_24h":"12.10","points":[["2024-03-31T00:00:00Z","1.10"],["2024-03-31T00:01:00Z","2.10"],["2024-03-31T00:02:00Z","3.10"],["2024-03-31T01:53:20Z","0.0000001234"]]}"#);
    }

    #[test]
    fn a_history_is_thinned_evenly() {
        for count in [1, 2, 29, 30, 31, 365, 8_760] {
            let prices: Vec<_> = history(count)
                .prices
                .into_iter()
                .filter_map(with_price)
                .collect();
            let points = thinned(&prices);
            assert_eq!(points.len(), prices.len().min(MAX_POINTS), "{count}");
            assert_eq!(points[0].1, prices[0].1, "{count}");
            assert_eq!(
                points.last().unwrap().1,
                prices.last().unwrap().1,
                "{count}"
            );
            assert!(points.is_sorted_by(|a, b| a.0 < b.0), "{count}");
        }
    }

    #[test]
    fn an_empty_history_is_a_failure() {
        let failure = output("x".into(), "x".into(), 7, History::default()).unwrap_err();
        assert_eq!(failure.to_string(), "there is no history of x");
    }
}
