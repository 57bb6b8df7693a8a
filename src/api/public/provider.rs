//! `GET /v1/provider` (§4.6): a summary of the service, which does not depend on the caller.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;

use crate::{
    api::Json,
    base::money::TokenPrice,
    catalog::{Model, Plan, Tier, Track},
    gateway::Gateway,
};

#[derive(Serialize)]
struct ProviderObject<'a> {
    object: &'static str,
    name: &'static str,
    description: &'static str,
    features: Vec<&'a str>,
    model_count: usize,
    /// Highest price per token among the models of each tier.
    pricing: BTreeMap<&'static str, TierPrice>,
    specializations: Vec<&'a str>,
}

#[derive(Serialize)]
struct TierPrice {
    prompt: String,
    completion: String,
}

/// Summarises the published models of the highest Personal tier.
pub(crate) async fn provider(State(gateway): State<Arc<Gateway>>) -> Response {
    // If the store is unavailable, the settings of the last refresh are used.
    let _ = gateway.ledger.refresh().await;
    let personal = Plan::new(Track::Personal, Tier::Max).unwrap_or(Plan::ANONYMOUS);
    let models = gateway.published_models(personal);
    let mut features: Vec<&str> = models
        .iter()
        .flat_map(|model| &model.features)
        .map(String::as_str)
        .collect();
    let mut specializations: Vec<&str> = models
        .iter()
        .map(|model| model.instruct_type.as_str())
        .collect();
    for list in [&mut features, &mut specializations] {
        list.sort_unstable();
        list.dedup();
    }
    let pricing = Tier::ALL
        .into_iter()
        .filter_map(|tier| {
            let of_tier = || models.iter().filter(|model| model.min_tier == tier);
            let highest =
                |price: fn(&Model) -> TokenPrice| of_tier().map(|model| price(model)).max();
            let prompt = highest(|model| model.prices.rates.input)?.to_string();
            let completion = highest(|model| model.prices.rates.output)?.to_string();
            Some((tier.as_str(), TierPrice { prompt, completion }))
        })
        .collect();
    Json(ProviderObject {
        object: "provider",
        name: "Tollgate",
        description: "A metered, OpenAI-compatible inference gateway.",
        features,
        model_count: models.len(),
        pricing,
        specializations,
    })
    .into_response()
}
