//! Reads prices from TOML: of a model in the catalog, or the `cost` of a deployment.

use super::{Above, Prices, Rates};
use crate::base::{
    checked_toml::{Section, Value, as_integer, as_text},
    money::{NanoUsd, TokenPrice},
};

const RATES: [&str; 5] = [
    "input",
    "output",
    "cached_input",
    "cache_write",
    "cache_write_1h",
];
const FEES: [&str; 2] = ["request", "image"];
const PER_MILLION: &str = "US dollars per million tokens as a text, e.g. \"2.00\"";

/// Rates that a table sets; `None` for those that it does not.
#[derive(Clone, Copy)]
struct GivenRates {
    input: Option<TokenPrice>,
    output: Option<TokenPrice>,
    cached_input: Option<TokenPrice>,
    cache_write: Option<TokenPrice>,
    cache_write_1h: Option<TokenPrice>,
}

impl Prices {
    /// Keys that `[defaults]` may not set, because they depend on the input price of the same model.
    pub(crate) const WITHOUT_DEFAULT: [&str; 3] = ["cache_write", "cache_write_1h", "above"];

    /// Reads the prices of a section. Input, output and fees that it does not set come from `default`; other token
    /// prices that it does not set equal the input price.
    pub(crate) fn read(section: &mut Section, default: &Self) -> Self {
        let given = GivenRates::read(section);
        let input = given.input.unwrap_or(default.rates.input);
        let output = given.output.unwrap_or(default.rates.output);
        let mut above: Vec<_> = section
            .list_of_sections("above")
            .into_iter()
            .filter_map(|step| read_above(step, given, (input, output)))
            .collect();
        above.sort_by_key(|above| above.prompt_tokens);
        if !above.is_sorted_by(|one, next| one.prompt_tokens < next.prompt_tokens) {
            section.mistake("above", "names the same `prompt_tokens` twice");
        }
        let [request, image] = FEES.map(|key| {
            let expected = "US dollars as a text, e.g. \"0.01\"";
            let read = |value: &Value| NanoUsd::parse(&as_text(value)?);
            section.optional(key, expected, read)
        });
        Self {
            rates: given.rates(input, output),
            above,
            request: request.unwrap_or(default.request),
            image: image.unwrap_or(default.image),
        }
    }
}

impl GivenRates {
    fn read(section: &mut Section) -> Self {
        let [input, output, cached_input, cache_write, cache_write_1h] = RATES.map(|key| {
            let read = |value: &Value| TokenPrice::parse_per_million(&as_text(value)?);
            section.optional(key, PER_MILLION, read)
        });
        Self {
            input,
            output,
            cached_input,
            cache_write,
            cache_write_1h,
        }
    }

    fn rates(self, input: TokenPrice, output: TokenPrice) -> Rates {
        Rates {
            input,
            output,
            // Without prices of their own, cached input gets no discount and cache writes no surcharge.
            cached_input: self.cached_input.unwrap_or(input),
            cache_write: self.cache_write.unwrap_or(input),
            cache_write_1h: self.cache_write_1h.unwrap_or(input),
        }
    }
}

/// Reads rates for larger prompts. Rates that the section does not set are those for smaller prompts.
fn read_above(
    mut section: Section,
    smaller: GivenRates,
    (input, output): (TokenPrice, TokenPrice),
) -> Option<Above> {
    let expected = "a number of tokens above zero";
    let above_zero = |value: &Value| as_integer(value).filter(|tokens| *tokens > 0);
    let prompt_tokens = section.required("prompt_tokens", expected, above_zero);
    if !RATES.iter().any(|key| section.contains(key)) {
        section.mistake(
            "input",
            "is missing; expected at least one price that changes",
        );
    }
    let own = GivenRates::read(&mut section);
    section.finish();
    let merged = GivenRates {
        cached_input: own.cached_input.or(smaller.cached_input),
        cache_write: own.cache_write.or(smaller.cache_write),
        cache_write_1h: own.cache_write_1h.or(smaller.cache_write_1h),
        ..own
    };
    let rates = merged.rates(own.input.unwrap_or(input), own.output.unwrap_or(output));
    prompt_tokens.map(|prompt_tokens| Above {
        prompt_tokens,
        rates,
    })
}
