//! `tollgate init`: writes a configuration that works as it is, with a token for the operator.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;
use serde_json::json;

mod providers;
mod questions;
mod text;

pub(crate) use self::providers::name_of_vendor;

use self::{
    providers::{PRESETS, Preset},
    text::Secrets,
};
use super::{
    margin::{Margin, margin},
    new_file::{NewFile, refuse_to_overwrite},
    output::OutputOption,
};
use crate::{
    base::{keys::Secret, money::TokenPrice},
    catalog::list_prices::vendor_of,
    config::Config,
};

/// The variable of the operator token, if no file is named.
const TOKEN_VARIABLE: &str = "TOLLGATE_OPERATOR_TOKEN";

#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// The provider that serves the models [default: asks for it]
    #[arg(long, value_name = "NAME", value_parser = PRESETS.map(|preset| preset.name))]
    provider: Option<String>,
    /// A model to serve, by the provider's name for it; can be given several times [default: the usual ones of the provider]
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// The URL of the provider's API up to and including its version [default: the provider's usual one]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// What models cost more than the provider's list price, for those that have one
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = margin)]
    margin: Margin,
    /// US dollars per million input tokens, for models without a list price [default: 0.10, if the provider has no key]
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    input_price: Option<String>,
    /// US dollars per million output tokens, for models without a list price [default: 0.40, if the provider has no key]
    #[arg(long, value_name = "DOLLARS", value_parser = price)]
    output_price: Option<String>,
    /// The address and port of the API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: String,
    /// The folder to write to
    #[arg(long, value_name = "DIR", default_value = ".")]
    folder: PathBuf,
    #[command(flatten)]
    output: OutputOption,
}

const HELP: &str = "\
It writes tollgate.toml, operator.token and, for a provider with a key, NAME.key, which only you can read. The key is taken \
from the provider's usual variable, e.g. OPENAI_API_KEY. Nothing that exists is overwritten.

Examples:

  tollgate init
  tollgate init --provider openai --model gpt-4o --margin 20%
  tollgate init --provider ollama --model llama3.2
  tollgate init --provider azure --base-url https://mine.openai.azure.com/openai/v1 --model my-deployment \
    --input-price 3 --output-price 12
  tollgate init --provider compatible --base-url http://10.0.0.7:8000/v1 --model qwen3";

/// All that is written.
struct Setup {
    pub preset: &'static Preset,
    pub base_url: Option<String>,
    pub key: Option<String>,
    pub models: Vec<String>,
    pub margin: Margin,
    /// For models without a list price: of input and of output.
    pub prices: [Option<String>; 2],
    pub listen: String,
}

impl Setup {
    /// Whether the provider gets a key. A server of one's own may do without.
    pub(super) fn has_key(&self) -> bool {
        let is_empty = self.key.as_deref().is_none_or(str::is_empty);
        let is_own = self.preset.name == "compatible";
        self.preset.key_variable.is_some() && !(is_own && is_empty)
    }

    /// The vendor of a model and its name there, if it may have a list price.
    pub(super) fn vendor_of<'a>(&self, model: &'a str) -> Option<(&'static str, &'a str)> {
        let url = self.base_url.as_deref().unwrap_or_default();
        vendor_of(self.preset.kind, url, model)
    }
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let names = ["tollgate.toml", "operator.token"].map(|name| options.folder.join(name));
    names
        .iter()
        .try_for_each(|path| refuse_to_overwrite(path))?;
    let setup = match &options.provider {
        Some(provider) => from_options(options, provider)?,
        None if std::io::stdin().is_terminal() && !options.output.json => questions::ask(options)?,
        None => {
            let names = PRESETS.map(|preset| preset.name).join(", ");
            return Err(format!("name the provider with --provider: {names}"));
        }
    };
    check(&setup)?;
    std::fs::create_dir_all(&options.folder)
        .map_err(|error| format!("{} cannot be created: {error}", options.folder.display()))?;
    let [file, token] = &names;
    let mut written = Written::default();
    let key_file = write_key(&setup, &options.folder, &mut written)?;
    written.add(token, Secret::generate().reveal())?;
    // Last, so that a configuration is complete if it is there.
    written.add(file, text::config(&setup, Secrets::Files).trim_end())?;
    written.keep();
    let json = json!({
        "config": file, "operator_token": token, "key": key_file, "models": setup.models,
    });
    let text = || text::next_steps(&setup, file, token, key_file.as_deref());
    options.output.print(text, &json)
}

