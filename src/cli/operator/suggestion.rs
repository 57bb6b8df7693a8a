//! `tollgate model suggest`: models at the vendors' list prices plus a margin.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    catalog::list_prices::{LIST_PRICES, ListedModel, vendor_of},
    cli::{
        margin::{self, Margin, margin},
        output::OutputOption,
    },
    config::{Config, Provider, ProviderKind},
};

#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Suggestion {
    /// Only these models, by the vendor's names for them [default: all that have a list price]
    models: Vec<String>,
    /// What your price is more than the list price
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = margin)]
    margin: Margin,
    /// The configuration file whose providers serve them; models that it has are left out [default: all vendors]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

const HELP: &str = "\
Examples:

  tollgate model suggest gpt-4o gpt-4o-mini --margin 20%
  tollgate model suggest --config tollgate.toml --margin 20% >> tollgate.toml";

/// A model with the name of the provider that serves it.
type Suggested = (String, &'static ListedModel);

impl Suggestion {
    pub(super) fn print(&self, output: OutputOption) -> Result<(), String> {
        let suggested = self.find()?;
        let blocks = suggested.iter().map(|(provider, model)| {
            margin::model(provider, &model.id, &model.id, model, &self.margin)
        });
        let blocks: Vec<_> = blocks.collect();
        let rows: Vec<Value> = suggested
            .iter()
            .zip(&blocks)
            .map(|((provider, model), toml)| {
                json!({ "id": model.id, "vendor": model.vendor, "provider": provider, "toml": toml })
            })
            .collect();
        let json = json!({ "list_prices_of": LIST_PRICES.date, "models": rows });
        output.print(|| blocks.join("\n").trim_end().to_owned(), &json)
    }

    fn find(&self) -> Result<Vec<Suggested>, String> {
        let all = LIST_PRICES.models.iter();
        let suggested: Vec<Suggested> = match &self.config {
            None => all.map(|model| (model.vendor.clone(), model)).collect(),
            Some(file) => {
                let config = Config::load(file).map_err(|error| error.to_string())?;
                all.filter(|model| config.catalog.find(&model.id).is_none())
                    .filter_map(|model| Some((provider_of(&config, model)?, model)))
                    .collect()
            }
        };
        let is_asked =
            |model: &ListedModel| self.models.is_empty() || self.models.contains(&model.id);
        let asked: Vec<_> = suggested
            .into_iter()
            .filter(|(_, model)| is_asked(model))
            .collect();
        let missing = self
            .models
            .iter()
            .filter(|id| !asked.iter().any(|(_, model)| model.id == **id));
        let missing: Vec<_> = missing.map(String::as_str).collect();
        match (missing.as_slice(), asked.is_empty()) {
            ([], false) => Ok(asked),
            ([], true) => Err(
                "no provider of this configuration has models with a list price that it lacks"
                    .into(),
            ),
            (missing, _) => Err(format!(
                "no list price of {}; `tollgate model suggest` prints all that there are",
                missing.join(", ")
            )),
        }
    }
}

/// The name of the first provider that sells this model at its list price.
fn provider_of(config: &Config, model: &ListedModel) -> Option<String> {
    let sells = |provider: &Provider| {
        let Provider::Remote(remote) = provider else {
            return false;
        };
        let kind = match remote.kind {
            ProviderKind::OpenAi => "openai",
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::Gemini => "gemini",
        };
        let found = vendor_of(kind, &remote.base_url, &model.id);
        found.is_some_and(|(vendor, id)| vendor == model.vendor && id == model.id)
    };
    let mut providers = config.providers.iter();
    let found = providers.find(|(_, provider)| sells(provider));
    found.map(|(name, _)| name.clone())
}
