//! The built-in tools, which the gateway runs itself between the steps of a call.
//!
//! A tool call never fails the request: an error becomes text for the model, with an outcome for metrics and traces.
//! The text never contains a URL, host or key of a data source, and a tool without data returns no made-up number.
//!
//! This room may use `config` and the rooms below it in `src/lib.rs`. It uses `config`, `net`, `wire` and `base`.

use std::{sync::OnceLock, time::Duration};

mod address;
mod chain;
mod chain_balance;
mod chain_gas;
mod chain_transaction;
mod convert_units;
mod crypto_market;
mod crypto_price;
mod decimal;
mod failure;
mod inspect_address;
mod market;
mod schema;
mod sources;
mod tool;
mod web;

use serde_json::Value;

use self::{
    chain_balance::ChainBalance, chain_gas::ChainGas, chain_transaction::ChainTransaction,
    convert_units::ConvertUnits, crypto_market::CryptoMarket, crypto_price::CryptoPrice,
    failure::Failure, inspect_address::InspectAddress, sources::Sources, tool::Tool,
};
use crate::{
    base::tokens::TokenCount,
    config,
    wire::chat::{self, Schema},
};

/// Longest output of a tool call. It becomes a part of the conversation, whose tokens the caller pays for.
const MAX_TEXT_BYTES: usize = 16 << 10;

/// The configured tools and their data sources.
pub struct Toolbox {
    sources: Sources,
    definitions: Vec<chat::Tool>,
    /// Computed on first use, so that the tables of the token estimate are not loaded before they are needed.
    count: OnceLock<TokenCount>,
    timeout: Duration,
    /// Most steps of one call.
    pub max_steps: u32,
}

/// Result of one tool call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult {
    /// For the model: the tool's output as JSON, or the reason why there is none.
    pub text: String,
    pub outcome: ToolOutcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOutcome {
    Done,
    Failed,
    UnknownTool,
    BadArguments,
    TimedOut,
}

impl ToolOutcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::UnknownTool => "unknown_tool",
            Self::BadArguments => "bad_arguments",
            Self::TimedOut => "timed_out",
        }
    }
}

impl Toolbox {
    /// Creates the tools; none if the configuration turns them off. Fails if the system's certificates cannot be
    /// loaded.
    pub fn new(config: &config::Tools) -> Result<Self, String> {
        let sources = Sources::new(config)?;
        let definitions = if config.enabled {
            definitions(&sources.chain_names())
        } else {
            Vec::new()
        };
        Ok(Self {
            sources,
            count: OnceLock::new(),
            definitions,
            timeout: config.timeout,
            max_steps: config.max_steps,
        })
    }

    /// Tool definitions as they are offered to models.
    pub fn definitions(&self) -> &[chat::Tool] {
        &self.definitions
    }

    /// Tokens that the definitions add to a prompt; computed once.
    pub(crate) fn count(&self) -> TokenCount {
        *self.count.get_or_init(|| {
            let mut count = TokenCount::default();
            chat::Tool::count_all(&self.definitions, &mut count);
            count
        })
    }

    /// Runs one tool call. `arguments` is the JSON that the model wrote.
    pub async fn run(&self, name: &str, arguments: &str) -> ToolResult {
        let (text, outcome) = if self.offers(name) {
            let call = tokio::time::timeout(self.timeout, self.call(name, arguments));
            match call.await {
                Ok(Ok(output)) => (output, ToolOutcome::Done),
                Ok(Err(Failure::Arguments(reason))) => (reason, ToolOutcome::BadArguments),
                Ok(Err(Failure::Other(reason))) => (reason, ToolOutcome::Failed),
                Err(_) => {
                    let seconds = self.timeout.as_secs();
                    let text = format!("{name} took more than {seconds} seconds and was stopped");
                    (text, ToolOutcome::TimedOut)
                }
            }
        } else {
            (self.unknown(name), ToolOutcome::UnknownTool)
        };
        ToolResult {
            text: bounded(text),
            outcome,
        }
    }

    /// Sends each data source a request that costs nothing, for `tollgate check`.
    pub async fn probe(&self) -> Vec<(String, Result<String, String>)> {
        self.sources.probe(self.timeout).await
    }

    fn offers(&self, name: &str) -> bool {
        let mut definitions = self.definitions.iter();
        definitions.any(|tool| tool.function.name == name)
    }

    /// The name of a tool in metrics and records. Another name was made up by a model, so it must not be in them.
    pub(crate) fn label<'a>(&self, name: &'a str) -> &'a str {
        if self.offers(name) { name } else { "(unknown)" }
    }

    // The span starts here and not in `run`, because here the name is one of ours and not arbitrary text of a model.
    #[tracing::instrument(name = "tool", skip_all, fields(tool = name))]
    async fn call(&self, name: &str, arguments: &str) -> Result<String, Failure> {
        match name {
            CryptoPrice::NAME => self.run_tool::<CryptoPrice>(arguments).await,
            CryptoMarket::NAME => self.run_tool::<CryptoMarket>(arguments).await,
            ChainGas::NAME => self.run_tool::<ChainGas>(arguments).await,
            ChainBalance::NAME => self.run_tool::<ChainBalance>(arguments).await,
            ChainTransaction::NAME => self.run_tool::<ChainTransaction>(arguments).await,
            InspectAddress::NAME => self.run_tool::<InspectAddress>(arguments).await,
            ConvertUnits::NAME => self.run_tool::<ConvertUnits>(arguments).await,
            name => Err(Failure::other(self.unknown(name))),
        }
    }

    async fn run_tool<T: Tool>(&self, arguments: &str) -> Result<String, Failure> {
        let arguments = tool::arguments(arguments)?;
        let output = T::run(&self.sources, arguments).await?;
        Ok(serde_json::to_string(&output).expect("a tool's output serialises"))
    }

    fn unknown(&self, name: &str) -> String {
        let name: String = name.chars().take(64).collect();
        let known = self.definitions.iter();
        let known: Vec<_> = known.map(|tool| tool.function.name.as_str()).collect();
        match known.as_slice() {
            [] => format!("there is no tool `{name}`; there are none"),
            known => format!("there is no tool `{name}`; there are {}", known.join(", ")),
        }
    }
}

fn definitions(chains: &[&str]) -> Vec<chat::Tool> {
    vec![
        definition::<CryptoPrice>(chains),
        definition::<CryptoMarket>(chains),
        definition::<ChainGas>(chains),
        definition::<ChainBalance>(chains),
        definition::<ChainTransaction>(chains),
        definition::<InspectAddress>(chains),
        definition::<ConvertUnits>(chains),
    ]
}

fn definition<T: Tool>(chains: &[&str]) -> chat::Tool {
    let mut schema = schema::of::<T::Arguments>();
    // The schema lists the configured chains, because a model cannot know them otherwise.
    let chain = schema
        .get_mut("properties")
        .and_then(|all| all.get_mut("chain"));
    if let Some(Value::Object(chain)) = chain
        && !chains.is_empty()
    {
        chain.insert("enum".into(), chains.into());
    }
    let description = Some(T::DESCRIPTION.to_owned());
    let parameters = Some(Schema::new(&schema));
    chat::Tool::function(T::NAME.to_owned(), description, parameters, None)
}

/// Cuts a text to [`MAX_TEXT_BYTES`], with a note at its end if it was cut.
fn bounded(mut text: String) -> String {
    const NOTE: &str = "\n[cut: the output exceeds the size limit of a tool]";
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES - NOTE.len()));
        text.push_str(NOTE);
    }
    text
}

#[cfg(test)]
mod tests;
