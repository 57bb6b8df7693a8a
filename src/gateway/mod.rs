//! The running gateway: the state that all requests share, its metrics and alerts, and the operator actions.
//!
//! [`Gateway`] is built once at the start. Its routes are replaced as a whole when the configuration is reloaded, so
//! a faulty configuration changes nothing, and a running call keeps the routes that it started with. An operator
//! action that has begun runs to its end even if its client disconnects. Emails, metrics and alerts never fail a
//! request.
//!
//! Uses backoffice, upstream, prompt, tools, config, telemetry, ledger, limits, conversations, net, wire, routing, catalog and
//! base. The rooms metered, api, portal, server and cli use it.

use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use tokio_util::task::TaskTracker;

use crate::{
    backoffice::{Backoffice, mail::Mail, oidc::Issuer, payments::Payments},
    base::{keys::Secret, money::NanoUsd, rate::Ceilings},
    catalog::{Catalog, Model, Plan},
    config::{
        Config, Routing,
        changes::{Base, Revision},
    },
    conversations::Conversations,
    gateway::{metrics::Metrics, traffic::Traffic},
    ledger::{Ledger, spool::Spool},
    limits::Limiter,
    net::{body_memory::BodyMemory, lag::Lag, offload::Offload, shutdown::Shutdown},
    routing::{Knowledge, Sessions},
    telemetry::Telemetry,
    tools::Toolbox,
    upstream::Deployments,
};

mod abandoned;
pub(crate) mod actions;
mod admissions;
pub mod alerts;
pub(crate) mod breakdown;
pub(crate) mod configuration;
mod cookie_secret;
mod emails;
mod hybrids;
pub(crate) mod metrics;
mod portal;
mod refusals;
mod refused_requests;
pub(crate) mod retries;
pub(crate) mod statements;
mod tally;
mod tasks;
pub mod top_ups;
pub(crate) mod traffic;

pub(crate) use abandoned::{AbandonedCall, AbandonedCalls};
pub(crate) use admissions::{Admissions, Overloaded, Permit};
pub(crate) use alerts::Alerts;
use breakdown::Breakdown;
use configuration::Configuration;
pub(crate) use hybrids::task_text;
pub(crate) use portal::{Portal, RequestPages, STARTER_CREDIT};
pub(crate) use refusals::Refusals;
pub(crate) use refused_requests::RefusedRequests;
pub(crate) use retries::Retries;
pub(crate) use tally::{ChoiceTally, HybridTally, Tally};
pub(crate) use tasks::Tasks;

pub struct Gateway {
    /// Models and their deployments; replaced as a whole when the configuration is reloaded.
    routes: ArcSwap<Routes>,
    /// The version of the configuration that the store has, and whether it could be used here.
    pub(crate) configuration: Configuration,
    pub ledger: Arc<Ledger>,
    /// Pending charges, kept in files until the ledger takes them.
    pub spool: Arc<Spool>,
    /// Stored responses, which callers can continue with `previous_response_id`.
    pub conversations: Conversations,
    /// People who sign in to the portal, their sessions, payments, alerts and the record of operator actions.
    pub backoffice: Backoffice,
    pub operator_token: Secret,
    pub links: Links,
    pub portal: Portal,
    /// OpenID Connect issuer for signing in; `None` unless configured.
    pub oidc: Option<Issuer>,
    /// Mail server for emails; `None` unless configured.
    pub mail: Option<Mail>,
    /// Payment provider that sells credit; `None` unless configured.
    pub payments: Option<Payments>,
    pub alerts: Alerts,
    pub max_body_bytes: usize,
    /// Memory of the bodies of requests and running calls.
    pub body_memory: Arc<BodyMemory>,
    /// Threads that parse large bodies.
    pub offload: Offload,
    pub limiter: Arc<Limiter>,
    /// Bounds how many calls are admitted at a time; `None` with embedded stores, where admission does not wait.
    pub(crate) admissions: Option<Arc<Admissions>>,
    /// How late the tasks of each serving thread run; set when the server has started.
    pub(crate) lags: OnceLock<Vec<Lag>>,
    pub metrics: Metrics,
    /// Sends traces and metrics to the operator's collector; `None` unless it is configured.
    pub(crate) telemetry: Option<Arc<Telemetry>>,
    /// Requests and charges of the last minutes, for each second.
    pub traffic: Traffic,
    /// What the calls of the last minutes were.
    pub breakdown: Breakdown,
    /// Which model each conversation with a hybrid used last.
    pub sessions: Sessions,
    /// Counts of the hybrids' choices since the start.
    pub tally: Tally,
    /// Default rate limits, where no rule of the operator applies.
    pub ceilings: Ceilings,
    /// Most live keys of an account.
    pub max_keys: u32,
    /// How far a balance may go below zero when calls cost more than they held.
    pub max_overdraft: NanoUsd,
    /// Calls whose clients have disconnected; they are read to their end and charged.
    pub abandoned: Arc<AbandonedCalls>,
    /// Requests that get the response of another call.
    pub retries: Arc<Retries>,
    /// Bounds on refused requests.
    pub refusals: Refusals,
    /// Refused requests that are not written yet.
    pub(crate) refused_requests: RefusedRequests,
    /// Calls and other work that must finish before the process exits.
    pub tasks: Tasks,
    /// Jobs that run for as long as the gateway does.
    pub background: TaskTracker,
    pub shutdown: Shutdown,
}

