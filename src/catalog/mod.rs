//! The models, their prices and rules: `catalog.toml` and the questions one may ask of it.

use std::sync::Arc;

mod model;
mod parameter;
mod plan;
mod prices;
mod read;
mod router;

pub use model::Model;
pub use parameter::Parameter;
pub use plan::{Plan, Tier, Track};
pub use prices::{Above, Billable, Line, Prices, Rates, TokenKind};
pub use router::{Cost, DOMAINS, Router, Semantic, SemanticRoute, Tiered, Turn};

use crate::base::{checked_toml::Mistake, fast_map::FastMap};

/// The catalog that is part of the program.
pub const BUILT_IN: &str = include_str!("catalog.toml");

#[derive(Debug)]
pub struct Catalog {
    /// In the order in which they are listed.
    models: Vec<Arc<Model>>,
    by_id: FastMap<String, Arc<Model>>,
    identity_prompt: String,
    /// What a model that does not say is taken to be.
    defaults: Model,
}

impl Catalog {
    /// The seventeen models that come with the program.
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("the built-in catalog is checked by the tests")
    }

    /// A catalog file that stands alone.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        read::parse(text, None)
    }

    /// A catalog file on top of this one: a model with a known ID replaces it, others are added.
    pub fn extended_by(&self, text: &str) -> Result<Self, Vec<Mistake>> {
        read::parse(text, Some(self))
    }

    fn new(models: Vec<Model>, identity_prompt: String, defaults: Model) -> Self {
        let models: Vec<_> = models.into_iter().map(Arc::new).collect();
        let by_id = models
            .iter()
            .map(|model| (model.id.clone(), model.clone()))
            .collect();
        Self {
            models,
            by_id,
            identity_prompt,
            defaults,
        }
    }

    pub fn find(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id)
    }

    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter()
    }

    /// What the gateway tells `model` about itself, where the model is to be told.
    pub fn identity_prompt(&self, model: &Model) -> Option<String> {
        model
            .identity_prompt
            .then(|| self.identity_prompt.replace("{name}", &model.name))
    }
}
