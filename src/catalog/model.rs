//! One model of the catalog.

use std::sync::Arc;

use super::{Parameter, Prices, Router, Tier};

#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a record of a catalog entry, not a state machine"
)]
pub struct Model {
    pub id: String,
    pub name: String,
    pub description: String,
    /// Unix time in seconds.
    pub created: i64,
    pub prices: Arc<Prices>,
    pub context_length: u32,
    pub max_output: u32,
    /// Smallest output budget that the provider accepts; also the budget if the caller sets none.
    pub min_output: Option<u32>,
    pub features: Vec<String>,
    pub input_modalities: Vec<String>,
    pub output_modalities: Vec<String>,
    pub quantization: String,
    pub tokenizer: String,
    pub instruct_type: String,
    pub is_moderated: bool,
    pub min_tier: Tier,
    /// Whether the gateway offers the model its built-in tools.
    pub builtin_tools: bool,
    /// Whether the gateway's identity prompt goes before the caller's system prompt.
    pub identity_prompt: bool,
    /// Most tool definitions in one request.
    pub max_tools: usize,
    /// Callable, but in no list (§9). The operator API can change it while the gateway runs.
    pub unlisted: bool,
    /// The models a hybrid chooses from; empty for every other model.
    pub targets: Vec<String>,
    /// How a hybrid chooses among its targets; `None` for every other model.
    pub router: Option<Router>,
    /// From 1 (weakest) to 4: which of the scorer's four quality predictions applies to this model.
    pub quality_tier: u8,
    /// Parameters that are removed from requests, because the provider does not support them.
    pub(super) drops: Vec<Parameter>,
}

impl Model {
    pub(crate) fn drops(&self, parameter: Parameter) -> bool {
        self.drops.contains(&parameter)
    }

    pub(crate) fn supported_parameters(&self) -> impl Iterator<Item = Parameter> {
        Parameter::ALL
            .into_iter()
            .filter(|parameter| !self.drops(*parameter))
    }

    pub(crate) fn has_feature(&self, feature: &str) -> bool {
        self.features.iter().any(|listed| listed == feature)
    }

    pub(crate) fn is_hybrid(&self) -> bool {
        !self.targets.is_empty()
    }
}
