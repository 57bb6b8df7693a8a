//! The details of a request for which a budget has no room.

use serde_json::{Map, Value, json};

use crate::base::money::NanoUsd;

/// The budget that refused a request, with the figures by which it was refused.
#[derive(Debug)]
pub struct OverBudget {
    /// What the budget stands at: `account`, `project`, `member` or `key`.
    pub scope: &'static str,
    pub scope_id: String,
    pub id: String,
    pub name: String,
    pub amount: NanoUsd,
    pub period: &'static str,
    pub spent: NanoUsd,
    pub held: NanoUsd,
    /// When its next period begins; `None` for totals.
    pub resets_at: Option<String>,
    /// When the request will fit if nothing else is spent by then; `None` if waiting does not help.
    pub fits_from: Option<String>,
    /// The hold of the request.
    pub needed: NanoUsd,
    /// The largest `max_tokens` with which the request would start now, if any.
    pub max_tokens_that_fit: Option<u32>,
    /// Whether only running calls stand in the way: a retry can succeed once they have ended.
    pub is_temporary: bool,
}

impl OverBudget {
    pub(crate) fn message(&self) -> String {
        let Self {
            scope,
            name,
            amount,
            spent,
            held,
            needed,
            ..
        } = self;
        let per = match self.period {
            "total" => "in total".to_owned(),
            period => format!("a {period}"),
        };
        let left = format!(
            "the budget of the {scope} `{name}` is {amount} USD {per}, of which {spent} USD is spent and {held} USD held \
             by running requests, and this request needs {needed} USD to start"
        );
        let smaller = match self.max_tokens_that_fit {
            Some(tokens) => format!(" It would start with max_tokens {tokens}."),
            None => String::new(),
        };
        if self.is_temporary {
            return format!(
                "Retry when the requests that are still running have ended: {left}.{smaller}"
            );
        }
        let until = match (&self.fits_from, self.max_tokens_that_fit) {
            (Some(at), _) => format!("Wait until {at}, or ask for a higher budget"),
            (None, Some(_)) => "Lower max_tokens, or ask for a higher budget".to_owned(),
            (None, None) => "Ask for a higher budget".to_owned(),
        };
        format!("{until}: {left}.{smaller}")
    }

    /// The fields beside `message`, `type` and `code`.
    pub(crate) fn fields(&self) -> Map<String, Value> {
        let fields = json!({
            "budget": {
                "scope": self.scope, "scope_id": self.scope_id, "id": self.id, "name": self.name,
                "amount": self.amount, "period": self.period, "spent": self.spent, "held": self.held,
                "resets_at": self.resets_at,
            },
            "needed": self.needed,
            "max_tokens_that_fit": self.max_tokens_that_fit,
        });
        fields.as_object().cloned().unwrap_or_default()
    }
}
