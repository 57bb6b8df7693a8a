//! The output budget: the model's minimum and maximum (SPEC §2.1, §8.3).

use super::Route;
use crate::{catalog::Model, error::GatewayError, wire::chat::ChatRequest};

/// What `max_tokens` goes upstream as: the caller's, else the model's minimum, else nothing.
///
/// Clients have three names for it. Each that is sent must be allowed by the model that was asked
/// for; the newest one counts. A hybrid's target may want more or less than that: its limits are
/// the gateway's business, so they are applied and not complained of.
pub fn output_budget(request: &ChatRequest, route: &Route) -> Result<Option<u32>, GatewayError> {
    let (requested, target) = (&*route.requested, &*route.target);
    let sent = [
        ("max_completion_tokens", request.max_completion_tokens),
        ("max_tokens", request.max_tokens),
        ("max_output_tokens", request.max_output_tokens),
    ];
    let mut budget = None;
    for (name, tokens) in sent {
        let Some(tokens) = tokens else { continue };
        let allowed = within_model(name, tokens, requested)?;
        budget = budget.or(Some(allowed));
    }
    let budget = budget.or(requested.min_output).or(target.min_output);
    let least = target.min_output.unwrap_or(1);
    Ok(budget.map(|budget| budget.max(least).min(target.max_output)))
}

fn within_model(name: &str, tokens: u64, model: &Model) -> Result<u32, GatewayError> {
    let (least, most) = (model.min_output.unwrap_or(1), model.max_output);
    match u32::try_from(tokens) {
        Ok(tokens) if (least..=most).contains(&tokens) => Ok(tokens),
        _ => {
            let id = &model.id;
            let message = format!("`{name}` is {tokens}; `{id}` takes from {least} to {most}.");
            Err(GatewayError::invalid(name, message))
        }
    }
}
