//! Which targets of a hybrid can serve a request, and why the others cannot.

use std::sync::Arc;

use crate::{
    base::money::NanoUsd,
    catalog::{Billable, Model},
};

/// Assumed output tokens of a response, for comparing costs. The routers were evaluated with this value.
const EXPECTED_OUTPUT: u64 = 300;

/// What a request requires of its target.
#[derive(Clone, Debug, Default)]
pub(crate) struct Need {
    /// Estimated tokens of the whole prompt.
    pub prompt_tokens: u64,
    /// Number of the caller's tools. Built-in tools are not required.
    pub tools: usize,
    pub json_schema: bool,
    pub json_mode: bool,
    pub stream: bool,
}

/// The output cap of a request with one target.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cap {
    pub max_tokens: Option<u32>,
    /// Whether the cap is above the caller's budget, because the target has a higher minimum.
    pub is_raised: bool,
}

/// Why a target cannot serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The account's plan does not include it.
    NotEntitled,
    /// An administrator has turned it off.
    Disabled,
    /// No provider is configured for it.
    Unserved,
    /// The circuits of all its deployments are open.
    Unhealthy,
    Context,
    Tools,
    JsonSchema,
    JsonMode,
    Streaming,
    /// Its minimum of output tokens is above the caller's budget.
    MinOutput,
}

impl Rejection {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::NotEntitled => "not_entitled",
            Self::Disabled => "disabled",
            Self::Unserved => "no_provider",
            Self::Unhealthy => "unhealthy",
            Self::Context => "context_length",
            Self::Tools => "tools",
            Self::JsonSchema => "json_schema",
            Self::JsonMode => "json_mode",
            Self::Streaming => "streaming",
            Self::MinOutput => "min_output",
        }
    }

    /// The request field that no target can satisfy, and the missing property, for the error message. An overlong
    /// conversation and a budget that is too small have errors of their own.
    pub(crate) fn constraint(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::NotEntitled
            | Self::Disabled
            | Self::Unserved
            | Self::Unhealthy
            | Self::Context
            | Self::MinOutput => None,
            Self::Tools => Some(("tools", "takes these tools")),
            Self::JsonSchema => Some(("response_format", "keeps to a JSON schema")),
            Self::JsonMode => Some(("response_format", "has a JSON mode")),
            Self::Streaming => Some(("stream", "streams its answers")),
        }
    }
}

/// A target of a hybrid, assessed for one request.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub model: Arc<Model>,
    pub rejected: Option<Rejection>,
    /// Assumed output tokens.
    pub output_tokens: u64,
    /// Estimated cost of the request without cached tokens.
    pub cost: NanoUsd,
}

impl Candidate {
    /// `in_service` is the reason if the target is unavailable for every request; `budget` is the cap with this target.
    pub(crate) fn new(
        model: Arc<Model>,
        need: &Need,
        in_service: Option<Rejection>,
        budget: Cap,
    ) -> Self {
        let output_tokens = budget.max_tokens.map_or(EXPECTED_OUTPUT, u64::from);
        let output_tokens = output_tokens.min(EXPECTED_OUTPUT);
        let unmet = in_service
            .filter(|reason| *reason != Rejection::Unhealthy)
            .or_else(|| unmet(&model, need, budget));
        let too_much = budget.is_raised.then_some(Rejection::MinOutput);
        Self {
            // `Unhealthy` comes last: such a candidate can be used if there are no others.
            rejected: unmet.or(too_much).or(in_service),
            output_tokens,
            cost: model.prices.cost(Billable {
                input: need.prompt_tokens,
                output: output_tokens,
                ..Billable::default()
            }),
            model,
        }
    }

    pub(crate) fn tier(&self) -> u8 {
        self.model.quality_tier
    }

    /// The expected quality of its tier.
    pub(crate) fn quality(&self, by_tier: &[f32; 4]) -> f32 {
        let head = usize::from(self.tier()).saturating_sub(1).min(3);
        by_tier[head]
    }

    /// Estimated cost of a prompt of which `cached` tokens are in the provider's cache.
    pub(crate) fn cost_with_cached(&self, prompt_tokens: u64, cached: u64) -> NanoUsd {
        let cached_input = cached.min(prompt_tokens);
        self.model.prices.cost(Billable {
            input: prompt_tokens - cached_input,
            cached_input,
            output: self.output_tokens,
            ..Billable::default()
        })
    }
}

/// The first requirement of the request that the model does not meet.
fn unmet(model: &Model, need: &Need, budget: Cap) -> Option<Rejection> {
    let output = budget.max_tokens.map_or(0, u64::from);
    let checks = [
        (
            need.prompt_tokens + output > u64::from(model.context_length),
            Rejection::Context,
        ),
        (
            need.tools > 0 && (!model.has_feature("tools") || need.tools > model.max_tools),
            Rejection::Tools,
        ),
        (
            need.json_schema && !model.has_feature("structured_outputs"),
            Rejection::JsonSchema,
        ),
        (
            need.json_mode && !model.has_feature("json_mode"),
            Rejection::JsonMode,
        ),
        (
            need.stream && !model.has_feature("streaming"),
            Rejection::Streaming,
        ),
    ];
    let mut checks = checks.into_iter();
    checks.find_map(|(is_unmet, reason)| is_unmet.then_some(reason))
}

/// The cheapest of these; of equals the one with the lower input price, then the first.
pub(crate) fn cheapest<'a>(
    candidates: impl IntoIterator<Item = &'a Candidate>,
) -> Option<&'a Candidate> {
    candidates
        .into_iter()
        .min_by_key(|one| (one.cost, one.model.prices.rates.input))
}
