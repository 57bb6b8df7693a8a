//! What the routers need besides the request: the scorer, and the embeddings of the operator's examples.

use std::{collections::HashMap, sync::Arc};

use super::scorer::{Embedding, Scorer};
use crate::catalog::{Catalog, Router};

/// Computed once per catalog and weights.
pub(crate) struct Knowledge {
    /// The scorer with the weights of the configuration, if it has any.
    own: Option<Arc<Scorer>>,
    /// For each semantic hybrid, the examples of its routes, in the order of the routes.
    examples: HashMap<String, Vec<Vec<Embedding>>>,
}

impl Knowledge {
    pub(crate) fn new(catalog: &Catalog, own: Option<Arc<Scorer>>) -> Self {
        let mut known = Self {
            own,
            examples: HashMap::new(),
        };
        // Loads the built-in weights now, so that the first request does not wait for it.
        let scorer = known.scorer();
        let mut examples = HashMap::new();
        for hybrid in catalog.models() {
            if let Some(Router::Semantic(settings)) = &hybrid.router {
                let routes = settings.routes.iter();
                let read = |text: &String| scorer.embedding(text);
                let routes = routes.map(|route| route.exemplars.iter().map(read).collect());
                examples.insert(hybrid.id.clone(), routes.collect());
            }
        }
        known.examples = examples;
        known
    }

    /// The scorer: that of the configuration, otherwise the built-in one.
    pub(crate) fn scorer(&self) -> &Scorer {
        self.own.as_deref().unwrap_or_else(|| Scorer::embedded())
    }

    /// The examples of each route of a hybrid.
    pub(crate) fn examples(&self, hybrid: &str) -> &[Vec<Embedding>] {
        self.examples.get(hybrid).map_or(&[], Vec::as_slice)
    }
}
