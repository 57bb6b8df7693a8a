//! What a call is charged: each answer of a provider by itself, and the sum rounded up once.
//!
//! A price may depend on the size of a prompt, so the steps of a call are not added up before they are priced.

use super::{Call, Step};
use crate::{
    base::money::{NanoUsd, PicoUsd},
    catalog::{Line, Prices, TokenKind},
    wire::chat::Usage,
};

/// What makes up a charge.
pub struct Breakdown {
    /// Kind by kind, and price by price where answers of one call had different ones.
    pub lines: Vec<Line>,
    /// How many answers there were, for fees.
    pub answers: u64,
}

/// What a call costs that used so much in all.
pub fn price(prices: &Prices, steps: &[Step], total: Usage) -> NanoUsd {
    let mut answers = steps.iter().filter_map(counts).peekable();
    if answers.peek().is_none() {
        return prices.cost(total.billable());
    }
    let each = answers.map(|answer| prices.exact(answer.billable()));
    each.sum::<PicoUsd>().rounded_up()
}

impl Call {
    /// Of what so many tokens cost.
    pub fn breakdown(&self, total: Usage) -> Breakdown {
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

/// The counts of each answer that a call is charged for: those of its steps, or the only one.
fn answers(steps: &[Step], total: Usage) -> Vec<Usage> {
    let answers: Vec<_> = steps.iter().filter_map(counts).collect();
    if answers.is_empty() {
        return vec![total];
    }
    answers
}

/// What a provider counted for a step; reasoning is part of the completion and not kept.
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
