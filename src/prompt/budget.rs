//! The output budget: the model's minimum and maximum (SPEC §2.1, §8.3).

use crate::{
    catalog::Model,
    wire::{chat::ChatRequest, error::GatewayError},
};

/// What is reserved for the answer where the caller named no budget (SPEC §8.2).
const DEFAULT_RESERVATION: u32 = 4_096;

/// How many tokens an answer may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What goes upstream as `max_tokens`: the caller's, else the model's minimum, else nothing.
    pub max_tokens: Option<u32>,
    /// What one completion reserves of the tokens a minute.
    pub reserved: u32,
    /// What one completion holds credit for: its cap, or what is reserved where it has none.
    pub held: u32,
    /// The most that one completion is charged for: its cap, or all that the model can say.
    pub most: u32,
}

/// The budget that was asked for, whoever answers.
#[derive(Clone, Copy, Debug)]
pub struct AskedBudget {
    /// By the caller.
    named: Option<u32>,
    /// The caller's name for it; of several, that of the largest.
    pub name: &'static str,
    /// The requested model's own minimum, which is applied where none was named.
    applied: Option<u32>,
}

impl AskedBudget {
    /// Clients have three names for it. Each that is sent must be allowed by the model that was asked
    /// for; the largest counts (SPEC §8.2).
    pub fn read(request: &ChatRequest, requested: &Model) -> Result<Self, GatewayError> {
        let sent = [
            ("max_completion_tokens", request.max_completion_tokens),
            ("max_tokens", request.max_tokens),
            ("max_output_tokens", request.max_output_tokens),
        ];
        let mut named: Option<(u32, &'static str)> = None;
        for (name, tokens) in sent {
            let Some(tokens) = tokens else { continue };
            let tokens = within_model(name, tokens, requested)?;
            if named.is_none_or(|(most, _)| tokens > most) {
                named = Some((tokens, name));
            }
        }
        Ok(Self {
            named: named.map(|(tokens, _)| tokens),
            name: named.map_or("max_tokens", |(_, name)| name),
            applied: requested.min_output,
        })
    }

    /// The same request with this budget named.
    #[must_use]
    pub fn naming(self, tokens: u32) -> Self {
        let named = Some(tokens);
        Self { named, ..self }
    }

    /// Whether it is less than a model takes.
    pub fn is_too_small_for(self, target: &Model) -> bool {
        let asked = self.named.or(self.applied).zip(target.min_output);
        asked.is_some_and(|(asked, least)| asked < least)
    }

    /// A hybrid's target may want more or less than that: its limits are the gateway's business, so
    /// they are applied and not complained of.
    pub fn of(self, target: &Model) -> Budget {
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
