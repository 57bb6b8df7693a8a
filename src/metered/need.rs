//! The need of a step: the tokens that it reserves, the credit that it holds, and the most that it can be charged.

use crate::{
    base::{money::NanoUsd, tokens::TokenCount},
    catalog::Model,
    prompt::{Budget, ChatCall},
    wire::chat::Usage,
};

/// The need of a step: the maximum over all models that may still answer the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Need {
    /// Tokens to reserve in the window (§8.2).
    pub tokens: u64,
    /// Credit to hold, computed from the estimate.
    pub amount: NanoUsd,
    /// The most that can be charged, whatever the provider reports: computed from bytes and caps, never from the
    /// estimate.
    pub worst: NanoUsd,
}

impl Need {
    /// The need of the call's next step with this input.
    pub(crate) fn of(call: &ChatCall, input: TokenCount) -> Self {
        Self::maximum(call, input, |model| call.budget_with(model))
    }

    /// The maximum over the possible targets, each with its own output budget.
    fn maximum(call: &ChatCall, input: TokenCount, budget: impl Fn(&Model) -> Budget) -> Self {
        let possible = call.route.possible_targets();
        let each = possible.map(|model| Self::with(call, model, input, budget(model)));
        each.fold(Self::default(), |one, other| Self {
            tokens: one.tokens.max(other.tokens),
            amount: one.amount.max(other.amount),
            worst: one.worst.max(other.worst),
        })
    }

    /// The need if `model` answers.
    fn with(call: &ChatCall, model: &Model, input: TokenCount, budget: Budget) -> Self {
        let output = |each: u32| u64::from(call.choices()) * u64::from(each);
        let bound = most_input(model, input);
        Self {
            tokens: input.estimate + output(budget.reserved),
            amount: model.prices.worst_case(input.estimate, output(budget.held)),
            worst: model.prices.worst_case(bound, output(budget.most)),
        }
    }

    /// Adds the cost of earlier steps.
    #[must_use]
    pub(crate) fn after(self, used: NanoUsd) -> Self {
        let total = |next| used.checked_add(next).unwrap_or(NanoUsd::new(i64::MAX));
        Self {
            tokens: self.tokens,
            amount: total(self.amount),
            worst: total(self.worst),
        }
    }

    /// The available credit with which the call would have started.
    pub(crate) fn least_available(&self, overdraft: NanoUsd) -> NanoUsd {
        let uncovered = self.worst.nanos().saturating_sub(overdraft.nanos());
        self.amount.max(NanoUsd::new(uncovered))
    }
}

/// The largest `max_tokens` with which a call that was refused would have started. `covers` tells whether there was
/// credit, or room in budgets, for a need.
pub(crate) fn max_tokens_that_fit(
    call: &ChatCall,
    input: TokenCount,
    covers: &dyn Fn(&Need) -> bool,
) -> Option<u32> {
    let fits = |tokens: u32| {
        covers(&Need::maximum(call, input, |model| {
            call.budget_naming(tokens, model)
        }))
    };
    let requested = &call.route.requested;
    let (mut fitting, mut above) = (
        requested.min_output.unwrap_or(1),
        requested.max_output.saturating_add(1),
    );
    if !fits(fitting) {
        return None;
    }
    // More tokens never cost less.
    while above - fitting > 1 {
        let between = fitting + (above - fitting) / 2;
        if fits(between) {
            fitting = between;
        } else {
            above = between;
        }
    }
    Some(fitting)
}

/// The usage that is billed: what the provider reported, capped at the bounds that the call was admitted with.
///
/// Output beyond the caller's cap, or more input than was sent, is a provider's mistake that the customer does not pay.
pub(crate) fn billable(call: &ChatCall, input: TokenCount, reported: Usage) -> Usage {
    let at_most = |tokens: u32, most: u64| tokens.min(u32::try_from(most).unwrap_or(u32::MAX));
    let prompt = at_most(reported.prompt, most_input(&call.route.target, input));
    let output = u64::from(call.choices()) * u64::from(call.budget.most);
    let completion = at_most(reported.completion, output);
    let cached = reported.cached.min(prompt);
    let cache_write = reported.cache_write.min(prompt - cached);
    Usage {
        prompt,
        cached,
        cache_write,
        cache_write_1h: reported.cache_write_1h.min(cache_write),
        completion,
        reasoning: reported.reasoning.min(completion),
    }
}

/// The most input tokens that can be charged: as many as the bytes allow, and as fit into the context.
fn most_input(model: &Model, input: TokenCount) -> u64 {
    input.bound.min(u64::from(model.context_length))
}
