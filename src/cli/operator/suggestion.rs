//! `tollgate model suggest`: models at the vendors' list prices plus a margin.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::{
    catalog::list_prices::{LIST_PRICES, ListedModel, name_at},
    cli::{
        init,
        margin::{self, Margin, margin},
        output::OutputOption,
    },
    config::{Config, Provider, ProviderKind},
};

#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Suggestion {
    /// Only these models, by the vendor's or the provider's names for them [default: all that have a list price]
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

/// A model as a provider sells it.
struct Suggested {
    provider: String,
    /// The provider's name for it.
    id: String,
    model: &'static ListedModel,
}

impl Suggestion {
    pub(super) fn print(&self, output: OutputOption) -> Result<(), String> {
        let suggested = self.find()?;
        let blocks = suggested
            .iter()
            .map(|one| margin::model(&one.provider, &one.id, &one.id, one.model, &self.margin));
        let blocks: Vec<_> = blocks.collect();
        let rows: Vec<Value> = suggested
            .iter()
            .zip(&blocks)
            .map(|(one, toml)| {
                json!({
                    "id": one.id, "vendor": one.model.vendor, "provider": one.provider, "toml": toml,
                })
            })
            .collect();
        let json = json!({ "list_prices_of": LIST_PRICES.date, "models": rows });
        output.print(|| blocks.join("\n").trim_end().to_owned(), &json)
    }

    fn find(&self) -> Result<Vec<Suggested>, String> {
        let all = LIST_PRICES.models.iter();
        let suggested: Vec<Suggested> = match &self.config {
            None => all.filter_map(at_vendor).collect(),
            Some(file) => {
                let config = Config::load(file).map_err(|error| error.to_string())?;
                all.filter_map(|model| at_provider(&config, model))
                    .filter(|one| config.catalog.find(&one.id).is_none())
                    .collect()
            }
        };
        let is_named = |one: &Suggested, name: &String| *name == one.id || *name == one.model.id;
        let asked: Vec<_> = suggested
            .into_iter()
            .filter(|one| {
                self.models.is_empty() || self.models.iter().any(|name| is_named(one, name))
            })
            .collect();
        let missing = self
            .models
            .iter()
            .filter(|name| !asked.iter().any(|one| is_named(one, name)));
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

/// The model at its vendor, which has the name that `tollgate init` gives it.
fn at_vendor(model: &'static ListedModel) -> Option<Suggested> {
    Some(Suggested {
        provider: init::name_of_vendor(model)?.to_owned(),
        id: model.id.clone(),
        model,
    })
}

/// The model at the first provider that sells it at its list price.
fn at_provider(config: &Config, model: &'static ListedModel) -> Option<Suggested> {
    config.providers.iter().find_map(|(name, provider)| {
        let Provider::Remote(remote) = provider else {
            return None;
        };
        let kind = match remote.kind {
            ProviderKind::OpenAi => "openai",
            ProviderKind::Anthropic => "anthropic",
            ProviderKind::Gemini => "gemini",
        };
        Some(Suggested {
            provider: name.clone(),
            id: name_at(kind, &remote.base_url, model)?,
            model,
        })
    })
}
