//! The deployments of each model, and the choice of one for each attempt.

use std::{collections::HashMap, sync::Arc, time::Instant};

use rand::RngExt as _;

mod circuit;
mod deployment;
mod vendor;

pub(crate) use circuit::CircuitState;
pub(crate) use deployment::{Counts, Deployment, Record, RunningAttempt};
use vendor::vendor;

use crate::{
    base::fast_map::FastMap,
    config::{self, Choice, Config},
    net::offload::Offload,
    upstream::{Provider, Simulator},
};

/// The deployments of every catalog model, made once from the configuration.
pub(crate) struct Deployments {
    by_model: FastMap<String, Vec<Arc<Deployment>>>,
    /// Each deployment once, in the order of the configuration.
    configured: Vec<ConfiguredDeployment>,
    choice: Choice,
}

/// A deployment as the configuration lists it: its model may be `*`.
pub(crate) struct ConfiguredDeployment {
    pub model: String,
    pub provider: Arc<str>,
    pub upstream_model: Option<String>,
    pub weight: u32,
    pub priority: u32,
    record: Arc<Record>,
}

impl ConfiguredDeployment {
    pub(crate) fn counts(&self) -> Counts {
        self.record.snapshot()
    }

    /// Whether a configuration entry is this deployment: provider, model and upstream model are equal.
    fn matches(&self, entry: &config::Deployment) -> bool {
        (&*self.provider, &self.model) == (entry.provider.as_str(), &entry.model)
            && self.upstream_model == entry.upstream_model
    }
}

impl Deployments {
    /// Makes the deployments of a configuration. Those that `before` has too keep their circuit breaker and counters.
    pub(crate) fn new(
        config: &Config,
        before: Option<&Self>,
        offload: &Offload,
    ) -> Result<Self, String> {
        let providers = providers(config, offload)?;
        let previous_record = |entry: &config::Deployment| {
            let mut configured = before.into_iter().flat_map(|before| &before.configured);
            let found = configured.find(|listed| listed.matches(entry));
            found
                .map(|listed| listed.record.clone())
                .unwrap_or_default()
        };
        let configured: Vec<_> = config
            .deployments
            .iter()
            .map(|entry| ConfiguredDeployment {
                model: entry.model.clone(),
                provider: entry.provider.as_str().into(),
                upstream_model: entry.upstream_model.clone(),
                weight: entry.weight,
                priority: entry.priority,
                record: previous_record(entry),
            })
            .collect();
        let named = |(name, provider): (&String, &config::Provider)| {
            (name.clone(), Arc::from(vendor(name, provider)))
        };
        let vendors: HashMap<String, Arc<str>> = config.providers.iter().map(named).collect();
        let own_providers = providers_with_own_timeouts(config, offload)?;
        let models = config.catalog.models().filter(|model| !model.is_hybrid());
        let by_model = models.map(|model| {
            let entries = || {
                config
                    .deployments
                    .iter()
                    .zip(&configured)
                    .zip(&own_providers)
            };
            let deployments_of = |id: &str| -> Vec<Arc<Deployment>> {
                let entries = entries().filter(|((entry, _), _)| entry.model == id);
                let deployments = entries.filter_map(|((entry, listed), own)| {
                    let shared = || providers.get(&entry.provider).cloned();
                    let name = entry.upstream_model.as_deref();
                    Some(Arc::new(Deployment {
                        name: listed.provider.clone(),
                        vendor: vendors.get(&entry.provider)?.clone(),
                        provider: own.clone().or_else(shared)?,
                        upstream_model: name.unwrap_or(&model.id).into(),
                        weight: entry.weight,
                        priority: entry.priority,
                        total_timeout: config.longest_call(entry),
                        cost: entry.cost.clone(),
                        record: listed.record.clone(),
                    }))
                });
                deployments.collect()
            };
            let mut deployments = deployments_of(&model.id);
            if deployments.is_empty() {
                deployments = deployments_of("*");
            }
            (model.id.clone(), deployments)
        });
        Ok(Self {
            by_model: by_model.collect(),
            configured,
            choice: config.routing.choice,
        })
    }

    /// All deployments, in the order of the configuration.
    pub(crate) fn configured(&self) -> &[ConfiguredDeployment] {
        &self.configured
    }

    /// The number of deployments of a model.
    pub(crate) fn count(&self, model: &str) -> usize {
        self.by_model.get(model).map_or(0, Vec::len)
    }

    /// Whether some deployment of a model speaks the Messages API, and can get requests of it as they are.
    pub(crate) fn takes_native(&self, model: &str) -> bool {
        let mut deployments = self.by_model.get(model).into_iter().flatten();
        deployments.any(|one| one.provider.is_native())
    }

