//! What routers go by beside the request: the scorer, and the operator's examples as it reads them.

use std::{collections::HashMap, sync::Arc};

use super::scorer::{Meaning, Scorer};
use crate::catalog::{Catalog, Router};

/// Worked out once for a catalog and its weights.
pub struct Knowledge {
    /// Where the configuration has weights of its own.
    own: Option<Arc<Scorer>>,
    /// For each hybrid that has routes: the examples of each, in order.
    examples: HashMap<String, Vec<Vec<Meaning>>>,
}

impl Knowledge {
    pub fn new(catalog: &Catalog, own: Option<Arc<Scorer>>) -> Self {
        let mut known = Self {
            own,
            examples: HashMap::new(),
        };
        // The built-in weights are unpacked here, and not while the first request waits.
        let scorer = known.scorer();
        let mut examples = HashMap::new();
        for hybrid in catalog.models() {
            if let Some(Router::Semantic(settings)) = &hybrid.router {
                let routes = settings.routes.iter();
                let read = |text: &String| scorer.meaning(text);
                let routes = routes.map(|route| route.exemplars.iter().map(read).collect());
                examples.insert(hybrid.id.clone(), routes.collect());
            }
        }
        known.examples = examples;
        known
    }

    /// What is expected of targets, and what a text is about.
    pub fn scorer(&self) -> &Scorer {
        self.own.as_deref().unwrap_or_else(|| Scorer::embedded())
    }

    /// The examples of each of a hybrid's routes.
    pub fn examples(&self, hybrid: &str) -> &[Vec<Meaning>] {
        self.examples.get(hybrid).map_or(&[], Vec::as_slice)
    }
}
