//! The `[payments]` section: the payment provider, and the amounts of credit on offer.

use std::time::Duration;

use super::values::{Environment, http_url, seconds, secret};
use crate::base::{
    checked_toml::{Section, Value, as_integer, as_text},
    keys::Secret,
    money::NanoUsd,
};

const MAX_AMOUNTS: usize = 12;
/// A hundred years.
const MAX_CREDIT_DAYS: u32 = 36_500;

#[derive(Clone, Debug)]
pub struct Payments {
    pub provider: PaymentProvider,
    pub offer: Offer,
}

#[derive(Clone, Debug)]
pub enum PaymentProvider {
    Stripe(Stripe),
    /// Pretends to take payments. Only `tollgate dev` uses it; a configuration file cannot select it.
    Test,
}

#[derive(Clone, Debug)]
pub struct Stripe {
    pub secret_key: Secret,
    /// Key that Stripe signs its webhook events with.
    pub webhook_secret: Secret,
    pub base_url: String,
    /// Timeout of creating a checkout page.
    pub timeout: Duration,
}

/// Amounts of credit that can be bought, all in whole cents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Amounts that the page offers as buttons.
    pub amounts: Vec<NanoUsd>,
    /// Bounds of an amount that a customer types in.
    pub min: NanoUsd,
    pub max: NanoUsd,
    /// Bought credit expires after this many days; `None` means never.
    pub credit_days: Option<u32>,
}

impl Default for Offer {
    fn default() -> Self {
        let dollars = |dollars: i64| NanoUsd::new(dollars * 1_000_000_000);
        Self {
            amounts: [10, 25, 100].map(dollars).into(),
            min: dollars(5),
            max: dollars(1_000),
            credit_days: None,
        }
    }
}

impl Offer {
    /// Parses an amount that a customer typed; `None` unless it is whole cents from `min` to `max`.
    pub(crate) fn amount(&self, text: &str) -> Option<NanoUsd> {
        let text = text.trim();
        let amount = whole_cents(text.strip_prefix('$').unwrap_or(text))?;
        (self.min..=self.max).contains(&amount).then_some(amount)
    }
}

/// Reads the section; call it only if the section exists. `None` if a required setting is missing or unusable.
pub(crate) fn payments(mut section: Section, environment: &Environment) -> Option<Payments> {
    let provider = section.required("provider", "`stripe`", |value| {
        as_text(value).filter(|name| name == "stripe")
    });
    let secret_key = required_secret(&mut section, "secret_key", environment);
    let webhook_secret = required_secret(&mut section, "webhook_secret", environment);
    let base_url = section.optional("base_url", "a URL, e.g. `https://api.stripe.com`", http_url);
    let timeout = seconds(&mut section, "timeout_seconds", 1..=60);
    let offer = offer(&mut section);
    section.finish();
    provider?;
    let stripe = Stripe {
        secret_key: secret_key?,
        webhook_secret: webhook_secret?,
        base_url: base_url.unwrap_or_else(|| "https://api.stripe.com".to_owned()),
        timeout: timeout.unwrap_or(Duration::from_secs(15)),
    };
    Some(Payments {
        provider: PaymentProvider::Stripe(stripe),
        offer,
    })
}

/// A secret that must be configured. Without the API key nothing can be bought; without the webhook secret a payment
/// would be taken and never credited.
fn required_secret(section: &mut Section, key: &str, environment: &Environment) -> Option<Secret> {
    let keys = [key.to_owned(), format!("{key}_env"), format!("{key}_file")];
    if !keys.iter().any(|key| section.contains(key)) {
        let hint = "the name of the environment variable that holds it";
        section.mistake(&keys[1], &format!("is missing; expected {hint}"));
    }
    secret(section, key, None, environment)
}

fn offer(section: &mut Section) -> Offer {
    let default = Offer::default();
    let expected = "US dollars in whole cents as a decimal string, e.g. `\"5.00\"`";
    let mut bound = |key: &str, default| {
        let read = |value: &Value| whole_cents(&as_text(value)?);
        section.optional(key, expected, read).unwrap_or(default)
    };
    let (min, max) = (bound("min", default.min), bound("max", default.max));
    if min > max {
        section.mistake("min", "is more than `max`: nothing could be bought");
    }
    let expected = "one to twelve amounts in whole cents, e.g. `[\"10\", \"25\", \"100\"]`";
    let amounts = section.optional("amounts", expected, |value| {
        let Value::List(items) = value else {
            return None;
        };
        let amounts = items.iter().map(|item| whole_cents(&as_text(&item.value)?));
        let amounts: Vec<NanoUsd> = amounts.collect::<Option<_>>()?;
        (1..=MAX_AMOUNTS)
            .contains(&amounts.len())
            .then_some(amounts)
    });
    if let Some(amounts) = &amounts
        && amounts.iter().any(|amount| !(min..=max).contains(amount))
    {
        section.mistake("amounts", "has an amount that is not from `min` to `max`");
    }
    let expected = "a number of days from 1 to 36500";
    let credit_days = section.optional("credit_days", expected, |value| {
        as_integer(value).filter(|days| (1..=MAX_CREDIT_DAYS).contains(days))
    });
    let within = |amount: &NanoUsd| (min..=max).contains(amount);
    Offer {
        amounts: amounts.unwrap_or_else(|| default.amounts.into_iter().filter(within).collect()),
        min,
        max,
        credit_days,
    }
}

fn whole_cents(text: &str) -> Option<NanoUsd> {
    let amount = NanoUsd::parse(text)?;
    (amount.whole_cents()? > 0).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_cents_within_bounds_can_be_bought() {
        let offer = Offer::default();
        for (text, nanos) in [
            ("5", Some(5_000_000_000)),
            (" $19.99 ", Some(19_990_000_000)),
            ("1000.00", Some(1_000_000_000_000)),
            ("4.99", None),
            ("1000.01", None),
            ("10.001", None),
            ("0", None),
            ("-10", None),
            ("1e2", None),
            ("1,000", None),
            ("ten", None),
            ("", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(offer.amount(text), nanos.map(NanoUsd::new), "{text}");
        }
    }
}
