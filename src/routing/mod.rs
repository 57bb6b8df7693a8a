//! Which upstream answers for which model.

use std::{collections::HashMap, sync::Arc};

use rand::RngExt as _;

use crate::{
    config::{self, Config},
    upstream::{Provider, Simulator},
};

/// One upstream that serves a model.
#[derive(Clone)]
pub struct Deployment {
    /// The provider's name in the configuration, for logs.
    pub name: Arc<str>,
    pub provider: Arc<Provider>,
    pub upstream_model: Arc<str>,
    weight: u32,
}

/// Every model's upstreams, worked out once: those asked first, with their weights.
pub struct Deployments {
    by_model: HashMap<String, Vec<Deployment>>,
}

impl Deployments {
    pub fn new(config: &Config, providers: &HashMap<String, Arc<Provider>>) -> Self {
        let models = config.catalog.models().filter(|model| !model.is_hybrid());
        let by_model = models
            .map(|model| {
                let serving = |id: &str| -> Vec<_> {
                    config
                        .deployments
                        .iter()
                        .filter(|deployment| deployment.model == id)
                        .collect()
                };
                let mut serving_this = serving(&model.id);
                if serving_this.is_empty() {
                    serving_this = serving("*");
                }
                let first = serving_this
                    .iter()
                    .map(|deployment| deployment.priority)
                    .min();
                serving_this.retain(|deployment| Some(deployment.priority) == first);
                let deployments = serving_this
                    .into_iter()
                    .filter_map(|written| deployment(written, &model.id, providers))
                    .collect();
                (model.id.clone(), deployments)
            })
            .collect();
        Self { by_model }
    }

    /// One of the model's upstreams, each as often as its weight says.
    pub fn pick(&self, model: &str) -> Option<Deployment> {
        let deployments = self.by_model.get(model)?;
        if let [only] = deployments.as_slice() {
            return Some(only.clone());
        }
        let total: u32 = deployments.iter().map(|deployment| deployment.weight).sum();
        let mut ticket = rand::rng().random_range(0..total.max(1));
        let drawn = deployments.iter().find(|deployment| {
            let found = ticket < deployment.weight;
            ticket = ticket.saturating_sub(deployment.weight);
            found
        });
        drawn.cloned()
    }
}

fn deployment(
    written: &config::Deployment,
    model: &str,
    providers: &HashMap<String, Arc<Provider>>,
) -> Option<Deployment> {
    Some(Deployment {
        name: written.provider.as_str().into(),
        provider: providers.get(&written.provider)?.clone(),
        upstream_model: written.upstream_model.as_deref().unwrap_or(model).into(),
        weight: written.weight,
    })
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