    /// The first deployment of a model that speaks the Messages API and whose circuit allows an attempt.
    pub(crate) fn first_native(&self, model: &str) -> Option<Arc<Deployment>> {
        let now = Instant::now();
        let mut deployments = self.by_model.get(model)?.iter();
        let found =
            deployments.find(|one| one.provider.is_native() && one.record.allows_attempt(now));
        found.cloned()
    }

    /// The deployments of a model that do not speak the Messages API.
    pub(crate) fn not_native(&self, model: &str) -> impl Iterator<Item = &Arc<Record>> {
        let deployments = self.by_model.get(model).into_iter().flatten();
        let others = deployments.filter(|one| !one.provider.is_native());
        others.map(|one| &one.record)
    }

    /// Whether the circuit of some deployment of a model allows an attempt now.
    pub(crate) fn is_healthy(&self, model: &str, now: Instant) -> bool {
        let deployments = self.by_model.get(model).into_iter().flatten();
        deployments
            .into_iter()
            .any(|one| one.record.allows_attempt(now))
    }

    /// Picks a deployment that was not tried, and starts an attempt with it; `None` if all were tried.
    ///
    /// Of those whose circuit allows an attempt, it takes the lowest priority number, and among these picks at random
    /// by weight. With [`Choice::Latency`] it picks two and takes the one with the lower latency. If no circuit allows
    /// an attempt, it takes the deployment whose cooldown ends first: a request too many is better than a call that
    /// fails without an attempt.
    pub(crate) fn pick(&self, model: &str, tried: &[Arc<Record>]) -> Option<RunningAttempt> {
        let now = Instant::now();
        let untried = |deployment: &&Arc<Deployment>| {
            let mut tried = tried.iter();
            !tried.any(|record| Arc::ptr_eq(record, &deployment.record))
        };
        let all = self.by_model.get(model)?;
        // Most models have one deployment.
        if let [only] = all.as_slice() {
            return untried(&only).then(|| RunningAttempt::start(only.clone(), now));
        }
        let all: Vec<&Arc<Deployment>> = all.iter().filter(untried).collect();
        let available = all.iter().filter(|one| one.record.allows_attempt(now));
        let first = available.clone().map(|one| one.priority).min();
        let available: Vec<_> = available
            .copied()
            .filter(|one| Some(one.priority) == first)
            .collect();
        let picked = match (available.as_slice(), self.choice) {
            ([], _) => all.into_iter().min_by_key(|one| one.record.open_until())?,
            ([only], _) => only,
            (several, Choice::Weight) => weighted_pick(several),
            (several, Choice::Latency) => {
                let (one, other) = (weighted_pick(several), weighted_pick(several));
                // Without a measurement yet, it counts as fastest, so that it gets measured.
                let latency = |one: &Arc<Deployment>| one.record.first_byte().unwrap_or(0.0);
                if latency(one) <= latency(other) {
                    one
                } else {
                    other
                }
            }
        };
        Some(RunningAttempt::start(picked.clone(), now))
    }
}

/// Picks one at random, by weight.
fn weighted_pick<'a>(deployments: &[&'a Arc<Deployment>]) -> &'a Arc<Deployment> {
    let total: u32 = deployments.iter().map(|one| one.weight).sum();
    let mut ticket = rand::rng().random_range(0..total.max(1));
    for deployment in deployments {
        if ticket < deployment.weight {
            return deployment;
        }
        ticket -= deployment.weight;
    }
    deployments[0]
}

/// The adapters for the providers of a configuration, by name.
pub(crate) fn providers(
    config: &Config,
    offload: &Offload,
) -> Result<HashMap<String, Arc<Provider>>, String> {
    let make = |(name, entry): (&String, &config::Provider)| {
        let provider = match entry {
            config::Provider::Simulator => Provider::Simulator(Simulator),
            config::Provider::Remote(remote) => {
                let provider = Provider::remote(remote);
                let provider = provider.map_err(|error| format!("provider `{name}`: {error}"))?;
                provider.sharing(offload)
            }
        };
        Ok((name.clone(), Arc::new(provider)))
    };
    config.providers.iter().map(make).collect()
}

/// For each deployment with timeouts of its own, an adapter that uses them; `None` for the others.
fn providers_with_own_timeouts(
    config: &Config,
    offload: &Offload,
) -> Result<Vec<Option<Arc<Provider>>>, String> {
    let own = config.deployments.iter().map(|deployment| {
        let Some(timeouts) = deployment.timeouts else {
            return Ok(None);
        };
        match config.providers.get(&deployment.provider) {
            Some(config::Provider::Remote(remote)) => {
                let remote = config::RemoteProvider {
                    timeouts,
                    ..(**remote).clone()
                };
                let name = &deployment.provider;
                let provider = Provider::remote(&remote);
                let provider = provider.map_err(|error| format!("provider `{name}`: {error}"))?;
                Ok(Some(Arc::new(provider.sharing(offload))))
            }
            _ => Ok(None),
        }
    });
    own.collect()
}
