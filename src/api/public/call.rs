//! The common part of the billed endpoints: from a parsed chat request to its response.
//!
//! Every check comes before admission, so a refused request is not charged.

use std::sync::Arc;

use arc_swap::Guard;
use axum::{
    http::{HeaderName, HeaderValue},
    response::Response,
};
use serde::Serialize;

use super::sse;
use crate::{
    api::{access_log::RequestLog, json_response},
    catalog::{Model, Plan},
    gateway::{self, Gateway, NamedModel, Routes, retries::RecordedCall},
    ledger::{Caller, KeyTerms},
    metered::{self, Form, NotStarted, Reply},
    prompt::{self, Additions, ChatCall, Route},
    routing::{Decision, Term},
    wire::{
        chat::{ChatRequest, MAX_STOPS, Settings},
        error::GatewayError,
    },
};

pub(super) const ROUTED_MODEL: HeaderName = HeaderName::from_static("x-routed-model");

/// Number of score terms that an explanation shows, largest first.
const SHOWN_CONTRIBUTIONS: usize = 3;

/// A request for a model that its caller may use.
pub(crate) struct Permitted {
    /// Borrowed snapshot, unless [`Self::owned`] was called.
    routes: Guard<Arc<Routes>>,
    route: Route,
    settings: Settings,
}

impl Permitted {
    /// Checks that the account may use the model (§3.3) and that its settings have the right types.
    pub(crate) fn check(
        gateway: &Gateway,
        caller: &Caller,
        request: &mut ChatRequest,
        log: &RequestLog,
    ) -> Result<Self, GatewayError> {
        log.model(&request.model);
        let permitted = Self::find(gateway, request)?;
        if permitted.route.is_by_alias() {
            log.model(&permitted.route.requested.id);
        }
        permitted.check_plan(gateway, caller.plan)?;
        permitted.check_key(&caller.terms)?;
        Ok(permitted)
    }

    /// Turns the borrowed snapshot of the routes into an owned one; needed before an `.await`.
    pub(crate) fn owned(self) -> Self {
        Self {
            routes: Guard::from_inner(Guard::into_inner(self.routes)),
            ..self
        }
    }

    /// The output budget that applies to the request: an alias lowers it to the model's maximum.
    pub(crate) fn capped(&self, tokens: u64) -> u64 {
        self.route.capped(tokens)
    }

    /// Whether some provider of the model takes a request of the Messages API as it is. Not so if the gateway adds an
    /// identity prompt, or if a hybrid chooses the target.
    pub(crate) fn takes_native(&self) -> bool {
        let model = &self.route.requested;
        let is_changed = model.is_hybrid() || model.identity_prompt;
        !is_changed && self.routes.deployments.takes_native(&model.id)
    }

    /// Leaves out stop sequences beyond those of a chat: a provider of the Messages API gets them in the caller's bytes.
    pub(crate) fn limit_stops(&mut self) {
        self.settings.stop.truncate(MAX_STOPS);
    }

    /// The requested model.
    pub(crate) fn model(&self) -> &Arc<Model> {
        &self.route.requested
    }

    fn check_plan(&self, gateway: &Gateway, plan: Plan) -> Result<(), GatewayError> {
        let model = &self.route.requested;
        if plan.includes(model.min_tier) {
            return Ok(());
        }
        Err(GatewayError::TierUpgradeRequired {
            model: self.route.requested_name().to_owned(),
            current: plan.tier(),
            required: model.min_tier,
            upgrade_url: gateway.links.upgrade.clone(),
        })
    }

    fn check_key(&self, terms: &KeyTerms) -> Result<(), GatewayError> {
        if terms.allows(&self.route.requested.id) {
            return Ok(());
        }
        Err(GatewayError::ModelNotAllowed {
            model: self.route.requested_name().to_owned(),
        })
    }

