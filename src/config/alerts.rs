//! The `[alerts]` section: which alerts are raised, and where they are delivered.

use std::{fmt, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use lettre::message::Mailbox;

use super::values::{Environment, seconds, secret};
use crate::base::{
    checked_toml::{self, Section, as_text},
    keys::Secret,
    money::NanoUsd,
};

/// Every webhook secret starts with this (Standard Webhooks).
const SECRET_PREFIX: &str = "whsec_";
const MAX_DAYS: i64 = 365;

#[derive(Clone, Debug)]
pub struct Alerts {
    pub enabled: bool,
    /// Interval between two checks of all alert conditions.
    pub every: Duration,
    /// Accounts with less available credit than this raise an alert; `None` turns the alert off.
    pub low_balance: Option<NanoUsd>,
    /// Grants that expire within this many seconds raise an alert; `None` turns the alert off.
    pub expiring_within: Option<i64>,
    pub webhook: Option<Webhook>,
    /// Operators' email addresses, without display names.
    pub mail_to: Vec<String>,
    /// Whether the people of an account get emails about its credit.
    pub tell_customers: bool,
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            enabled: true,
            every: Duration::from_secs(30),
            low_balance: Some(NanoUsd::new(5_000_000_000)),
            expiring_within: Some(7 * 86_400),
            webhook: None,
            mail_to: Vec::new(),
            tell_customers: false,
        }
    }
}

#[derive(Clone)]
pub struct Webhook {
    /// Never shown in full, because its path or query may contain a secret.
    pub url: axum::http::Uri,
    /// `whsec_…`
    pub secret: Secret,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Webhook(at {:?}, ..)",
            self.url.host().unwrap_or_default()
        )
    }
}

impl Webhook {
    /// The signing key: the base64-decoded bytes after the secret's prefix; `None` unless there are 24 to 64 of them.
    pub fn key(&self) -> Option<Vec<u8>> {
        let encoded = self.secret.reveal().strip_prefix(SECRET_PREFIX)?;
        let key = BASE64_STANDARD.decode(encoded).ok()?;
        (24..=64).contains(&key.len()).then_some(key)
    }
}

pub(crate) fn alerts(mut section: Section, has_mail: bool, environment: &Environment) -> Alerts {
    let default = Alerts::default();
    let webhook = webhook(&mut section, environment);
    let expected = "US dollars as a decimal string, e.g. `\"5.00\"`; `\"0\"` turns the alert off";
    let low_balance = section.optional("low_balance", expected, |value| {
        NanoUsd::parse(&as_text(value)?)
    });
    let expected = "a number of days from 1 to 365; 0 turns the alert off";
    let days = section.optional("expiring_days", expected, |value| {
        let days: i64 = checked_toml::as_integer(value)?;
        (0..=MAX_DAYS).contains(&days).then_some(days)
    });
    let mail_to = section.texts(
        "mail_to",
        "a list of addresses, e.g. `[\"ops@example.com\"]`",
    );
    let mut bare = Vec::new();
    for address in mail_to.unwrap_or_default() {
        if let Ok(mailbox) = address.parse::<Mailbox>() {
            bare.push(mailbox.email.to_string());
        } else {
            let message = format!("has `{address}`, which is no address, e.g. `ops@example.com`");
            section.mistake("mail_to", &message);
        }
    }
    let mail_to = bare;
    let tell_customers = section.flag("tell_customers");
    let no_mail = "needs a mail server: add `[mail]`";
    if !has_mail && !mail_to.is_empty() {
        section.mistake("mail_to", no_mail);
    }
    if !has_mail && tell_customers == Some(true) {
        section.mistake("tell_customers", no_mail);
    }
    let alerts = Alerts {
        enabled: section.flag("enabled").unwrap_or(default.enabled),
        every: seconds(&mut section, "every_seconds", 5..=3_600).unwrap_or(default.every),
        low_balance: match low_balance {
            None => default.low_balance,
            Some(amount) => Some(amount).filter(|amount| *amount > NanoUsd::default()),
        },
        expiring_within: match days {
            None => default.expiring_within,
            Some(days) => Some(days * 86_400).filter(|seconds| *seconds > 0),
        },
        webhook,
        mail_to,
        tell_customers: tell_customers.unwrap_or(has_mail),
    };
    section.finish();
    alerts
}

/// The webhook; its URL and its secret must be set together, because a receiver cannot verify unsigned messages.
fn webhook(section: &mut Section, environment: &Environment) -> Option<Webhook> {
    let names_secret =
        section.contains("webhook_secret_env") || section.contains("webhook_secret_file");
    let expected = "a URL, e.g. `https://hooks.example.com/tollgate`";
    let url = section.optional_secret("webhook_url", expected, |value| {
        let url: axum::http::Uri = as_text(value)?.parse().ok()?;
        let known = matches!(url.scheme_str(), Some("http" | "https"));
        (known && url.host().is_some_and(|host| !host.is_empty())).then_some(url)
    });
    let secret = secret(section, "webhook_secret", None, environment);
    let form = "`whsec_` and 24 to 64 bytes in base64, e.g. of `openssl rand -base64 32`";
    match (url, secret) {
        (Some(url), Some(secret)) => {
            let webhook = Webhook { url, secret };
            if webhook.key().is_none() {
                let message = format!("does not hold a webhook secret; expected {form}");
                section.mistake("webhook_secret_env", &message);
            }
            Some(webhook)
        }
        (Some(_), None) if !names_secret => {
            let message = format!("is missing, and `webhook_url` requires it; expected {form}");
            section.mistake("webhook_secret_env", &message);
            None
        }
        (None, Some(_)) => {
            section.mistake("webhook_url", &format!("is missing; expected {expected}"));
            None
        }
        _ => None,
    }
}
