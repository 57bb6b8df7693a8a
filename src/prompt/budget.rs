//! The output budget of a call, within the model's minimum and maximum (§2.1, §8.3).

use super::Route;
use crate::{
    catalog::Model,
    wire::{chat::ChatRequest, error::GatewayError},
};

/// Output tokens reserved if the caller set no budget (§8.2).
const DEFAULT_RESERVATION: u32 = 4_096;

/// How many output tokens a call may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The `max_tokens` sent upstream: the caller's, otherwise the model's minimum, otherwise none.
    pub max_tokens: Option<u32>,
    /// Tokens that one completion reserves in the rate-limit window.
    pub reserved: u32,
    /// Tokens that one completion places a hold for: its cap, or the default reservation if it has none.
    pub held: u32,
    /// The most tokens that one completion can be charged for: its cap, or the model's maximum.
    pub most: u32,
}

/// The budget in the request, independent of the model that serves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestedBudget {
    /// The caller's value.
    named: Option<u32>,
    /// The field that the caller used; of several, the one with the largest value.
    pub name: &'static str,
    /// The requested model's minimum, used if the caller set none.
    applied: Option<u32>,
}

impl RequestedBudget {
    /// Reads the budget from the three fields that clients use. Each value must be within the limits of the requested
    /// model, or is lowered to its maximum if the request names an alias; the largest counts (§8.2).
    pub(crate) fn read(request: &ChatRequest, route: &Route) -> Result<Self, GatewayError> {
        let sent = [
            ("max_completion_tokens", request.max_completion_tokens),
            ("max_tokens", request.max_tokens),
            ("max_output_tokens", request.max_output_tokens),
        ];
        let mut named: Option<(u32, &'static str)> = None;
        for (name, tokens) in sent {
            let Some(tokens) = tokens else { continue };
            let tokens = within_model(name, tokens, route)?;
            if named.is_none_or(|(most, _)| tokens > most) {
                named = Some((tokens, name));
            }
        }
        Ok(Self {
            named: named.map(|(tokens, _)| tokens),
            name: named.map_or("max_tokens", |(_, name)| name),
            applied: route.requested.min_output,
        })
    }

    /// A copy as if the caller had set this budget.
    #[must_use]
    pub(crate) fn with_named(self, tokens: u32) -> Self {
        let named = Some(tokens);
        Self { named, ..self }
    }

    /// Whether the budget is below the minimum of `target`.
    pub(crate) fn is_too_small_for(self, target: &Model) -> bool {
        let limits = self.named.or(self.applied).zip(target.min_output);
        limits.is_some_and(|(requested, least)| requested < least)
    }

    /// The budget with this target. A hybrid's target may have other limits than the hybrid; the budget is adjusted to
    /// them and the request is not refused, because the gateway chose the target.
    pub(crate) fn of(self, target: &Model) -> Budget {
        let least = target.min_output.unwrap_or(1);
        let budget = self.named.or(self.applied).or(target.min_output);
        let max_tokens = budget.map(|budget| budget.max(least).min(target.max_output));
        let reserved = self.named.unwrap_or(DEFAULT_RESERVATION);
        Budget {
            max_tokens,
            reserved: reserved.max(max_tokens.unwrap_or(0)),
            held: max_tokens.unwrap_or(DEFAULT_RESERVATION.min(target.max_output)),
            most: max_tokens.unwrap_or(target.max_output),
        }
    }
}

fn within_model(name: &str, tokens: u64, route: &Route) -> Result<u32, GatewayError> {
    let model = &route.requested;
    let (least, most) = (model.min_output.unwrap_or(1), model.max_output);
    match u32::try_from(route.capped(tokens)) {
        Ok(tokens) if (least..=most).contains(&tokens) => Ok(tokens),
        _ => {
            let id = route.requested_name();
            let message = format!("`{name}` is {tokens}; `{id}` takes from {least} to {most}.");
            Err(GatewayError::invalid(name, message))
        }
    }
}
