//! The record of an admitted call, from its hold to its end: what it was charged, and its trace.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CallId, Idempotency, Payer, bill};
use crate::{
    base::{
        money::{NanoUsd, PicoUsd},
        rate::Reservation,
    },
    catalog::Prices,
    wire::{agent::Agent, chat::Usage},
};

/// The record of a call.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: CallId,
    /// The `X-Request-ID` of the response; not unique, because clients may choose it.
    pub request_id: String,
    pub account_id: String,
    pub payer: Arc<Payer>,
    pub model: String,
    pub routed_model: String,
    /// The provider's name in the configuration.
    pub upstream: Option<Arc<str>>,
    pub stream: bool,
    pub reserved_tokens: u64,
    pub held: NanoUsd,
    /// The most that the call could have cost.
    pub most: NanoUsd,
    /// The routed model's prices when the call was admitted.
    pub prices: Arc<Prices>,
    /// The provider's charge to the operator, if the operator has configured the provider's prices.
    pub provider_cost: Option<PicoUsd>,
    /// Milliseconds since 1970, like all times here.
    pub admitted_ms: i64,
    pub first_byte_ms: Option<i64>,
    pub ended_ms: i64,
    pub outcome: Outcome,
    /// Why the call failed, for the operator.
    pub failure: Option<String>,
    /// Failed attempts, in order.
    pub attempts: Vec<Attempt>,
    /// The steps of a call with built-in tools, in order; empty for a call with a single step.
    pub steps: Vec<Step>,
    /// How a hybrid chose the routed model, as JSON.
    pub decision: Option<String>,
    /// The coding agent that sent the request, if it named itself.
    pub agent: Option<Arc<Agent>>,
    /// Its rate-limit reservations, one for each step; empty if the limiter stores them itself.
    pub reservations: Vec<Reservation>,
    /// The client's idempotency key, and the response to store with the charge. Not part of the call's row.
    pub idempotency: Option<Box<Idempotency>>,
    /// `None` if nothing was charged.
    pub charged: Option<Charged>,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub upstream: String,
    pub failure: String,
    pub ms: u64,
}

/// One step of a call with built-in tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Step {
    /// A provider responded.
    Provider {
        upstream: String,
        /// `None` if the provider reported none.
        #[serde(skip_serializing_if = "Option::is_none")]
        finish_reason: Option<String>,
        prompt_tokens: u32,
        cached_tokens: u32,
        #[serde(default)]
        cache_write_tokens: u32,
        #[serde(default)]
        cache_write_1h_tokens: u32,
        completion_tokens: u32,
        ms: u64,
    },
    /// A built-in tool ran. Its arguments and its result are not stored.
    Tool {
        name: String,
        arguments_bytes: usize,
        outcome: String,
        result_bytes: usize,
        ms: u64,
    },
}

/// What a call was charged, and the balance before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    pub usage: Usage,
    pub cost: NanoUsd,
    pub balance_before: NanoUsd,
    pub balance_after: NanoUsd,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered,
    /// The client disconnected; the response was read to its end and charged.
    ClientLeft,
    /// The provider failed before there was anything to send to the client.
    ProviderFailed,
    /// The provider failed in the middle of a stream.
    Interrupted,
    /// The response was delivered, but the provider reported no usage to charge.
    NoUsage,
    /// The charge could not be committed, and the response was withheld.
    NotCharged,
    /// A further step was refused: credit or tokens ran out, or the key was disabled.
    NotRenewed,
    /// The gateway stopped before the call was over.
    Stopped,
    /// The call's task ended without reporting an outcome, e.g. by a panic.
    Lost,
}

impl Outcome {
    pub(crate) const ALL: [Self; 9] = [
        Self::Answered,
        Self::ClientLeft,
        Self::ProviderFailed,
        Self::Interrupted,
        Self::NoUsage,
        Self::NotCharged,
        Self::NotRenewed,
        Self::Stopped,
        Self::Lost,
    ];

    /// Those of calls that failed: nothing was charged.
    pub(crate) fn errors() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|outcome| outcome.is_error())
    }

    /// Whether the call failed. A client that left is charged, and is no failure.
    pub(crate) fn is_error(self) -> bool {
        !matches!(self, Self::Answered | Self::ClientLeft)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::ClientLeft => "client_left",
            Self::ProviderFailed => "provider_failed",
            Self::Interrupted => "interrupted",
            Self::NoUsage => "no_usage",
            Self::NotCharged => "not_charged",
            Self::NotRenewed => "not_renewed",
            Self::Stopped => "stopped",
            Self::Lost => "lost",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

impl Call {
    pub(super) fn end(&mut self, now_ms: i64, outcome: Outcome) {
        self.ended_ms = now_ms;
        self.outcome = outcome;
    }

    /// Sets the tokens of the last reservation, given the total of all steps; those of earlier steps are final.
    pub(super) fn set_tokens_used(&mut self, tokens: u64) {
        if let Some((latest, earlier)) = self.reservations.split_last_mut() {
            let before: u64 = earlier.iter().map(|reservation| reservation.tokens).sum();
            latest.tokens = tokens.saturating_sub(before);
        }
    }

    /// What this usage costs at the call's prices.
    pub(crate) fn price(&self, usage: Usage) -> NanoUsd {
        bill::price(&self.prices, &self.steps, usage)
    }
}
