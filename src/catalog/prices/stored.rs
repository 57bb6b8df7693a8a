//! Prices as the ledger stores them beside a call: three numbers, and JSON if there is more to a price list.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Above, Prices, Rates};
use crate::base::money::{NanoUsd, TokenPrice};

/// The JSON form: token prices in pico-dollars, fees in nano-dollars.
#[derive(Serialize, Deserialize)]
struct StoredPrices {
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
    /// The JSON form; `None` if the three stored numbers (input, output, cached input) are enough.
    pub(crate) fn to_stored(&self) -> Option<String> {
        let Rates {
            input,
            output,
            cached_input,
            ..
        } = self.rates;
        if *self == Self::flat(input, output, cached_input) {
            return None;
        }
        let stored = StoredPrices {
            rates: self.rates,
            above: self.above.clone(),
            request: self.request.nanos(),
            image: self.image.nanos(),
        };
        Some(serde_json::to_string(&stored).expect("numbers can be written"))
    }

    /// Restores prices from the three numbers and the JSON, if any; `None` if the JSON cannot be read.
    pub(crate) fn from_stored(
        (input, output, cached_input): (TokenPrice, TokenPrice, TokenPrice),
        json: Option<&str>,
    ) -> Option<Arc<Self>> {
        let Some(json) = json else {
            return Some(Arc::new(Self::flat(input, output, cached_input)));
        };
        let stored: StoredPrices = serde_json::from_str(json).ok()?;
        Some(Arc::new(Self {
            rates: stored.rates,
            above: stored.above,
            request: NanoUsd::new(stored.request),
            image: NanoUsd::new(stored.image),
        }))
    }
}
