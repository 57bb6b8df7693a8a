//! What every request shares: built once at the start, read by all.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio_util::task::TaskTracker;

use crate::{
    backoffice::{Backoffice, mail::Mail, oidc::Issuer, payments::Payments},
    base::{keys::Secret, money::NanoUsd, rate::Ceilings},
    catalog::{Catalog, Model, Plan},
    config::{Config, Routing},
    conversations::Conversations,
    gateway::{metrics::Metrics, traffic::Traffic},
    ledger::{Ledger, spool::Spool},
    limits::Limiter,
    net::shutdown::Shutdown,
    routing::{Knowledge, Sessions},
    tools::Toolbox,
    upstream::Deployments,
};

mod abandoned;
pub mod actions;
pub mod alerts;
mod emails;
mod hybrids;
pub mod metrics;
mod portal;
mod tally;
mod tasks;
pub mod traffic;

pub use abandoned::{AbandonedCall, AbandonedCalls};
pub use alerts::Alerts;
pub use hybrids::task;
pub use portal::Portal;
pub use tally::{Chose, Tallied, Tally};
pub use tasks::Tasks;

pub struct Gateway {
    /// Models and who serves them: replaced as a whole when the configuration is read anew.
    routes: ArcSwap<Routes>,
    pub ledger: Arc<Ledger>,
    /// Charges that wait until the ledger can be written.
    pub spool: Arc<Spool>,
    /// Responses that callers may go on from.
    pub conversations: Conversations,
    /// People who sign in to the portal, their sessions, and what operators did.
    pub backoffice: Backoffice,
    pub operator_token: Secret,
    pub links: Links,
    pub portal: Portal,
    /// Who else vouches for people that sign in.
    pub oidc: Option<Issuer>,
    /// Where letters can be sent.
    pub mail: Option<Mail>,
    /// Who takes money for credit, where somebody does.
    pub payments: Option<Payments>,
    pub alerts: Alerts,
    pub max_body_bytes: usize,
    pub limiter: Arc<Limiter>,
    pub metrics: Metrics,
    /// The last minutes, second by second.
    pub traffic: Traffic,
    /// Conversations that hybrids remember.
    pub sessions: Sessions,
    /// What hybrids have chosen.
    pub tally: Tally,
    /// The ceilings of whatever has none of its own.
    pub ceilings: Ceilings,
    /// How far an account may go below zero by calls that cost more than they held.
    pub max_overdraft: NanoUsd,
    /// Calls whose clients have left, which are read to their end.
    pub abandoned: Arc<AbandonedCalls>,
    /// Calls, above all: work that must end before the process does.
    pub tasks: Tasks,
    /// What runs as long as the gateway does.
    pub background: TaskTracker,
    pub shutdown: Shutdown,
}

/// What outlives the process.
pub struct Stores {
    pub ledger: Arc<Ledger>,
    pub spool: Spool,
    pub limiter: Arc<Limiter>,
    pub conversations: Conversations,
    pub backoffice: Backoffice,
}

/// What can change while the gateway runs.
pub struct Routes {
    pub catalog: Catalog,
    pub deployments: Deployments,
    pub routing: Routing,
    /// What hybrids go by.
    pub knowledge: Knowledge,
    /// The tools that the gateway runs, unless the operator has turned them off.
    pub toolbox: Option<Arc<Toolbox>>,
}

impl Routes {
    /// `before` is what these take the place of.
    pub fn new(config: Config, before: Option<&Self>) -> Result<Self, String> {
        let before = before.map(|before| &before.deployments);
        let tools = &config.tools;
        let toolbox = tools.enabled.then(|| Toolbox::new(tools)).transpose()?;
        let unserved = config.unserved_models();
        if !unserved.is_empty() {
            let models = unserved.join(", ");
            tracing::warn!(
                models,
                "models without a deployment are not listed and answer 404"
            );
        }
        Ok(Self {
            toolbox: toolbox.map(Arc::new),
            deployments: Deployments::new(&config, before)?,
            routing: config.routing,
            knowledge: Knowledge::new(&config.catalog, config.weights.map(|own| own.scorer)),
            catalog: config.catalog,
        })
    }
}

/// Where errors send people.
pub struct Links {
    pub billing: String,
    pub upgrade: String,
}

impl Gateway {
    /// `origin` is where callers reach the public listener.
    pub fn new(config: Config, stores: Stores, origin: &str) -> Result<Self, String> {
        let origin = config.server.public_url.as_deref().unwrap_or(origin);
        Ok(Self {
            conversations: stores.conversations,
            backoffice: stores.backoffice,
            metrics: Metrics::new(stores.ledger.health(), stores.limiter.clock_jumps()),
            traffic: Traffic::default(),
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
            limiter: stores.limiter,
            ceilings: config.limits,
            max_overdraft: config.max_overdraft,
            abandoned: Arc::new(AbandonedCalls::new(config.max_abandoned)),
            routes: ArcSwap::from_pointee(Routes::new(config, None)?),
            tasks: Tasks::default(),
            background: TaskTracker::new(),
            shutdown: Shutdown::default(),
        })
    }

    /// As they are now. Whoever has them keeps them: a call that is running goes on as it began.
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// The same for a look: to have them for longer, all threads count in one place.
    pub fn routes_now(&self) -> Guard<Arc<Routes>> {
        self.routes.load()
    }

    pub fn replace_routes(&self, routes: Routes) {
        self.routes.store(Arc::new(routes));
    }

    /// The model, unless an administrator has disabled it (SPEC §3.3).
    fn callable<'a>(&self, catalog: &'a Catalog, id: &str) -> Option<&'a Arc<Model>> {
        let model = catalog.find(id)?;
        let enabled = self.ledger.model_settings(&model.id).enabled;
        enabled.then_some(model)
    }

    /// The model that answers to an ID, if it can be called by some plan.
    pub fn model(&self, routes: &Routes, id: &str) -> Option<Arc<Model>> {
        let model = self.callable(&routes.catalog, id)?;
        let serves = self.is_served(routes, model, Plan::ALL);
        serves.then(|| model.clone())
    }

    /// Whether some deployment serves the model; for a hybrid, one of the targets that a plan includes.
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

    /// The models that a plan can call now (SPEC §4.4), without superseded ones (§9).
    pub fn visible_models(&self, plan: Plan) -> Vec<Arc<Model>> {
        let routes = self.routes();
        let mut models = self.listed_models(&routes, plan);
        models.retain(|model| self.is_served(&routes, model, plan));
        models
    }

    /// The models of a plan, whether or not a deployment serves them.
    pub fn published_models(&self, plan: Plan) -> Vec<Arc<Model>> {
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
