//! What both endpoints have in common: from a request in chat's form to its answer.

use std::sync::Arc;

use axum::{
    http::{HeaderName, HeaderValue},
    response::Response,
};

use super::{access_log::RequestLog, json_response, sse};
use crate::{
    chat::{self, Ours, Route},
    error::GatewayError,
    gateway::{Gateway, Routes},
    ledger::Caller,
    metered::{self, Form, Reply},
    time_text,
    wire::chat::{ChatRequest, Settings},
};

const CREDITS_EXPIRE_AT: HeaderName = HeaderName::from_static("x-credits-expire-at");
const ROUTED_MODEL: HeaderName = HeaderName::from_static("x-routed-model");

/// A request for a model that its caller may use.
pub struct Permitted {
    routes: Arc<Routes>,
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
        let routes = gateway.routes();
        let route = gateway.route(&routes.catalog, &request.model);
        let dropped = |parameter| route.as_ref().is_some_and(|route| route.drops(parameter));
        let settings = std::mem::take(&mut request.sampling).checked(dropped)?;
        let route = route.ok_or_else(|| GatewayError::ModelNotFound {
            model: request.model.clone(),
        })?;
        let model = &route.requested;
        if !caller.plan.includes(model.min_tier) {
            return Err(GatewayError::TierUpgradeRequired {
                model: model.id.clone(),
                current: caller.plan.tier(),
                required: model.min_tier,
                upgrade_url: gateway.links.upgrade.clone(),
            });
        }
        Ok(Self {
            routes,
            route,
            settings,
        })
    }

    pub async fn answer(
        self,
        gateway: &Arc<Gateway>,
        caller: Caller,
        log: RequestLog,
        request: ChatRequest,
        form: Form,
    ) -> Result<Response, GatewayError> {
        // §2.2–2.4, §8.3 The values are allowed, and the request is put in our own form.
        let model = self.route.requested.clone();
        let identity = self.routes.catalog.identity_prompt(&model);
        let ours = Ours {
            identity_prompt: identity.as_deref(),
            toolbox: self.routes.toolbox.as_ref(),
        };
        let (settings, route) = (self.settings, self.route);
        let call = chat::prepare(request, settings, route, ours, &caller.account_id)?;
        // §8 The part that costs money.
        let answering = model.is_hybrid().then(|| call.route.target.id.clone());
        let words = form.words();
        let started = metered::start(gateway, caller, log.request_id(), call, form).await?;
        // §2.5, §2.6 The answer, in the form that was asked for.
        let mut response = match started.reply {
            Reply::Whole { body, usage } => {
                log.usage(usage);
                json_response(body)
            }
            Reply::Stream(frames) => sse::response(frames, log, words),
        };
        if let Some(target) = answering.and_then(|id| HeaderValue::try_from(id).ok()) {
            response.headers_mut().insert(ROUTED_MODEL, target);
        }
        let expiry = started.credits_expire_at.map(time_text::shown);
        if let Some(expiry) = expiry.and_then(|expiry| HeaderValue::try_from(expiry).ok()) {
            response.headers_mut().insert(CREDITS_EXPIRE_AT, expiry);
        }
        Ok(response)
    }
}
