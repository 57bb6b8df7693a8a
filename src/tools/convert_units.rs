//! `convert_units`: exact conversion between units of one cryptocurrency.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{decimal::Decimal, failure::Failure, sources::Sources, tool::Tool};

pub(crate) struct ConvertUnits;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The amount as a decimal number in a string, e.g. "1.5"
    #[schemars(with = "String")]
    amount: Decimal,
    /// The unit of the amount: wei, kwei, mwei, gwei, szabo, finney, ether; satoshi, bit, mbtc,
    /// bitcoin; lamport, sol
    from: String,
    /// The unit to convert to; one of the same currency
    to: String,
}

#[derive(Serialize)]
pub(crate) struct Converted {
    amount: Decimal,
    from: &'static str,
    to: &'static str,
    result: Decimal,
}

impl Tool for ConvertUnits {
    const NAME: &'static str = "convert_units";
    const DESCRIPTION: &'static str = "Converts an amount between units of the same \
        cryptocurrency, exactly: wei, gwei and ether; satoshi and bitcoin; lamport and sol.";
    type Arguments = Arguments;
    type Output = Converted;

    async fn run(_: &Sources, arguments: Arguments) -> Result<Converted, Failure> {
        convert(&arguments.amount, &arguments.from, &arguments.to)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Currency {
    Ether,
    Bitcoin,
    Solana,
}

#[derive(Debug)]
struct Unit {
    name: &'static str,
    currency: Currency,
    /// The unit is ten to this power of the currency's smallest unit.
    exponent: u8,
    aliases: &'static [&'static str],
}

const fn unit(
    currency: Currency,
    exponent: u8,
    name: &'static str,
    aliases: &'static [&'static str],
) -> Unit {
    Unit {
        name,
        currency,
        exponent,
        aliases,
    }
}

/// All units; the first of each currency is its smallest.
const UNITS: [Unit; 13] = [
    unit(Currency::Ether, 0, "wei", &[]),
    unit(Currency::Ether, 3, "kwei", &["babbage"]),
    unit(Currency::Ether, 6, "mwei", &["lovelace"]),
    unit(Currency::Ether, 9, "gwei", &["shannon", "nanoether"]),
    unit(Currency::Ether, 12, "szabo", &["microether", "twei"]),
    unit(Currency::Ether, 15, "finney", &["milliether", "pwei"]),
    unit(Currency::Ether, 18, "ether", &["eth", "ethers"]),
    unit(
        Currency::Bitcoin,
        0,
        "satoshi",
        &["sat", "sats", "satoshis"],
    ),
    unit(
        Currency::Bitcoin,
        2,
        "bit",
        &["bits", "ubtc", "µbtc", "microbitcoin"],
    ),
    unit(
        Currency::Bitcoin,
        5,
        "mbtc",
        &["millibitcoin", "millibitcoins"],
    ),
    unit(Currency::Bitcoin, 8, "bitcoin", &["btc", "xbt", "bitcoins"]),
    unit(Currency::Solana, 0, "lamport", &["lamports"]),
    unit(Currency::Solana, 9, "sol", &["sols", "solana"]),
];

fn find(field: &str, name: &str) -> Result<&'static Unit, Failure> {
    let wanted = name.trim().to_lowercase();
    let is = |unit: &&Unit| unit.name == wanted || unit.aliases.contains(&wanted.as_str());
    UNITS.iter().find(is).ok_or_else(|| {
        let names: Vec<_> = UNITS.iter().map(|unit| unit.name).collect();
        let names = names.join(", ");
        Failure::arguments(format!(
            "`{field}` is no known unit; expected one of {names}"
        ))
    })
}

fn convert(amount: &Decimal, from: &str, to: &str) -> Result<Converted, Failure> {
    let (from, to) = (find("from", from)?, find("to", to)?);
    if from.currency != to.currency {
        return Err(Failure::other(format!(
            "{} and {} are units of different currencies; a price is needed, see crypto_price",
            from.name, to.name
        )));
    }
    if amount.is_negative() {
        return Err(Failure::other("an amount cannot be negative"));
    }
    let smallest = amount.shifted(from.exponent.into());
    if !smallest.is_integer() {
        let mut same = UNITS.iter().filter(|unit| unit.currency == from.currency);
        let name = same.next().map_or(from.name, |unit| unit.name);
        return Err(Failure::other(format!(
            "{} {} is not a whole number of {name}, and the {name} cannot be divided",
            amount.plain(),
            from.name
        )));
    }
    Ok(Converted {
        amount: amount.clone(),
        from: from.name,
        to: to.name,
        result: smallest.shifted(-i64::from(to.exponent)),
    })
}

