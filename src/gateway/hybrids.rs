//! A hybrid's choice for one request: what the routers are told, and what is kept of what they say.

use std::time::{Duration, Instant};

use super::{Gateway, Routes};
use crate::{
    catalog::{Model, Plan, Router},
    prompt::{ChatCall, Route},
    routing::{
        self, Candidate, Chosen, Need, PendingTurn, Rejection, RoutingRequest, Scorer, SessionKey,
        SessionLookup,
    },
    wire::{
        chat::{ResponseFormat, Role},
        error::GatewayError,
        json_text::JsonText,
    },
};

impl Gateway {
    /// Which of its targets answers a call of a hybrid. Nothing is changed by asking.
    ///
    /// A target that the plan does not include is none, as if it were asked for by name (SPEC §3.3).
    pub fn choose(
        &self,
        routes: &Routes,
        call: &ChatCall,
        plan: Plan,
    ) -> Result<Chosen, GatewayError> {
        let (started, hybrid) = (Instant::now(), &*call.route.requested);
        let settings = hybrid.router.as_ref().ok_or(GatewayError::Internal)?;
        let need = need(call);
        let targets = hybrid
            .targets
            .iter()
            .filter_map(|id| routes.catalog.find(id));
        let candidates: Vec<_> = targets
            .map(|model| {
                let in_service = self.out_of_service(routes, model, plan, started);
                Candidate::new(model.clone(), &need, in_service, call.cap_with(model))
            })
            .collect();
        let turn = match settings {
            Router::Turn(settings) => Some((*settings, session_key(call))),
            _ => None,
        };
        let found = turn.map_or_else(SessionLookup::default, |(settings, key)| {
            self.sessions.find(&hybrid.id, key, started, settings.ttl)
        });
        let text = task(call);
        let last = call.messages.last();
        let after_tool = last.is_some_and(|last| last.role == Role::Tool);
        let question = RoutingRequest {
            text: &text,
            need: &need,
            after_tool,
            found: &found,
        };
        let knowledge = &routes.knowledge;
        let chosen = routing::choose(hybrid, settings, &question, &candidates, knowledge);
        let mut chosen = chosen.ok_or_else(|| Self::nobody(hybrid, call, &candidates))?;
        chosen.decision.route_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        chosen.pending_turn = turn.map(|(settings, key)| PendingTurn {
            key,
            settings,
            scores: chosen.scores,
            prompt_tokens: need.prompt_tokens,
            after_tool,
            before: found.session.and_then(|session| {
                let model = routes.catalog.find(&session.model)?;
                Some(model.quality_tier)
            }),
        });
        Ok(chosen)
    }

    fn out_of_service(
        &self,
        routes: &Routes,
        model: &Model,
        plan: Plan,
        now: Instant,
    ) -> Option<Rejection> {
        if !self.ledger.model_settings(&model.id).enabled {
            Some(Rejection::Disabled)
        } else if routes.deployments.count(&model.id) == 0 {
            Some(Rejection::Unserved)
        } else if !plan.includes(model.min_tier) {
            Some(Rejection::NotEntitled)
        } else if !routes.deployments.is_healthy(&model.id, now) {
            Some(Rejection::Unhealthy)
        } else {
            None
        }
    }

    /// Why nobody can answer, in the words of what was asked.
    fn nobody(hybrid: &Model, call: &ChatCall, candidates: &[Candidate]) -> GatewayError {
        let rejected = || candidates.iter().filter_map(|one| one.rejected);
        let too_small = candidates.iter();
        let too_small = too_small.filter(|one| one.rejected == Some(Rejection::MinOutput));
        if let Some(least) = too_small.filter_map(|one| one.model.min_output).min() {
            let (name, id) = (call.budget_name(), &hybrid.id);
            let message = format!(
                "`{name}` is too small: the models that `{id}` can choose from for you take {least} or more."
            );
            return GatewayError::invalid(name, message);
        }
        let mut constraints: Vec<_> = rejected().filter_map(Rejection::constraint).collect();
        constraints.sort_unstable();
        constraints.dedup();
        if let Some((param, _)) = constraints.first().copied() {
            let what: Vec<_> = constraints.into_iter().map(|(_, what)| what).collect();
            let (id, what) = (&hybrid.id, what.join(", or "));
            let message = format!("None of the models that `{id}` can choose from for you {what}.");
            return GatewayError::invalid(param, message);
        }
        // No target that the plan includes is enabled and served: for this account there is no such model.
        GatewayError::ModelNotFound {
            model: hybrid.id.clone(),
        }
    }

    /// A call has been answered by its target. What a hybrid chose is counted and remembered.
    pub fn answered(&self, route: &Route) {
        let Some(decision) = &route.decision else {
            return;
        };
        self.tally.count(decision);
        self.metrics.routed(
            &decision.hybrid,
            &decision.chosen,
            decision.reason.as_str(),
            Duration::from_micros(decision.route_us),
        );
        if let Some(turn) = &route.pending_turn {
            let now = Instant::now();
            self.sessions
                .remember(&route.requested.id, turn, &route.target, now);
        }
    }
}

/// What is asked for: the last thing the user said that is more than a courtesy.
pub fn task(call: &ChatCall) -> String {
    let mut texts = call
        .user_texts()
        .map(|text| without_reminders(text.decode()));
    let last = texts.next().unwrap_or_default();
    if !Scorer::is_courtesy(&last) {
        return last;
    }
    let earlier = texts.find(|text| !Scorer::is_courtesy(text));
    earlier.unwrap_or(last)
}

/// Agents put notes of their own into what a user says; they are not what is asked for.
fn without_reminders(text: String) -> String {
    if !text.contains("<system-reminder>") {
        return text;
    }
    let mut parts = text.split("<system-reminder>");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A note without an end goes on to the end.
        let after = part.split_once("</system-reminder>");
        kept.push_str(after.map_or("", |(_, after)| after));
    }
    kept
}

fn need(call: &ChatCall) -> Need {
    let format = call.response_format.as_ref();
    Need {
        prompt_tokens: call.count().estimate,
        tools: if call.tools.are_built_in() {
            0
        } else {
            call.tools.len()
        },
        json_schema: matches!(format, Some(ResponseFormat::JsonSchema { .. })),
        json_mode: matches!(format, Some(ResponseFormat::JsonObject)),
        stream: call.stream,
    }
}

/// A conversation is known by its account and how it begins; a cache key tells those apart that begin
/// alike, and is no name of one by itself, since clients use one key for all that share a prefix.
fn session_key(call: &ChatCall) -> SessionKey {
    let texts = [
        call.prompt_cache_key.as_ref(),
        call.first_text(Role::System),
        call.first_text(Role::User),
    ];
    let [cache_key, system, first] = texts.map(|text| text.map_or("", JsonText::as_json));
    let hybrid = &call.route.requested.id;
    SessionKey::of([&call.user, hybrid, cache_key, system, first])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_agents_are_left_out() {
        for (said, left) in [
            ("Sort this", "Sort this"),
            (
                "<system-reminder>a\nb</system-reminder>Sort this",
                "Sort this",
            ),
            (
                "Sort <system-reminder>a</system-reminder>this<system-reminder>b</system-reminder>",
                "Sort this",
            ),
            ("Sort this <system-reminder>cut sho", "Sort this "),
        ] {
            assert_eq!(without_reminders(said.to_owned()), left);
        }
    }
}
