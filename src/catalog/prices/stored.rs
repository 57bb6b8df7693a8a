//! Prices as a ledger stores them beside a call: what three numbers cannot say, as JSON.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Above, Prices, Rates};
use crate::base::money::{NanoUsd, TokenPrice};

/// Prices in trillionths of a dollar, fees in billionths.
#[derive(Serialize, Deserialize)]
struct Stored {
    #[serde(flatten)]
    rates: Rates,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    above: Vec<Above>,
    #[serde(default)]
    request: i64,
    #[serde(default)]
    image: i64,
}

impl Prices {
    /// JSON, or `None` where the prices of input, output and cached input are all there is.
    pub fn to_stored(&self) -> Option<String> {
        let Rates {
            input,
            output,
            cached_input,
            ..
        } = self.rates;
        if *self == Self::flat(input, output, cached_input) {
            return None;
        }
        let stored = Stored {
            rates: self.rates,
            above: self.above.clone(),
            request: self.request.nanos(),
            image: self.image.nanos(),
        };
        Some(serde_json::to_string(&stored).expect("numbers can be written"))
    }

    /// What was stored: the three numbers, and the JSON if there was any. `None` where that cannot be read.
    pub fn from_stored(
        (input, output, cached_input): (TokenPrice, TokenPrice, TokenPrice),
        json: Option<&str>,
    ) -> Option<Arc<Self>> {
        let Some(json) = json else {
            return Some(Arc::new(Self::flat(input, output, cached_input)));
        };
        let stored: Stored = serde_json::from_str(json).ok()?;
        Some(Arc::new(Self {
            rates: stored.rates,
            above: stored.above,
            request: NanoUsd::new(stored.request),
            image: NanoUsd::new(stored.image),
        }))
    }
}
