//! What both endpoints have in common: from a request in chat's form to its answer.

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
    catalog::Plan,
    gateway::{self, Gateway, Routes},
    ledger::Caller,
    metered::{self, Form, NotStarted, Reply},
    prompt::{self, Additions, ChatCall, Route},
    routing::{Decision, Term},
    wire::{
        chat::{ChatRequest, Settings},
        error::GatewayError,
    },
};

const ROUTED_MODEL: HeaderName = HeaderName::from_static("x-routed-model");

/// How many terms of the scores are shown, the largest first.
const SHOWN_CONTRIBUTIONS: usize = 3;

/// A request for a model that its caller may use.
pub struct Permitted {
    routes: Guard<Arc<Routes>>,
    route: Route,
    settings: Settings,
}

impl Permitted {
    /// The model is one this account may use (SPEC §3.3), and what is sent for it is of the right
    /// type.
    pub fn check(
        gateway: &Gateway,
        caller: &Caller,
        request: &mut ChatRequest,
        log: &RequestLog,
    ) -> Result<Self, GatewayError> {
        log.model(&request.model);
        let permitted = Self::find(gateway, request)?;
        permitted.check_plan(gateway, caller.plan)?;
        Ok(permitted)
    }

    /// For who has to wait before they go on: what is borrowed for a look must not be kept.
    pub fn kept(self) -> Self {
        Self {
            routes: Guard::from_inner(Guard::into_inner(self.routes)),
            ..self
        }
    }

    fn check_plan(&self, gateway: &Gateway, plan: Plan) -> Result<(), GatewayError> {
        let model = &self.route.requested;
        if plan.includes(model.min_tier) {
            return Ok(());
        }
        Err(GatewayError::TierUpgradeRequired {
            model: model.id.clone(),
            current: plan.tier(),
            required: model.min_tier,
            upgrade_url: gateway.links.upgrade.clone(),
        })
    }

    /// The same for any account.
    fn find(gateway: &Gateway, request: &mut ChatRequest) -> Result<Self, GatewayError> {
        let routes = gateway.routes_now();
        let model = gateway.model(&routes, &request.model);
        let route = model.map(Route::to);
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

    /// The values are allowed (SPEC §2.2–2.4, §8.3), the request is put in our own form, and a hybrid
    /// has chosen who answers it (§2.8).
    pub fn prepare(
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
        let ours = Additions {
            identity_prompt: identity.as_deref(),
            toolbox: self.routes.toolbox.as_ref(),
        };
        let (settings, route) = (self.settings, self.route);
        let mut call = prompt::prepare(request, settings, route, ours, account_id)?;
        if is_hybrid {
            call.choose(gateway.choose(&self.routes, &call, plan)?);
        }
        Ok(call)
    }
}

/// Has a call answered, in the form that was asked for.
pub async fn answer(
    gateway: &Arc<Gateway>,
    caller: Caller,
    log: RequestLog,
    call: Box<ChatCall>,
    form: Form,
) -> Result<Response, NotStarted> {
    // §8 The part that costs money.
    let error_writer = form.error_writer();
    let started = metered::start(gateway, caller, log.request_id(), call, form).await?;
    log.credits_expire_at(started.credits_expire_at);
    // §2.5, §2.6 The answer, in the form that was asked for.
    let mut response = match started.reply {
        Reply::Whole { body, usage } => {
            if let Some(usage) = usage {
                log.usage(usage);
            }
            json_response(body)
        }
        Reply::Stream(frames) => sse::response(frames, log, error_writer),
    };
    let routed = started.routed.as_ref();
    if let Some(routed) = routed.and_then(|model| HeaderValue::try_from(&model.id).ok()) {
        response.headers_mut().insert(ROUTED_MODEL, routed);
    }
    Ok(response)
}

/// How a hybrid would come to the model that answers a request, and what spoke loudest for that.
#[derive(Serialize)]
pub struct Explanation {
    #[serde(flatten)]
    decision: Box<Decision>,
    /// They hold words of the prompt, so they are told to who has it, and not kept with requests.
    contributions: Vec<Term>,
}

/// The same as for an answer to this body of a chat completion; none for models that are no hybrids.
/// Nobody is asked, and nothing is remembered.
pub fn explain(
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
        // A continuation has the scores of what was said before.
        let terms = if decision.is_inherited {
            Vec::new()
        } else {
            scorer.explain(&text)
        };
        // Where all scores start from says nothing about this one.
        let terms = terms.into_iter().filter(|one| one.term != "base");
        let loudest = terms.take(SHOWN_CONTRIBUTIONS);
        Explanation {
            decision,
            contributions: loudest.map(Term::from).collect(),
        }
    }))
}