/// The persistent stores.
pub(crate) struct Stores {
    pub ledger: Arc<Ledger>,
    pub spool: Spool,
    pub limiter: Arc<Limiter>,
    pub conversations: Conversations,
    pub backoffice: Backoffice,
}

/// Everything that a reload of the configuration replaces.
pub(crate) struct Routes {
    pub catalog: Catalog,
    pub deployments: Deployments,
    pub routing: Routing,
    /// Scorer and route examples by which hybrids choose.
    pub knowledge: Knowledge,
    /// Built-in tools; `None` if the operator has disabled them.
    pub toolbox: Option<Arc<Toolbox>>,
    /// What the file says, and the changes of the console that are in these routes.
    pub(crate) base: Arc<Base>,
    pub(crate) revision: Revision,
    /// The names of the providers.
    pub(crate) providers: Vec<String>,
}

impl Routes {
    /// `previous` are the routes in use; deployments that stay keep their health and counts.
    pub(crate) fn new(
        config: Config,
        previous: Option<&Self>,
        offload: &Offload,
    ) -> Result<Self, String> {
        let previous = previous.map(|previous| &previous.deployments);
        let tools = &config.tools;
        let toolbox = tools.enabled.then(|| Toolbox::new(tools)).transpose()?;
        let deployments = Deployments::new(&config, previous, offload)?;
        let unserved = config.unserved_models();
        if !unserved.is_empty() {
            let models = unserved.join(", ");
            tracing::warn!(
                models,
                "models without a deployment are not listed; requests for them get 404"
            );
        }
        Ok(Self {
            toolbox: toolbox.map(Arc::new),
            deployments,
            routing: config.routing,
            knowledge: Knowledge::new(&config.catalog, config.weights.map(|own| own.scorer)),
            catalog: config.catalog,
            providers: config.providers.into_keys().collect(),
            base: config.base,
            revision: config.revision,
        })
    }
}

/// A model that a request names.
pub(crate) struct NamedModel {
    pub model: Arc<Model>,
    /// Whether the name is an alias, and not the model's ID.
    pub is_alias: bool,
}

/// Portal pages that error messages link to.
pub struct Links {
    pub billing: String,
    pub upgrade: String,
}

impl Gateway {
    /// `origin` is the URL of the public listener, used unless `server.public_url` is set.
    pub(crate) fn new(config: Config, stores: Stores, origin: &str) -> Result<Self, String> {
        let telemetry = config
            .telemetry
            .clone()
            .map(|settings| Telemetry::new(*settings))
            .transpose()?;
        let origin = config.server.public_url.as_deref().unwrap_or(origin);
        let offload = Offload::default();
        Ok(Self {
            conversations: stores.conversations,
            backoffice: stores.backoffice,
            metrics: Metrics::new(
                stores.ledger.health(),
                stores.limiter.clock_jumps(),
                telemetry.as_deref(),
            ),
            telemetry,
            traffic: Traffic::default(),
            breakdown: Breakdown::default(),
            ledger: stores.ledger,
            spool: Arc::new(stores.spool),
            sessions: Sessions::default(),
            tally: Tally::default(),
            operator_token: config.operator.token.clone(),
            links: Links {
                billing: format!("{origin}/portal/billing"),
                upgrade: format!("{origin}/portal/plan"),
            },
            portal: Portal::new(&config.portal, origin),
            oidc: config.portal.oidc.as_ref().map(Issuer::new).transpose()?,
            mail: config.mail.as_ref().map(Mail::new).transpose()?,
            payments: config.payments.as_ref().map(Payments::new).transpose()?,
            alerts: Alerts::new(config.alerts.clone())?,
            max_body_bytes: config.server.max_body_bytes,
            admissions: (stores.limiter.is_shared())
                .then(|| Admissions::new(config.overload.max_wait)),
            lags: OnceLock::new(),
            body_memory: Arc::new(BodyMemory::new(
                config.server.body_memory.limit,
                config.server.body_memory.share,
            )),
            limiter: stores.limiter,
            ceilings: config.limits,
            max_keys: config.max_keys,
            max_overdraft: config.max_overdraft,
            abandoned: Arc::new(AbandonedCalls::new(config.max_abandoned)),
            refusals: Refusals::new(config.refusals),
            refused_requests: RefusedRequests::default(),
            retries: Retries::new(config.retries),
            configuration: Configuration::new(config.revision.clone()),
            routes: ArcSwap::from_pointee(Routes::new(config, None, &offload)?),
            offload,
            tasks: Tasks::default(),
            background: TaskTracker::new(),
            shutdown: Shutdown::default(),
        })
    }