    /// Finds the model and checks its settings, without regard to an account.
    fn find(gateway: &Gateway, request: &mut ChatRequest) -> Result<Self, GatewayError> {
        let routes = gateway.routes_now();
        let named = gateway.model(&routes, &request.model);
        let route = named.map(|NamedModel { model, is_alias }| {
            let route = Route::to(model);
            if is_alias {
                return route.by_alias(std::mem::take(&mut request.model));
            }
            route
        });
        let dropped = |parameter| route.as_ref().is_some_and(|route| route.drops(parameter));
        let settings = std::mem::take(&mut request.sampling).checked(dropped)?;
        let route = route.ok_or_else(|| GatewayError::ModelNotFound {
            model: request.model.clone(),
        })?;
        Ok(Self {
            routes,
            route,
            settings,
        })
    }

    /// Checks the values (§2.2–2.4, §8.3), converts the request to a [`ChatCall`], and lets a hybrid choose its target
    /// (§2.8).
    pub(crate) fn prepare(
        self,
        gateway: &Gateway,
        (account_id, plan): (&str, Plan),
        request: Box<ChatRequest>,
    ) -> Result<Box<ChatCall>, GatewayError> {
        let model = &self.route.requested;
        let (identity, is_hybrid) = (
            self.routes.catalog.identity_prompt(model),
            model.is_hybrid(),
        );
        let additions = Additions {
            identity_prompt: identity.as_deref(),
            toolbox: self.routes.toolbox.as_ref(),
        };
        let (settings, route) = (self.settings, self.route);
        let mut call = prompt::prepare(request, settings, route, additions, account_id)?;
        if is_hybrid {
            call.choose(gateway.choose(&self.routes, &call, plan)?);
        }
        Ok(call)
    }
}

/// Runs a call and returns its response in the form of the endpoint.
pub(crate) async fn respond(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: RequestLog,
    mut call: Box<ChatCall>,
    form: Form,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Response, NotStarted> {
    (call.agent, call.trace) = (log.agent(), log.trace());
    log.streams(call.stream);
    // §8 The billed part.
    let style = form.stream_style();
    let mut started = metered::start(gateway, caller, log.request_id(), call, form, recorded).await;
    if let Err(NotStarted::Failed(_, facts)) = &mut started {
        log.admitted();
        log.facts(std::mem::take(&mut **facts));
    }
    let started = started?;
    log.credits_expire_at(started.credits_expire_at);
    // §2.5, §2.6 The response, as one body or as a stream.
    let mut response = match started.reply {
        Reply::Whole { body, usage, facts } => {
            log.facts(facts);
            if let Some(usage) = usage {
                log.usage(usage);
            }
            json_response(body)
        }
        Reply::Stream(frames) => {
            let pages = gateway.portal.request_pages.clone();
            sse::response(frames, (log, pages), style, 0)
        }
    };
    let routed = started.routed.as_ref();
    if let Some(routed) = routed.and_then(|model| HeaderValue::try_from(&model.id).ok()) {
        response.headers_mut().insert(ROUTED_MODEL, routed);
    }
    Ok(response)
}

/// The decision of a hybrid for a request, with the terms that contributed most to its scores.
#[derive(Serialize)]
pub(crate) struct Explanation {
    #[serde(flatten)]
    decision: Box<Decision>,
    /// Contains words of the prompt, so it is returned only to the sender of the prompt and never stored.
    contributions: Vec<Term>,
}

/// Explains which target a hybrid would choose for this chat request; `None` for other models.
///
/// Dry run: calls no provider and changes no state.
pub(crate) fn explain(
    gateway: &Gateway,
    account: (&str, Plan),
    body: &[u8],
) -> Result<Option<Explanation>, GatewayError> {
    let mut request = ChatRequest::parse(body)?;
    let permitted = Permitted::find(gateway, &mut request)?;
    let routes = Arc::clone(&permitted.routes);
    permitted.check_plan(gateway, account.1)?;
    let call = permitted.prepare(gateway, account, request)?;
    let text = gateway::task_text(&call);
    Ok(call.route.decision.map(|decision| {
        let scorer = routes.knowledge.scorer();
        // A continuation inherits the scores of an earlier request, so its own text explains nothing.
        let terms = if decision.is_inherited {
            Vec::new()
        } else {
            scorer.explain(&text)
        };
        // The base is the same for all prompts.
        let terms = terms.into_iter().filter(|term| term.term != "base");
        let largest = terms.take(SHOWN_CONTRIBUTIONS);
        Explanation {
            decision,
            contributions: largest.map(Term::from).collect(),
        }
    }))
}
