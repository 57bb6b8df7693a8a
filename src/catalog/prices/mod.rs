//! Prices of a model for callers, or of a deployment for the operator, and the cost of responses.

mod read;
mod stored;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::base::money::{self, NanoUsd, PicoUsd, TokenPrice};

/// Token prices by prompt size, and fees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    /// Prices for prompts up to the first threshold in `above`.
    pub rates: Rates,
    /// Prices for larger prompts, in ascending order of their thresholds.
    pub above: Vec<Above>,
    /// Fee for each response of the model.
    pub request: NanoUsd,
    /// Fee for each image in a prompt. It is only shown: no image reaches a model today.
    pub image: NanoUsd,
}

/// The price of each kind of token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    pub input: TokenPrice,
    pub output: TokenPrice,
    pub cached_input: TokenPrice,
    /// Input that the provider writes to its cache for a few minutes.
    pub cache_write: TokenPrice,
    /// Input that the provider writes to its cache for an hour.
    pub cache_write_1h: TokenPrice,
}

/// Rates for prompts of more than `prompt_tokens` tokens. They apply to all tokens of such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Above {
    pub prompt_tokens: u32,
    #[serde(flatten)]
    pub rates: Rates,
}

/// Billed tokens of one response by kind; each token is counted in one kind only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Billable {
    pub input: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    pub cache_write_1h: u64,
    pub output: u64,
}

/// A kind of token with a price of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Input,
    CachedInput,
    CacheWrite,
    CacheWrite1h,
    Output,
}

/// One line of a cost breakdown: tokens of one kind and their price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub kind: TokenKind,
    pub tokens: u64,
    pub rate: TokenPrice,
}

impl TokenKind {
    /// Display name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Input => "Input",
            Self::CachedInput => "Cached input",
            Self::CacheWrite => "Input written to the cache",
            Self::CacheWrite1h => "Input written to the cache for an hour",
            Self::Output => "Output",
        }
    }
}

impl Billable {
    fn prompt_tokens(&self) -> u64 {
        self.input + self.cached_input + self.cache_write + self.cache_write_1h
    }
}

impl Rates {
    /// Highest price of a prompt token, cached or not.
    fn highest_input(&self) -> TokenPrice {
        self.input
            .max(self.cached_input)
            .max(self.cache_write)
            .max(self.cache_write_1h)
    }

    /// The higher price of both for each kind.
    #[must_use]
    fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cached_input: self.cached_input.max(other.cached_input),
            cache_write: self.cache_write.max(other.cache_write),
            cache_write_1h: self.cache_write_1h.max(other.cache_write_1h),
        }
    }
}

impl Prices {
    /// Prices without thresholds or fees; cache writes are priced as input.
    pub(crate) fn flat(input: TokenPrice, output: TokenPrice, cached_input: TokenPrice) -> Self {
        let rates = Rates {
            input,
            output,
            cached_input,
            cache_write: input,
            cache_write_1h: input,
        };
        Self {
            rates,
            ..Self::default()
        }
    }

    /// Cost breakdown of one response, at the prices for its prompt size.
    pub(crate) fn lines(&self, tokens: Billable) -> [Line; 5] {
        use TokenKind::{CacheWrite, CacheWrite1h, CachedInput, Input, Output};
        let rates = self.rates_for(tokens.prompt_tokens());
        [
            (Input, tokens.input, rates.input),
            (CachedInput, tokens.cached_input, rates.cached_input),
            (CacheWrite, tokens.cache_write, rates.cache_write),
            (CacheWrite1h, tokens.cache_write_1h, rates.cache_write_1h),
            (Output, tokens.output, rates.output),
        ]
        .map(|(kind, tokens, rate)| Line { kind, tokens, rate })
    }

    /// Exact cost of one response, in pico-dollars and not rounded.
    pub(crate) fn exact(&self, tokens: Billable) -> PicoUsd {
        let lines = self.lines(tokens).map(|line| (line.tokens, line.rate));
        money::exact(&lines) + self.request.into()
    }

    /// Cost of one response, rounded up to nano-dollars.
    pub(crate) fn cost(&self, tokens: Billable) -> NanoUsd {
        self.exact(tokens).rounded_up()
    }

    /// Worst-case cost of a response with at most `input` prompt tokens, cached or not, and `output` tokens.
    pub(crate) fn worst_case(&self, input: u64, output: u64) -> NanoUsd {
        // Within each price step the largest prompt costs most, so only the thresholds below `input` and `input` itself
        // need to be priced.
        let ends = self
            .above
            .iter()
            .map(|above| u64::from(above.prompt_tokens));
        let prompts = ends.filter(|end| *end < input).chain([input]);
        let each = prompts.map(|prompt| {
            let rates = self.rates_for(prompt);
            money::exact(&[(prompt, rates.highest_input()), (output, rates.output)])
        });
        let tokens = each.max().unwrap_or_default();
        (tokens + self.request.into()).rounded_up()
    }

    /// The higher of both prices for every kind and prompt size, with the thresholds of both.
    #[must_use]
    pub(crate) fn max(&self, other: &Self) -> Self {
        let mut thresholds: Vec<_> = [self, other]
            .iter()
            .flat_map(|prices| &prices.above)
            .map(|above| above.prompt_tokens)
            .collect();
        thresholds.sort_unstable();
        thresholds.dedup();
        let above = thresholds.into_iter().map(|prompt_tokens| {
            let just_above = u64::from(prompt_tokens) + 1;
            Above {
                prompt_tokens,
                rates: self.rates_for(just_above).max(*other.rates_for(just_above)),
            }
        });
        Self {
            rates: self.rates.max(other.rates),
            above: above.collect(),
            request: self.request.max(other.request),
            image: self.image.max(other.image),
        }
    }

    /// Rates of the highest threshold below a prompt of this many tokens.
    fn rates_for(&self, prompt: u64) -> &Rates {
        let reached = self.above.iter().rev();
        let mut reached = reached.filter(|above| prompt > u64::from(above.prompt_tokens));
        reached.next().map_or(&self.rates, |above| &above.rates)
    }
}
