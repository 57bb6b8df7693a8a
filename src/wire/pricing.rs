//! Prices in the form in which the API shows them.

use serde::Serialize;

use crate::{
    base::money::TokenPrice,
    catalog::{Above, Prices, Rates},
};

/// Prices per token, per request and per image, in US dollars as decimal strings.
#[derive(Serialize)]
pub(crate) struct Pricing {
    prompt: String,
    completion: String,
    image: String,
    request: String,
    #[serde(flatten)]
    cache: CachePricing,
    /// Rates for larger prompts; omitted if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    above: Vec<ShownAbove>,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the API")]
struct CachePricing {
    input_cache_read: String,
    /// Omitted if writing to a cache costs as much as input.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_cache_write: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_cache_write_1h: Option<String>,
}

/// Rates of all tokens of a request whose prompt has more than `prompt_tokens`.
#[derive(Serialize)]
struct ShownAbove {
    prompt_tokens: u32,
    prompt: String,
    completion: String,
    #[serde(flatten)]
    cache: CachePricing,
}

impl From<&Prices> for Pricing {
    fn from(prices: &Prices) -> Self {
        let above = prices.above.iter();
        Self {
            prompt: prices.rates.input.to_string(),
            completion: prices.rates.output.to_string(),
            cache: (&prices.rates).into(),
            image: prices.image.shortest(),
            request: prices.request.shortest(),
            above: above.map(ShownAbove::from).collect(),
        }
    }
}

impl From<&Rates> for CachePricing {
    fn from(rates: &Rates) -> Self {
        let other = |price: TokenPrice| (price != rates.input).then(|| price.to_string());
        Self {
            input_cache_read: rates.cached_input.to_string(),
            input_cache_write: other(rates.cache_write),
            input_cache_write_1h: other(rates.cache_write_1h),
        }
    }
}

impl From<&Above> for ShownAbove {
    fn from(above: &Above) -> Self {
        Self {
            prompt_tokens: above.prompt_tokens,
            prompt: above.rates.input.to_string(),
            completion: above.rates.output.to_string(),
            cache: (&above.rates).into(),
        }
    }
}