#[cfg(test)]
mod tests {
    use alloy_primitives::U256;
    use proptest::prelude::*;

    use super::*;

    fn converted(amount: &str, from: &str, to: &str) -> Result<String, Failure> {
        let amount = Decimal::parse(amount).unwrap();
        convert(&amount, from, to).map(|converted| converted.result.plain())
    }

    #[test]
    fn amounts_are_exact() {
        let largest = U256::MAX.to_string();
        for (amount, from, to, result) in [
            ("1.5", "ether", "wei", "1500000000000000000"),
            ("1", "wei", "ether", "0.000000000000000001"),
            ("1e3", "GWEI", "Ether", "0.000001"),
            ("0.1", " eth ", "gwei", "100000000"),
            ("21", "gwei", "wei", "21000000000"),
            ("21000000", "btc", "sats", "2100000000000000"),
            ("1", "sat", "BTC", "0.00000001"),
            ("1", "mbtc", "bits", "1000"),
            ("2.5", "SOL", "lamports", "2500000000"),
            ("1", "lamport", "sol", "0.000000001"),
            ("0", "ether", "wei", "0"),
            ("7", "szabo", "szabo", "7"),
            ("1e100", "wei", "wei", &format!("1{}", "0".repeat(100))),
            (&largest, "wei", "wei", &largest),
        ] {
            let found = converted(amount, from, to).unwrap();
            assert_eq!(found, result, "{amount} {from} in {to}");
        }
    }

    #[test]
    fn impossible_conversions_name_the_reason() {
        for (amount, from, to, expected) in [
            (
                "1",
                "wei",
                "sat",
                "wei and satoshi are units of different currencies; \
                 a price is needed, see crypto_price",
            ),
            ("-1", "ether", "wei", "negative"),
            ("1.5", "wei", "ether", "the wei cannot be divided"),
            (
                "0.0000000000000000001",
                "ether",
                "gwei",
                "the wei cannot be divided",
            ),
            ("0.1", "sat", "btc", "the satoshi cannot be divided"),
            (
                "0.0000000001",
                "sol",
                "lamport",
                "the lamport cannot be divided",
            ),
            ("1", "euro", "wei", "`from` is no known unit"),
            ("1", "wei", "", "`to` is no known unit"),
        ] {
            let failure = converted(amount, from, to).unwrap_err().to_string();
            assert!(
                failure.contains(expected),
                "{amount} {from} in {to}: {failure}"
            );
        }
    }

    fn two_units() -> impl Strategy<Value = (&'static Unit, &'static Unit)> {
        let unit = || (0..UNITS.len()).prop_map(|at| &UNITS[at]);
        let same = |(a, b): &(&Unit, &Unit)| a.currency == b.currency;
        (unit(), unit()).prop_filter("of one currency", same)
    }

    proptest! {
        /// Converting to another unit and back returns the original amount.
        #[test]
        fn conversion_is_reversible((from, to) in two_units(), amount in any::<u128>()) {
            let there = converted(&amount.to_string(), from.name, to.name).unwrap();
            prop_assert_eq!(converted(&there, to.name, from.name).unwrap(), amount.to_string());
        }

        /// Conversion to a smaller unit equals a multiplication of integers.
        #[test]
        fn conversion_to_a_smaller_unit_is_a_multiplication((from, to) in two_units(), amount in any::<u128>()) {
            prop_assume!(from.exponent >= to.exponent);
            let factor = U256::from(10).pow(U256::from(from.exponent - to.exponent));
            let expected = (U256::from(amount) * factor).to_string();
            prop_assert_eq!(converted(&amount.to_string(), from.name, to.name).unwrap(), expected);
        }
    }
}
