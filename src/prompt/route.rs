//! The requested model and the model that serves the call.

use std::sync::Arc;

use crate::{
    catalog::{Model, Parameter},
    routing::{Chosen, Decision, PendingTurn, Reason},
};

#[derive(Debug)]
pub(crate) struct Route {
    /// The model in the request, whose limits apply to the request.
    pub requested: Arc<Model>,
    /// The alias by which the request named the model; `None` if it named the ID.
    alias: Option<String>,
    /// The model that serves the call: the requested one, or the target that a hybrid chose.
    pub target: Arc<Model>,
    /// Models to try in this order if the target fails.
    fallbacks: Vec<Arc<Model>>,
    /// Why a hybrid chose its target.
    pub decision: Option<Box<Decision>>,
    /// What the `turn` router stores once the call was served.
    pub pending_turn: Option<Box<PendingTurn>>,
}

impl Route {
    pub(crate) fn to(model: Arc<Model>) -> Self {
        Self {
            requested: model.clone(),
            alias: None,
            target: model,
            fallbacks: Vec::new(),
            decision: None,
            pending_turn: None,
        }
    }

    /// The same route, for a request that named the model by this alias.
    #[must_use]
    pub(crate) fn by_alias(self, alias: String) -> Self {
        let alias = Some(alias);
        Self { alias, ..self }
    }

    pub(crate) fn is_by_alias(&self) -> bool {
        self.alias.is_some()
    }

    /// The name in the request, which the response repeats: the model's ID or an alias.
    pub(crate) fn requested_name(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.requested.id)
    }

    /// Lowers an output budget to the model's maximum if the model was named by an alias: callers choose a budget by the
    /// name, which is that of another model.
    pub(crate) fn capped(&self, tokens: u64) -> u64 {
        if self.is_by_alias() {
            tokens.min(self.requested.max_output.into())
        } else {
            tokens
        }
    }

    /// Applies the choice of a hybrid, except for the target.
    pub(super) fn choose(&mut self, chosen: Chosen) {
        self.fallbacks = chosen.fallbacks;
        self.decision = Some(Box::new(chosen.decision));
        self.pending_turn = chosen.pending_turn.map(Box::new);
    }

    /// The target, if a hybrid chose it.
    pub(crate) fn routed(&self) -> Option<Arc<Model>> {
        self.decision.as_ref().map(|_| self.target.clone())
    }

    /// The decision as JSON, as it is stored with the request.
    pub(crate) fn decision_json(&self) -> Option<String> {
        let decision = self.decision.as_ref()?;
        serde_json::to_string(decision).ok()
    }

    /// Whether the next fallback is of a higher quality tier than the target, for responses that are poor.
    pub(crate) fn can_improve(&self) -> bool {
        let next = self.fallbacks.first();
        next.is_some_and(|next| next.quality_tier > self.target.quality_tier)
    }

    /// Removes fallbacks that are not healthy.
    pub(crate) fn keep_healthy(&mut self, healthy: impl Fn(&Model) -> bool) {
        self.fallbacks.retain(|model| healthy(model));
    }

    /// Removes all fallbacks: the target can no longer change.
    pub(crate) fn fix_target(&mut self) {
        self.fallbacks.clear();
    }

    /// The target and all fallbacks.
    pub(crate) fn possible_targets(&self) -> impl Iterator<Item = &Arc<Model>> {
        std::iter::once(&self.target).chain(&self.fallbacks)
    }

    /// Takes the next fallback, because the target has failed.
    pub(super) fn escalate(&mut self, reason: Reason) -> Option<Arc<Model>> {
        if self.fallbacks.is_empty() {
            return None;
        }
        let next = self.fallbacks.remove(0);
        if let Some(decision) = &mut self.decision {
            decision.escalates(&next.id, reason);
        }
        Some(next)
    }

    /// Returns to an earlier target, whose response is delivered after all.
    pub(super) fn return_to(&mut self, target: &Model) {
        self.fallbacks.clear();
        if let Some(decision) = &mut self.decision {
            let reason = decision.reason;
            decision.escalates(&target.id, reason);
        }
    }

    /// The most tools that a request may have.
    pub(super) fn max_tools(&self) -> usize {
        self.requested.max_tools
    }

    /// Whether built-in tools may be offered (§4.1).
    pub(super) fn takes_built_in_tools(&self) -> bool {
        self.requested.builtin_tools && self.requested.has_feature("tools")
    }

    /// Whether the requested model or the target drops a parameter.
    pub(crate) fn drops(&self, parameter: Parameter) -> bool {
        self.requested.drops(parameter) || self.target.drops(parameter)
    }
}
