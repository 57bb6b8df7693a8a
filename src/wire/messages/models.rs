//! The list of models in the form of this API.

use serde::Serialize;

use super::blocks::wrong;
use crate::{base::timestamp, catalog::Model, wire::error::GatewayError};

/// How many models a page has, unless the caller says.
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 1_000;

#[derive(Serialize)]
pub(crate) struct ModelInfo<'a> {
    r#type: &'static str,
    id: &'a str,
    display_name: &'a str,
    created_at: String,
    lifecycle: &'static str,
    max_input_tokens: u32,
    max_tokens: u32,
}

#[derive(Serialize)]
pub(crate) struct ModelPage<'a> {
    data: Vec<ModelInfo<'a>>,
    has_more: bool,
    first_id: Option<&'a str>,
    last_id: Option<&'a str>,
}

impl<'a> ModelInfo<'a> {
    /// A model under its ID or an alias.
    pub(crate) fn new(id: &'a str, model: &'a Model) -> Self {
        Self {
            r#type: "model",
            id,
            display_name: &model.name,
            created_at: timestamp::shown(model.created),
            lifecycle: "active",
            max_input_tokens: model.context_length,
            max_tokens: model.max_output,
        }
    }
}

/// One page of the models with their names, by the query's `limit`, `after_id` and `before_id`.
pub(crate) fn page<'a>(
    models: &[(&'a str, &'a Model)],
    query: &[(String, String)],
) -> Result<ModelPage<'a>, GatewayError> {
    let value = |name: &str| {
        let found = query.iter().rev().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    };
    let limit = match value("limit") {
        None => DEFAULT_LIMIT,
        Some(limit) => {
            let limit = limit.parse().ok();
            limit
                .filter(|limit| (1..=MAX_LIMIT).contains(limit))
                .ok_or_else(|| wrong("limit", format!("it must be from 1 to {MAX_LIMIT}.")))?
        }
    };
    let position = |name: &str| {
        let id = value(name).map(|id| {
            let at = models.iter().position(|(name, _)| *name == id);
            at.ok_or_else(|| wrong(name, "there is no such model in the list."))
        });
        id.transpose()
    };
    let (from, to) = (position("after_id")?, position("before_id")?);
    let from = from.map_or(0, |at| at + 1);
    let to = to.unwrap_or(models.len()).max(from);
    // Backwards the page is the end of what comes before; forwards it is the beginning of what follows.
    let (range, has_more) = if value("before_id").is_some() && value("after_id").is_none() {
        let start = to.saturating_sub(limit).max(from);
        (start..to, start > from)
    } else {
        let end = (from + limit).min(to);
        (from..end, end < to)
    };
    let data: Vec<_> = models[range]
        .iter()
        .map(|(id, model)| ModelInfo::new(id, model))
        .collect();
    Ok(ModelPage {
        has_more,
        first_id: data.first().map(|model| model.id),
        last_id: data.last().map(|model| model.id),
        data,
    })
}
