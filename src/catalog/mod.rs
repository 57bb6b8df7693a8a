//! The catalog: the models on offer with their prices, tiers, parameters and hybrid routers.
//!
//! A catalog is read from `catalog.toml`, from a file of the operator, or from both. A text with mistakes yields no
//! catalog but the list of all its mistakes, each with its line. Reading has no other effect.
//!
//! This room may use `base` alone, the only room below it in `src/lib.rs`.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

mod aliases;
pub(crate) mod list_prices;
mod model;
mod parameter;
mod plan;
mod prices;
mod read;
mod router;

pub(crate) use aliases::Aliases;
pub use model::Model;
pub(crate) use parameter::Parameter;
pub(crate) use plan::Plan;
pub use plan::{Tier, Track};
pub(crate) use prices::{Above, Billable, Line, Prices, Rates, TokenKind};
pub use router::{Cost, DOMAINS, Router};
pub(crate) use router::{Semantic, SemanticRoute, Tiered, Turn};

use crate::base::{
    checked_toml::{Mistake, Node},
    fast_map::FastMap,
};

/// Text of the built-in catalog.
pub(crate) const BUILT_IN: &str = include_str!("catalog.toml");

/// The IDs of the built-in catalog.
static BUILT_IN_IDS: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let catalog = Catalog::built_in();
    let ids = catalog.models().map(|model| model.id.clone());
    ids.collect()
});

pub(crate) fn is_built_in(id: &str) -> bool {
    BUILT_IN_IDS.contains(id)
}

#[derive(Debug)]
pub struct Catalog {
    /// In catalog order, which is the order of lists.
    models: Vec<Arc<Model>>,
    by_id: FastMap<String, Arc<Model>>,
    aliases: Aliases,
    identity_prompt: String,
    /// Values of settings that a model does not set.
    defaults: Model,
}

impl Catalog {
    /// The built-in catalog of seventeen models.
    pub fn built_in() -> Self {
        Self::parse(BUILT_IN).expect("the built-in catalog is checked by the tests")
    }

    /// Parses a catalog that does not extend another one.
    pub(crate) fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        read::parse(text, None)
    }

    /// Parses a catalog that extends this one: a model with a known ID replaces that model whole, others are appended.
    pub fn extended_by(&self, text: &str) -> Result<Self, Vec<Mistake>> {
        read::parse(text, Some(self))
    }

    /// Reads a catalog from a parsed document; with `base`, one that extends it.
    pub(crate) fn read(document: Node, base: Option<&Self>) -> Result<Self, Vec<Mistake>> {
        read::read(document, base, &BTreeSet::new())
    }

    /// Like [`Self::extended_by`], from a parsed document and without the removed models.
    pub(crate) fn changed_by(
        &self,
        document: Node,
        removed: &BTreeSet<String>,
    ) -> Result<Self, Vec<Mistake>> {
        read::read(document, Some(self), removed)
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
            aliases: Aliases::default(),
            identity_prompt,
            defaults,
        }
    }

    pub fn find(&self, id: &str) -> Option<&Arc<Model>> {
        self.by_id.get(id)
    }

    /// The model with this alias. A model's ID is no alias, even if a pattern matches it.
    pub(crate) fn find_alias(&self, name: &str) -> Option<&Arc<Model>> {
        let model = self.aliases.find(name)?;
        self.find(name).is_none().then_some(model)
    }

    /// The aliases that are no patterns, with their models.
    pub(crate) fn exact_aliases(&self) -> impl Iterator<Item = (&str, &Arc<Model>)> {
        let exact = self.aliases.exact();
        exact.filter(|(name, _)| self.find(name).is_none())
    }

    /// All aliases as they are written in the configuration, with their models.
    pub(crate) fn written_aliases(&self) -> impl Iterator<Item = (String, &Arc<Model>)> {
        self.aliases.as_written()
    }

    #[must_use]
    pub(crate) fn with_aliases(self, aliases: Aliases) -> Self {
        Self { aliases, ..self }
    }

    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.iter()
    }

    /// The gateway's system prompt that names `model`; `None` if the model is not configured to get one, or if the catalog
    /// has none.
    pub fn identity_prompt(&self, model: &Model) -> Option<String> {
        let has_one = model.identity_prompt && !self.identity_prompt.is_empty();
        has_one.then(|| self.identity_prompt.replace("{name}", &model.name))
    }
}