/// Reads the configuration as a gateway would, before there is any file. What a paid provider asks for a model may be more
/// than any price that is not chosen for it.
fn check(setup: &Setup) -> Result<(), String> {
    let environment = BTreeMap::from([
        (
            TOKEN_VARIABLE.into(),
            Secret::generate().reveal().to_owned(),
        ),
        (text::KEY_VARIABLE.into(), "key".into()),
    ]);
    let config = text::config(setup, Secrets::Variables);
    Config::parse("this configuration", &config, &environment)
        .map_err(|error| format!("{error}\nCorrect the options; nothing was written"))?;
    let unlisted = setup.unlisted();
    if setup.has_key() && !unlisted.is_empty() && setup.prices.contains(&None) {
        return Err(format!(
            "{} has no list price of {}: say what your customers pay with --input-price and --output-price, in US dollars \
             per million tokens. Nothing was written",
            setup.preset.title,
            unlisted.join(", ")
        ));
    }
    Ok(())
}

fn from_options(options: &Options, provider: &str) -> Result<Setup, String> {
    let preset = providers::find(provider).ok_or("this provider is not known")?;
    if preset.kind == "simulator" && options.base_url.is_some() {
        return Err(format!(
            "{} is built in: leave out --base-url",
            preset.title
        ));
    }
    let base_url = options
        .base_url
        .clone()
        .or(preset.base_url.map(str::to_owned));
    if base_url.is_none() && preset.kind != "simulator" {
        return Err(format!(
            "{} needs --base-url, the URL of its API",
            preset.title
        ));
    }
    let models = if options.models.is_empty() {
        preset
            .models
            .iter()
            .map(|&model| model.to_owned())
            .collect()
    } else {
        without_repeats(options.models.clone())
    };
    if models.is_empty() {
        return Err(format!(
            "name the models that {} serves with --model",
            preset.title
        ));
    }
    Ok(Setup {
        preset,
        base_url,
        key: key_of_environment(preset),
        models,
        margin: options.margin.clone(),
        prices: [options.input_price.clone(), options.output_price.clone()],
        listen: options.listen.clone(),
    })
}

/// The models in their order, each once.
fn without_repeats(mut models: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    models.retain(|model| seen.insert(model.clone()));
    models
}

/// A price as it is written in a configuration.
fn price(text: &str) -> Result<String, String> {
    match TokenPrice::parse_per_million(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected US dollars per million tokens, e.g. 0.40".into()),
    }
}

/// The key in the provider's usual variable.
fn key_of_environment(preset: &Preset) -> Option<String> {
    let key = std::env::var(preset.key_variable?).ok()?;
    Some(key.trim().to_owned()).filter(|key| !key.is_empty())
}

/// Writes the provider's key, or an empty file to write it to; `None` for a provider without one.
fn write_key(
    setup: &Setup,
    folder: &Path,
    written: &mut Written,
) -> Result<Option<PathBuf>, String> {
    if !setup.has_key() {
        return Ok(None);
    }
    let path = folder.join(format!("{}.key", setup.preset.name));
    written.add(&path, setup.key.as_deref().unwrap_or_default())?;
    Ok(Some(path))
}

/// The files that were written, which are removed again unless all of them could be: they would be in the way of the next
/// attempt.
#[derive(Default)]
struct Written(Vec<PathBuf>);

impl Written {
    fn add(&mut self, path: &Path, text: &str) -> Result<(), String> {
        write_private(path, text)?;
        self.0.push(path.to_owned());
        Ok(())
    }

    fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Writes a new file that only this user can read.
fn write_private(path: &Path, text: &str) -> Result<(), String> {
    let mut new = NewFile::create(path)?;
    let written = writeln!(new.file, "{text}").and_then(|()| new.finish());
    let failed = |error| format!("{} cannot be written: {error}", path.display());
    written.map(|_| ()).map_err(failed)
}
