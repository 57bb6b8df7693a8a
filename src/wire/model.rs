//! The model object of `/v1/models` (§2.7), and the list of them.

use std::sync::Arc;

use serde::Serialize;

use super::Pricing;
use crate::catalog::Model;

#[derive(Serialize)]
pub(crate) struct ModelObject<'a> {
    id: &'a str,
    object: &'static str,
    name: &'a str,
    created: i64,
    owned_by: &'static str,
    description: &'a str,
    pricing: Pricing,
    context_length: u32,
    max_output_length: u32,
    input_modalities: &'a [String],
    output_modalities: &'a [String],
    quantization: &'a str,
    architecture: Architecture<'a>,
    top_provider: TopProvider,
    supported_sampling_parameters: Vec<&'static str>,
    supported_features: &'a [String],
    /// The model's ID, if `id` is an alias of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    alias_of: Option<&'a str>,
}

#[derive(Serialize)]
struct Architecture<'a> {
    tokenizer: &'a str,
    instruct_type: &'a str,
}

#[derive(Serialize)]
struct TopProvider {
    is_moderated: bool,
}

#[derive(Serialize)]
pub(crate) struct ModelList<'a> {
    object: &'static str,
    data: Vec<ModelObject<'a>>,
}

impl<'a> ModelList<'a> {
    pub(crate) fn new(
        models: impl Iterator<Item = &'a Arc<Model>>,
        aliases: impl Iterator<Item = &'a (String, Arc<Model>)>,
    ) -> Self {
        let models = models.map(|model| ModelObject::new(model));
        let aliases = aliases.map(|(alias, model)| ModelObject::aliased(alias, model));
        Self {
            object: "list",
            data: models.chain(aliases).collect(),
        }
    }
}

impl<'a> ModelObject<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        Self {
            id: &model.id,
            object: "model",
            name: &model.name,
            created: model.created,
            owned_by: "tollgate",
            description: &model.description,
            pricing: (&*model.prices).into(),
            context_length: model.context_length,
            max_output_length: model.max_output,
            input_modalities: &model.input_modalities,
            output_modalities: &model.output_modalities,
            quantization: &model.quantization,
            architecture: Architecture {
                tokenizer: &model.tokenizer,
                instruct_type: &model.instruct_type,
            },
            top_provider: TopProvider {
                is_moderated: model.is_moderated,
            },
            supported_sampling_parameters: model
                .supported_parameters()
                .map(crate::catalog::Parameter::as_str)
                .collect(),
            supported_features: &model.features,
            alias_of: None,
        }
    }

    /// The model under an alias.
    pub(crate) fn aliased(alias: &'a str, model: &'a Model) -> Self {
        Self {
            id: alias,
            alias_of: Some(&model.id),
            ..Self::new(model)
        }
    }
}
