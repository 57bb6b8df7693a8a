//! Which model was asked for, and which one answers.

use std::sync::Arc;

use crate::{
    catalog::{Model, Parameter},
    routing::{Chosen, Decision, Reason, Turning},
};

#[derive(Debug)]
pub struct Route {
    /// Its ID is what the answer shows, its rules are those the caller reads.
    pub requested: Arc<Model>,
    /// The same model, but for hybrids once they have chosen.
    pub target: Arc<Model>,
    /// Whom to ask in turn when the target fails.
    ladder: Vec<Arc<Model>>,
    /// How a hybrid came to its target.
    pub decision: Option<Box<Decision>>,
    /// What to remember of it, if it is a turn of a conversation.
    pub turning: Option<Box<Turning>>,
}

impl Route {
    pub fn to(model: Arc<Model>) -> Self {
        Self {
            requested: model.clone(),
            target: model,
            ladder: Vec::new(),
            decision: None,
            turning: None,
        }
    }

    /// A hybrid has chosen.
    pub(super) fn choose(&mut self, chosen: Chosen) {
        self.ladder = chosen.ladder;
        self.decision = Some(Box::new(chosen.decision));
        self.turning = chosen.turning.map(Box::new);
    }

    /// Who answers for a hybrid.
    pub fn routed(&self) -> Option<Arc<Model>> {
        self.decision.as_ref().map(|_| self.target.clone())
    }

    /// How a hybrid came to its target, as it is kept with the request.
    pub fn told(&self) -> Option<String> {
        let decision = self.decision.as_ref()?;
        serde_json::to_string(decision).ok()
    }

    /// Whether somebody better can be asked when the target's answer is poor.
    pub fn can_improve(&self) -> bool {
        let next = self.ladder.first();
        next.is_some_and(|next| next.quality_tier > self.target.quality_tier)
    }

    /// Only these may be asked instead.
    pub fn keep_healthy(&mut self, healthy: impl Fn(&Model) -> bool) {
        self.ladder.retain(|model| healthy(model));
    }

    /// The target stays, whatever happens.
    pub fn settle(&mut self) {
        self.ladder.clear();
    }

    /// Everyone who may yet answer.
    pub fn possible(&self) -> impl Iterator<Item = &Arc<Model>> {
        std::iter::once(&self.target).chain(&self.ladder)
    }

    /// Who is asked next, now that the target has failed.
    pub(super) fn escalate(&mut self, reason: Reason) -> Option<Arc<Model>> {
        if self.ladder.is_empty() {
            return None;
        }
        let next = self.ladder.remove(0);
        if let Some(decision) = &mut self.decision {
            decision.escalates(&next.id, reason);
        }
        Some(next)
    }

    /// What `target` said before is the answer after all.
    pub(super) fn returns(&mut self, target: &Model) {
        self.ladder.clear();
        if let Some(decision) = &mut self.decision {
            let reason = decision.reason;
            decision.escalates(&target.id, reason);
        }
    }

    /// The most tools that are taken.
    pub(super) fn max_tools(&self) -> usize {
        self.requested.max_tools
    }

    /// Whether the gateway's own tools are offered (SPEC §4.1).
    pub(super) fn takes_built_in_tools(&self) -> bool {
        self.requested.builtin_tools && self.requested.has_feature("tools")
    }

    /// Whether a parameter is dropped on this way.
    pub fn drops(&self, parameter: Parameter) -> bool {
        self.requested.drops(parameter) || self.target.drops(parameter)
    }
}
