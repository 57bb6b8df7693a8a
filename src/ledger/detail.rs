//! What only some calls have, stored as one JSON object: failed attempts, steps, a hybrid's decision, the coding agent that
//! sent the request, and prices beyond input, cached input and output.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Attempt, Call, Step};
use crate::{base::money::TokenPrice, catalog::Prices, wire::agent::Agent};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Detail {
    pub attempts: Vec<Attempt>,
    pub steps: Vec<Step>,
    decision: Option<Box<RawValue>>,
    pub agent: Option<Agent>,
    /// See [`Prices::to_stored`].
    prices: Option<Box<RawValue>>,
}

/// A [`Detail`] that borrows from its call.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    attempts: &'a [Attempt],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    steps: &'a [Step],
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<&'a Agent>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prices: Option<Box<RawValue>>,
}

impl Detail {
    /// The detail of a call as JSON; `None` for most calls, which have none.
    pub(crate) fn to_json(call: &Call) -> Option<String> {
        let prices = call.prices.to_stored();
        let is_plain = call.attempts.is_empty()
            && call.steps.is_empty()
            && call.decision.is_none()
            && call.agent.is_none()
            && prices.is_none();
        if is_plain {
            return None;
        }
        let decision = call.decision.as_deref();
        let written = Written {
            attempts: &call.attempts,
            steps: &call.steps,
            decision: decision.and_then(|json| serde_json::from_str(json).ok()),
            agent: call.agent.as_deref(),
            prices: prices.and_then(|json| RawValue::from_string(json).ok()),
        };
        serde_json::to_string(&written).ok()
    }

    /// Reads stored JSON; `None` if it cannot be read.
    pub(crate) fn read(json: Option<&str>) -> Option<Self> {
        match json {
            None => Some(Self::default()),
            Some(json) => serde_json::from_str(json).ok(),
        }
    }

    /// How a hybrid chose the routed model, as JSON.
    pub(crate) fn decision(&self) -> Option<String> {
        self.decision.as_ref().map(|json| json.get().to_owned())
    }

    /// The call's prices, given those of input, output and cached input; `None` if they cannot be read.
    pub(crate) fn prices(
        &self,
        token_prices: (TokenPrice, TokenPrice, TokenPrice),
    ) -> Option<Arc<Prices>> {
        Prices::from_stored(token_prices, self.prices.as_ref().map(|json| json.get()))
    }
}
