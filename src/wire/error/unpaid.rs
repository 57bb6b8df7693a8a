//! The details of a request that the account's credit does not cover.

use serde_json::{Map, Value, json};

use crate::base::money::NanoUsd;

/// Amounts that the error shows, so that a client can act without parsing the message.
#[derive(Debug)]
pub struct Unpaid {
    pub balance: NanoUsd,
    /// The hold of the request: it starts only if this much is available.
    pub needed: NanoUsd,
    pub available: NanoUsd,
    pub held: NanoUsd,
    /// The largest `max_tokens` with which the request would start now, if any.
    pub max_tokens_that_fit: Option<u32>,
    /// Whether the balance would suffice without the holds of running calls: a retry can succeed once they have ended.
    pub is_temporary: bool,
    pub billing_url: String,
}

impl Unpaid {
    pub(crate) fn message(&self) -> String {
        let Self {
            needed, available, ..
        } = self;
        let cost = format!(
            "this request needs {needed} USD of credit to start, and {available} USD is available"
        );
        let smaller = match self.max_tokens_that_fit {
            Some(tokens) => format!(" It would start with max_tokens {tokens}."),
            None => String::new(),
        };
        if self.is_temporary {
            let held = self.held;
            return format!(
                "Retry when the requests that are still running have ended: {cost}, because they hold {held} USD.{smaller}"
            );
        }
        let top_up = if smaller.is_empty() {
            "Top up, or shorten the request"
        } else {
            "Top up, or lower max_tokens"
        };
        format!("{top_up}: {cost}.{smaller}")
    }

    /// The fields beside `message`, `type` and `code`.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let fields = json!({
            "balance": self.balance, "billing_url": self.billing_url, "needed": self.needed,
            "available": self.available, "held": self.held,
            "max_tokens_that_fit": self.max_tokens_that_fit,
        });
        fields.as_object().cloned().unwrap_or_default()
    }
}
