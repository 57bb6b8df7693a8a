//! Prices of an operator made from a vendor's list prices and a margin.

use std::{fmt, str::FromStr as _};

use bigdecimal::{BigDecimal, RoundingMode};

use crate::{
    base::checked_toml::{Node, Value},
    catalog::list_prices::{LIST_PRICES, ListedModel, PRICES},
};

/// Most digits behind the point of a price per million tokens.
const DIGITS: i64 = 6;

/// What a price is more than the list price, in percent.
#[derive(Clone, Debug)]
pub(crate) struct Margin(BigDecimal);

/// Reads `20%` or `20`.
pub(crate) fn margin(text: &str) -> Result<Margin, String> {
    let number = text.trim().trim_end_matches('%').trim_end();
    let percent = BigDecimal::from_str(number).map_err(|_| "expected a percentage, e.g. 20%")?;
    let range = BigDecimal::from(-100)..=BigDecimal::from(10_000);
    let fits = range.contains(&percent);
    fits.then_some(Margin(percent))
        .ok_or_else(|| "expected a percentage from -100 to 10000".to_owned())
}

impl fmt::Display for Margin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0.normalized().to_plain_string())
    }
}

impl Margin {
    /// The price with the margin, rounded up, as it is written.
    fn of(&self, price: &str) -> String {
        let price = BigDecimal::from_str(price).unwrap_or_default();
        let share = (BigDecimal::from(100) + &self.0) / BigDecimal::from(100);
        let price = (price * share)
            .with_scale_round(DIGITS, RoundingMode::Up)
            .normalized();
        let scale = price.fractional_digit_count().max(2);
        price.with_scale(scale).to_plain_string()
    }
}

/// A model as `[[models]]`, with its price and its cost.
pub(crate) fn model(
    provider: &str,
    id: &str,
    upstream: &str,
    listed: &ListedModel,
    margin: &Margin,
) -> String {
    let mut lines = vec![
        "[[models]]".to_owned(),
        format!("id = {id:?}"),
        format!("provider = {provider:?}"),
    ];
    if upstream != id {
        lines.push(format!("upstream_model = {upstream:?}"));
    }
    let prices = PRICES
        .iter()
        .filter_map(|&key| Some((key, listed.settings.get(key)?)));
    for (key, node) in prices.clone() {
        lines.push(format!(
            "{key} = {}",
            written(node, &|price| margin.of(price))
        ));
    }
    let remark = format!(" # list prices of {} plus {margin}", LIST_PRICES.date);
    lines[if upstream == id { 3 } else { 4 }] += &remark;
    let costs = prices.map(|(key, node)| format!("{key} = {}", written(node, &str::to_owned)));
    let costs: Vec<_> = costs.collect();
    lines.push(format!("cost = {{ {} }}", costs.join(", ")));
    lines.join("\n") + "\n"
}

/// A setting as TOML, with its prices changed.
fn written(node: &Node, price: &dyn Fn(&str) -> String) -> String {
    match &node.value {
        Value::Text(text) => format!("{:?}", price(text)),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(|item| written(item, price)).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Table(entries) => {
            let entries = entries
                .iter()
                .map(|(key, node)| format!("{key} = {}", written(node, price)));
            let entries: Vec<_> = entries.collect();
            format!("{{ {} }}", entries.join(", "))
        }
        other => other.shown(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_exact_and_rounded_up() {
        let twenty = margin("20%").unwrap();
        assert_eq!(twenty.to_string(), "20 %");
        for (price, with_margin) in [
            ("2.50", "3.00"),
            ("0.075", "0.09"),
            ("10", "12.00"),
            ("0.0000001", "0.000001"),
        ] {
            assert_eq!(twenty.of(price), with_margin);
        }
        assert_eq!(margin("0").unwrap().of("0.15"), "0.15");
        assert_eq!(margin("12.5 %").unwrap().of("8.00"), "9.00");
        assert!(margin("much").is_err() && margin("-101%").is_err());
    }
}
