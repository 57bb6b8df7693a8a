//! Which upstream answers for which model.

use std::{collections::HashMap, sync::Arc, time::Instant};

use rand::RngExt as _;

mod circuit;
mod deployment;

pub use circuit::State;
pub use deployment::{Asking, Counts, Deployment, Record};

use crate::{
    base::fast_map::FastMap,
    config::{self, Choice, Config},
    upstream::{Provider, Simulator},
};

/// Every model's upstreams, worked out once.
pub struct Deployments {
    by_model: FastMap<String, Vec<Arc<Deployment>>>,
    /// In the order of the configuration, each once.
    records: Vec<Listed>,
    choice: Choice,
}

/// A deployment as it stands in the configuration.
pub struct Listed {
    pub model: String,
    pub provider: Arc<str>,
    pub upstream_model: Option<String>,
    pub weight: u32,
    pub priority: u32,
    record: Arc<Record>,
}

impl Listed {
    pub fn counts(&self) -> Counts {
        self.record.look()
    }

    fn is(&self, written: &config::Deployment) -> bool {
        (&*self.provider, &self.model) == (written.provider.as_str(), &written.model)
            && self.upstream_model == written.upstream_model
    }
}

impl Deployments {
    /// `before` are those that these take the place of: what was learned about them is kept.
    pub fn new(config: &Config, before: Option<&Self>) -> Result<Self, String> {
        let providers = providers(config)?;
        let known = |written: &config::Deployment| {
            let mut records = before.into_iter().flat_map(|before| &before.records);
            let same = records.find(|listed| listed.is(written));
            same.map(|listed| listed.record.clone()).unwrap_or_default()
        };
        let records: Vec<_> = config
            .deployments
            .iter()
            .map(|written| Listed {
                model: written.model.clone(),
                provider: written.provider.as_str().into(),
                upstream_model: written.upstream_model.clone(),
                weight: written.weight,
                priority: written.priority,
                record: known(written),
            })
            .collect();
        let own = own_providers(config)?;
        let models = config.catalog.models().filter(|model| !model.is_hybrid());
        let by_model = models.map(|model| {
            let listed = || config.deployments.iter().zip(&records).zip(&own);
            let serving = |id: &str| -> Vec<Arc<Deployment>> {
                let serving = listed().filter(|((written, _), _)| written.model == id);
                let made = serving.filter_map(|((written, listed), own)| {
                    let shared = || providers.get(&written.provider).cloned();
                    let name = written.upstream_model.as_deref();
                    Some(Arc::new(Deployment {
                        name: listed.provider.clone(),
                        provider: own.clone().or_else(shared)?,
                        upstream_model: name.unwrap_or(&model.id).into(),
                        weight: written.weight,
                        priority: written.priority,
                        longest: config.longest_call(written),
                        cost: written.cost.clone(),
                        record: listed.record.clone(),
                    }))
                });
                made.collect()
            };
            let mut deployments = serving(&model.id);
            if deployments.is_empty() {
                deployments = serving("*");
            }
            (model.id.clone(), deployments)
        });
        Ok(Self {
            by_model: by_model.collect(),
            records,
            choice: config.routing.choice,
        })
    }

    pub fn listed(&self) -> &[Listed] {
        &self.records
    }

    /// How many upstreams a model has.
    pub fn count(&self, model: &str) -> usize {
        self.by_model.get(model).map_or(0, Vec::len)
    }

    /// Whether some upstream of a model would be asked now, others being there.
    pub fn is_healthy(&self, model: &str, now: Instant) -> bool {
        let deployments = self.by_model.get(model).into_iter().flatten();
        deployments
            .into_iter()
            .any(|one| one.record.is_inviting(now))
    }

    /// The upstream to ask next, of those that were not tried: of the lowest priority number, one
    /// that is not left alone, each as often as its weight says. Where all are left alone, the one
    /// that is soonest over it: being asked too often is better than nobody being asked.
    pub fn pick(&self, model: &str, tried: &[Arc<Record>]) -> Option<Asking> {
        let now = Instant::now();
        let untried = |deployment: &&Arc<Deployment>| {
            let mut tried = tried.iter();
            !tried.any(|record| Arc::ptr_eq(record, &deployment.record))
        };
        let all = self.by_model.get(model)?;
        // Most have one, and there is nothing to choose.
        if let [only] = all.as_slice() {
            return untried(&only).then(|| Asking::begin(only.clone(), now));
        }
        let all: Vec<&Arc<Deployment>> = all.iter().filter(untried).collect();
        let inviting = all.iter().filter(|one| one.record.is_inviting(now));
        let first = inviting.clone().map(|one| one.priority).min();
        let inviting: Vec<_> = inviting
            .copied()
            .filter(|one| Some(one.priority) == first)
            .collect();
        let picked = match (inviting.as_slice(), self.choice) {
            ([], _) => all.into_iter().min_by_key(|one| one.record.rests_until())?,
            ([only], _) => only,
            (several, Choice::Weight) => drawn(several),
            (several, Choice::Latency) => {
                let (one, other) = (drawn(several), drawn(several));
                // One that was never asked is worth asking.
                let slow = |one: &Arc<Deployment>| one.record.first_byte().unwrap_or(0.0);
                if slow(one) <= slow(other) { one } else { other }
            }
        };
        Some(Asking::begin(picked.clone(), now))
    }
}

/// One of these, each as often as its weight says.
fn drawn<'a>(deployments: &[&'a Arc<Deployment>]) -> &'a Arc<Deployment> {
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

/// The providers of a configuration, ready to be asked.
pub fn providers(config: &Config) -> Result<HashMap<String, Arc<Provider>>, String> {
    let make = |(name, written): (&String, &config::Provider)| {
        let provider = match written {
            config::Provider::Simulator => Provider::Simulator(Simulator),
            config::Provider::Remote(remote) => {
                Provider::remote(remote).map_err(|error| format!("provider `{name}`: {error}"))?
            }
        };
        Ok((name.clone(), Arc::new(provider)))
    };
    config.providers.iter().map(make).collect()
}

/// For each deployment with timeouts of its own, a provider that keeps to them.
fn own_providers(config: &Config) -> Result<Vec<Option<Arc<Provider>>>, String> {
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
                let made = Provider::remote(&remote);
                let made = made.map_err(|error| format!("provider `{name}`: {error}"))?;
                Ok(Some(Arc::new(made)))
            }
            _ => Ok(None),
        }
    });
    own.collect()
}
