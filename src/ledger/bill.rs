//! What a call is charged: each provider response is priced by itself, and the sum is rounded up once.
//!
//! Prices may depend on the size of the prompt, so the usage of several steps is not added up before it is priced.

use super::{Call, Step};
use crate::{
    base::money::{NanoUsd, PicoUsd},
    catalog::{Line, Prices, TokenKind},
    wire::chat::Usage,
};

/// What makes up a charge.
pub(crate) struct Breakdown {
    /// One line for each kind of token and price; steps of one call may have different prices.
    pub lines: Vec<Line>,
    /// How many provider responses there were; fees are charged for each.
    pub answers: u64,
}

/// The price of a call: of its provider steps, or of `total` if it has none.
pub(crate) fn price(prices: &Prices, steps: &[Step], total: Usage) -> NanoUsd {
    let mut answers = steps.iter().filter_map(counts).peekable();
    if answers.peek().is_none() {
        return prices.cost(total.billable());
    }
    let each = answers.map(|answer| prices.exact(answer.billable()));
    each.sum::<PicoUsd>().rounded_up()
}

impl Call {
    /// Splits the price of a call with this usage into its parts.
    pub(crate) fn breakdown(&self, total: Usage) -> Breakdown {
        let answers = answers(&self.steps, total);
        let mut lines: Vec<Line> = Vec::new();
        let each = answers.iter().map(|answer| answer.billable());
        for line in each.flat_map(|tokens| self.prices.lines(tokens)) {
            let same = |other: &&mut Line| other.kind == line.kind && other.rate == line.rate;
            match lines.iter_mut().find(same) {
                Some(same) => same.tokens += line.tokens,
                None => lines.push(line),
            }
        }
        // Most models never write to a cache.
        let is_written = |kind| matches!(kind, TokenKind::CacheWrite | TokenKind::CacheWrite1h);
        lines.retain(|line| line.tokens > 0 || !is_written(line.kind));
        Breakdown {
            lines,
            answers: answers.len() as u64,
        }
    }
}

/// The usage of each charged provider response: that of the steps, or `total` if there are none.
fn answers(steps: &[Step], total: Usage) -> Vec<Usage> {
    let answers: Vec<_> = steps.iter().filter_map(counts).collect();
    if answers.is_empty() {
        return vec![total];
    }
    answers
}

/// The usage of a provider step. Reasoning is part of the completion tokens and not stored for steps.
fn counts(step: &Step) -> Option<Usage> {
    match *step {
        Step::Provider {
            prompt_tokens,
            cached_tokens,
            cache_write_tokens,
            cache_write_1h_tokens,
            completion_tokens,
            ..
        } => Some(Usage {
            prompt: prompt_tokens,
            cached: cached_tokens,
            cache_write: cache_write_tokens,
            cache_write_1h: cache_write_1h_tokens,
            completion: completion_tokens,
            reasoning: 0,
        }),
        Step::Tool { .. } => None,
    }
}
