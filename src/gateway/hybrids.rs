//! Chooses the target of a request to a hybrid, and records the choice once the target has responded.

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
    /// Chooses the target for a call to a hybrid. Changes no state.
    ///
    /// A target that the plan does not include is skipped, just as a request for it by name would be refused (§3.3).
    pub(crate) fn choose(
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
                let rejection = self.out_of_service(routes, model, plan, started);
                Candidate::new(model.clone(), &need, rejection, call.cap_with(model))
            })
            .collect();
        let turn = match settings {
            Router::Turn(settings) => Some((*settings, session_key(call))),
            _ => None,
        };
        let found = turn.map_or_else(SessionLookup::default, |(settings, key)| {
            self.sessions.find(&hybrid.id, key, started, settings.ttl)
        });
        let text = task_text(call);
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
        let input = need.prompt_tokens;
        let mut chosen = chosen.ok_or_else(|| Self::no_target_error(call, &candidates, input))?;
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

    /// Returns why the gateway cannot use a model now, whatever the call needs.
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

    /// Returns the error for a call that no target fits; it names the request parameter that rules the targets out.
    /// `input` is the estimate of the prompt's tokens.
    fn no_target_error(call: &ChatCall, candidates: &[Candidate], input: u64) -> GatewayError {
        let rejected = || candidates.iter().filter_map(|one| one.rejected);
        let too_small = candidates.iter();
        let too_small = too_small.filter(|one| one.rejected == Some(Rejection::MinOutput));
        if let Some(least) = too_small.filter_map(|one| one.model.min_output).min() {
            let (name, id) = (call.budget_name(), call.route.requested_name());
            let message = format!(
                "`{name}` is too small: the models that `{id}` can choose from for you take {least} or more."
            );
            return GatewayError::invalid(name, message);
        }
        let too_short = candidates.iter();
        let too_short = too_short.filter(|one| one.rejected == Some(Rejection::Context));
        if let Some(longest) = too_short.max_by_key(|one| one.model.context_length) {
            let output = call.budget_with(&longest.model).max_tokens;
            return GatewayError::ContextLengthExceeded {
                model: call.route.requested_name().to_owned(),
                input,
                output: output.map_or(0, u64::from),
                most: longest.model.context_length.into(),
            };
        }
        let mut constraints: Vec<_> = rejected().filter_map(Rejection::constraint).collect();
        constraints.sort_unstable();
        constraints.dedup();
        if let Some((param, _)) = constraints.first().copied() {
            let what: Vec<_> = constraints.into_iter().map(|(_, what)| what).collect();
            let (id, what) = (call.route.requested_name(), what.join(", or "));
            let message = format!("None of the models that `{id}` can choose from for you {what}.");
            return GatewayError::invalid(param, message);
        }
        // No target that the plan includes is enabled and served, so for this account the hybrid does not exist.
        GatewayError::ModelNotFound {
            model: call.route.requested_name().to_owned(),
        }
    }

    /// Counts a hybrid's choice and remembers it for the conversation. Called once the target has responded; does
    /// nothing for other models.
    pub(crate) fn record_hybrid_choice(&self, route: &Route) {
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

/// Returns the text by which a hybrid rates a call: the user's last message that is more than a courtesy such as
/// "thanks".
pub(crate) fn task_text(call: &ChatCall) -> String {
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

/// Removes the `<system-reminder>` notes that agents insert into user messages: they are not part of the user's task.
fn without_reminders(text: String) -> String {
    if !text.contains("<system-reminder>") {
        return text;
    }
    let mut parts = text.split("<system-reminder>");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // A note that is not closed extends to the end of the text.
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

/// Returns the key of a conversation: its account, hybrid, cache key, system prompt and first user message. The cache
/// key tells apart conversations that begin alike. It does not identify one alone, since clients use one cache key
/// for all conversations that share a prefix.
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
    fn reminders_of_agents_are_removed() {
        for (text, expected) in [
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
            assert_eq!(without_reminders(text.to_owned()), expected);
        }
    }
}
