//! A call that was admitted, from its hold to its end: what is charged and what is remembered.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{CallId, bill};
use crate::{
    base::{
        money::{NanoUsd, PicoUsd},
        rate::Reservation,
    },
    catalog::Prices,
    wire::chat::Usage,
};

/// The whole story of a call.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: CallId,
    /// What the client was told to quote; it may repeat itself.
    pub request_id: String,
    pub account_id: String,
    pub key_id: String,
    pub model: String,
    pub routed_model: String,
    /// The provider's name in the configuration.
    pub upstream: Option<Arc<str>>,
    pub stream: bool,
    pub reserved_tokens: u64,
    pub held: NanoUsd,
    /// The most it could have come to.
    pub most: NanoUsd,
    /// The answering model's, as they were then.
    pub prices: Arc<Prices>,
    /// What its provider charges the operator for it, where the operator has said at which prices.
    pub provider_cost: Option<PicoUsd>,
    /// Milliseconds since 1970, as all times here.
    pub admitted_ms: i64,
    pub first_byte_ms: Option<i64>,
    pub ended_ms: i64,
    pub outcome: Outcome,
    /// What went wrong, for the operator.
    pub failure: Option<String>,
    /// Upstreams that were asked and failed, in order.
    pub attempts: Vec<Attempt>,
    /// What was done, in order, where the gateway ran tools; else the one answer is all there is.
    pub steps: Vec<Step>,
    /// How a hybrid came to the model that answered, as JSON.
    pub decision: Option<String>,
    /// Its places in the minute, where the ledger is to remember them.
    pub places: Vec<Reservation>,
    /// `None` where nothing was charged.
    pub charged: Option<Charged>,
}

/// An upstream that was asked and failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub upstream: String,
    pub failure: String,
    pub ms: u64,
}

/// One step of a call in which the gateway ran tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Step {
    /// A provider answered.
    Provider {
        upstream: String,
        /// Where it was kept.
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
    /// A tool was run. What it was asked and what it said is not kept.
    Tool {
        name: String,
        arguments_bytes: usize,
        outcome: String,
        result_bytes: usize,
        ms: u64,
    },
}

/// What a call was charged, and what that did to the balance.
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
    /// The client was gone before the end; the provider was read on, and what was used is owed.
    ClientLeft,
    /// The provider failed before there was anything to hand on.
    ProviderFailed,
    /// The provider broke off in the middle of a stream.
    Interrupted,
    /// It was delivered without a usage to bill by.
    NoUsage,
    /// The charge could not be written down, and the answer was withheld.
    NotCharged,
    /// A further step was not allowed: credit or tokens ran out, or the key was disabled.
    NotRenewed,
    /// The gateway was stopped before the call was over.
    Stopped,
    /// The call's task died.
    Lost,
}

impl Outcome {
    pub const ALL: [Self; 9] = [
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

    pub fn as_str(self) -> &'static str {
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

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.as_str() == text)
    }
}

impl Call {
    pub(super) fn ends(&mut self, now_ms: i64, outcome: Outcome) {
        self.ended_ms = now_ms;
        self.outcome = outcome;
    }

    /// So many tokens were used by all of its steps: the latest one used what those before it did not.
    pub(super) fn used(&mut self, tokens: u64) {
        if let Some((latest, earlier)) = self.places.split_last_mut() {
            let before: u64 = earlier.iter().map(|place| place.tokens).sum();
            latest.tokens = tokens.saturating_sub(before);
        }
    }

    /// What these counts cost at the call's prices.
    pub fn price(&self, usage: Usage) -> NanoUsd {
        bill::price(&self.prices, &self.steps, usage)
    }
}