    /// Owned snapshot of the routes; use it across an `.await`. A running call keeps the routes that it started with.
    pub(crate) fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Borrowed snapshot of the routes, not to be kept across an `.await`. It is cheaper than [`Self::routes`], whose
    /// reference count all threads share.
    pub(crate) fn routes_now(&self) -> Guard<Arc<Routes>> {
        self.routes.load()
    }

    fn replace_routes(&self, routes: Routes) {
        self.routes.store(Arc::new(routes));
    }

    /// Finds a model in the catalog, unless an operator has disabled it (§3.3).
    fn callable<'a>(&self, catalog: &'a Catalog, id: &str) -> Option<&'a Arc<Model>> {
        catalog.find(id).filter(|model| self.is_enabled(model))
    }

    fn is_enabled(&self, model: &Model) -> bool {
        self.ledger.model_settings(&model.id).enabled
    }

    /// Finds the model with this ID or alias, if some plan can call it now.
    pub(crate) fn model(&self, routes: &Routes, name: &str) -> Option<NamedModel> {
        let (model, is_alias) = match routes.catalog.find(name) {
            Some(model) => (model, false),
            None => (routes.catalog.find_alias(name)?, true),
        };
        let serves = self.is_enabled(model) && self.is_served(routes, model, Plan::ALL);
        serves.then(|| NamedModel {
            model: model.clone(),
            is_alias,
        })
    }

    /// Returns whether a deployment serves the model; for a hybrid, one of the targets that the plan includes.
    fn is_served(&self, routes: &Routes, model: &Model, plan: Plan) -> bool {
        if !model.is_hybrid() {
            return routes.deployments.count(&model.id) > 0;
        }
        let targets = model.targets.iter();
        let mut callable = targets.filter_map(|id| self.callable(&routes.catalog, id));
        callable.any(|target| {
            plan.includes(target.min_tier) && routes.deployments.count(&target.id) > 0
        })
    }

    /// Lists the models that a plan can call now (§4.4), without superseded ones (§9).
    pub(crate) fn visible_models(&self, plan: Plan) -> Vec<Arc<Model>> {
        let routes = self.routes();
        let mut models = self.listed_models(&routes, plan);
        models.retain(|model| self.is_served(&routes, model, plan));
        models
    }

    /// Lists the aliases of these models, without patterns.
    pub(crate) fn aliases_of(&self, models: &[Arc<Model>]) -> Vec<(String, Arc<Model>)> {
        let routes = self.routes();
        let exact = routes.catalog.exact_aliases();
        let exact = exact.filter_map(|(alias, aliased)| {
            let mut models = models.iter();
            let model = models.find(|model| model.id == aliased.id)?;
            Some((alias.to_owned(), model.clone()))
        });
        exact.collect()
    }

    /// Finds the one of these models that has this alias.
    pub(crate) fn by_alias<'a>(
        &self,
        models: &'a [Arc<Model>],
        alias: &str,
    ) -> Option<&'a Arc<Model>> {
        let routes = self.routes_now();
        let aliased = routes.catalog.find_alias(alias)?;
        models.iter().find(|model| model.id == aliased.id)
    }

    /// Lists the models of a plan, whether or not a deployment serves them.
    pub(crate) fn published_models(&self, plan: Plan) -> Vec<Arc<Model>> {
        self.listed_models(&self.routes(), plan)
    }

    fn listed_models(&self, routes: &Routes, plan: Plan) -> Vec<Arc<Model>> {
        let listed = routes.catalog.models().filter(|model| {
            let settings = self.ledger.model_settings(&model.id);
            let unlisted = settings.unlisted.unwrap_or(model.unlisted);
            plan.includes(model.min_tier) && settings.enabled && !unlisted
        });
        listed.cloned().collect()
    }
}
