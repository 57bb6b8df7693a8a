//! What every request shares: built once at the start, read by all.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    auth::Secret,
    catalog::{Catalog, Model, Plan},
    chat::Route,
    config::Config,
    ledger::Ledger,
    limits::{Ceilings, Limiter},
    metrics::Metrics,
    money::NanoUsd,
    routing::{self, Deployments},
};

const MAX_DRAINS: usize = 1_000;

pub struct Gateway {
    pub catalog: Catalog,
    pub ledger: Arc<Ledger>,
    pub deployments: Deployments,
    pub operator_token: Secret,
    pub links: Links,
    pub max_body_bytes: usize,
    pub limiter: Arc<Limiter>,
    pub metrics: Metrics,
    /// The ceilings of whatever has none of its own.
    pub ceilings: Ceilings,
    /// How far an account may go below zero by calls that cost more than they held.
    pub max_overdraft: NanoUsd,
    /// How many answers may be read on after their clients have left.
    pub drains: Semaphore,
    /// Calls: work that must end before the process does.
    pub tasks: TaskTracker,
    /// What runs as long as the gateway does.
    pub background: TaskTracker,
    pub shutdown: Shutdown,
}

/// Where errors send people.
pub struct Links {
    pub billing: String,
    pub upgrade: String,
}

/// A request to stop, in two stages: no new work, then no more patience.
#[derive(Clone, Default)]
pub struct Shutdown {
    requested: CancellationToken,
    deadline: CancellationToken,
}

impl Shutdown {
    pub fn request(&self) {
        self.requested.cancel();
    }

    pub fn end_patience(&self) {
        self.deadline.cancel();
    }

    pub fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    pub async fn requested(&self) {
        self.requested.cancelled().await;
    }

    pub async fn deadline(&self) {
        self.deadline.cancelled().await;
    }
}

impl Gateway {
    /// `origin` is where callers reach the public listener.
    pub fn new(
        config: Config,
        ledger: Ledger,
        limiter: Limiter,
        origin: &str,
    ) -> Result<Self, String> {
        let providers = routing::providers(&config)?;
        let deployments = Deployments::new(&config, &providers);
        let origin = config.server.public_url.as_deref().unwrap_or(origin);
        Ok(Self {
            deployments,
            metrics: Metrics::new(ledger.health()),
            ledger: Arc::new(ledger),
            operator_token: config.operator.token,
            links: Links {
                billing: format!("{origin}/portal/billing"),
                upgrade: format!("{origin}/portal/plan"),
            },
            max_body_bytes: config.server.max_body_bytes,
            catalog: config.catalog,
            limiter: Arc::new(limiter),
            ceilings: config.limits,
            max_overdraft: config.max_overdraft,
            drains: Semaphore::new(MAX_DRAINS),
            tasks: TaskTracker::new(),
            background: TaskTracker::new(),
            shutdown: Shutdown::default(),
        })
    }

    /// The model, unless an administrator has disabled it (SPEC §3.3).
    fn callable_model(&self, id: &str) -> Option<&Arc<Model>> {
        self.catalog
            .find(id)
            .filter(|model| self.ledger.model_settings(&model.id).enabled)
    }

    /// Who answers for a model ID: the model itself, or a hybrid's first target in service.
    pub fn route(&self, id: &str) -> Option<Route> {
        let requested = self.callable_model(id)?;
        let mut targets = requested.targets.iter();
        let target = if requested.is_hybrid() {
            targets.find_map(|id| self.callable_model(id))?
        } else {
            requested
        };
        Some(Route {
            requested: requested.clone(),
            target: target.clone(),
        })
    }

    /// The models a plan can see: callable, included, and not superseded (SPEC §4.4, §9).
    pub fn visible_models(&self, plan: Plan) -> impl Iterator<Item = &Arc<Model>> {
        self.catalog.models().filter(move |model| {
            let settings = self.ledger.model_settings(&model.id);
            let unlisted = settings.unlisted.unwrap_or(model.unlisted);
            plan.includes(model.min_tier) && settings.enabled && !unlisted
        })
    }
}
