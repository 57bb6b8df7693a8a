//! The tools that the gateway itself runs for a model.
//!
//! A call never fails: what went wrong is text that the model reads, and nothing in it tells where
//! our data comes from. Where there is no data there is no number.

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

/// The most text that a call comes to. It becomes a part of the conversation, which is paid for.
const MAX_TEXT_BYTES: usize = 16 << 10;

pub struct Toolbox {
    sources: Sources,
    definitions: Vec<chat::Tool>,
    /// Counted when first asked for: before that, no page of the estimate's tables is in memory.
    count: OnceLock<TokenCount>,
    timeout: Duration,
    /// How often a provider is asked for one request.
    pub max_steps: u32,
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
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
    pub fn as_str(self) -> &'static str {
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
    /// The tools of the configuration; none where they are switched off. Fails if the system's
    /// certificates cannot be loaded.
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

    /// What a model is offered.
    pub fn definitions(&self) -> &[chat::Tool] {
        &self.definitions
    }

    /// What the definitions add to a prompt; counted once.
    pub fn count(&self) -> TokenCount {
        *self.count.get_or_init(|| {
            let mut count = TokenCount::default();
            chat::Tool::count_all(&self.definitions, &mut count);
            count
        })
    }

    /// Runs one call. `arguments` is the JSON that the model wrote.
    pub async fn run(&self, name: &str, arguments: &str) -> Ran {
        let (text, outcome) = if self.offers(name) {
            let call = tokio::time::timeout(self.timeout, self.call(name, arguments));
            match call.await {
                Ok(Ok(answer)) => (answer, ToolOutcome::Done),
                Ok(Err(Failure::Arguments(words))) => (words, ToolOutcome::BadArguments),
                Ok(Err(Failure::Because(words))) => (words, ToolOutcome::Failed),
                Err(_) => {
                    let seconds = self.timeout.as_secs();
                    let text = format!("{name} took more than {seconds} seconds and was stopped");
                    (text, ToolOutcome::TimedOut)
                }
            }
        } else {
            (self.unknown(name), ToolOutcome::UnknownTool)
        };
        Ran {
            text: bounded(text),
            outcome,
        }
    }

    /// Asks each source for something that costs nothing.
    pub async fn probe(&self) -> Vec<(String, Result<String, String>)> {
        self.sources.probe(self.timeout).await
    }

    pub fn offers(&self, name: &str) -> bool {
        let mut definitions = self.definitions.iter();
        definitions.any(|tool| tool.function.name == name)
    }

    // Here and not above: the name is one of ours by now, and not whatever a model made up.
    #[tracing::instrument(name = "tool", skip_all, fields(tool = name))]
    async fn call(&self, name: &str, arguments: &str) -> Result<String, Failure> {
        match name {
            CryptoPrice::NAME => self.answer::<CryptoPrice>(arguments).await,
            CryptoMarket::NAME => self.answer::<CryptoMarket>(arguments).await,
            ChainGas::NAME => self.answer::<ChainGas>(arguments).await,
            ChainBalance::NAME => self.answer::<ChainBalance>(arguments).await,
            ChainTransaction::NAME => self.answer::<ChainTransaction>(arguments).await,
            InspectAddress::NAME => self.answer::<InspectAddress>(arguments).await,
            ConvertUnits::NAME => self.answer::<ConvertUnits>(arguments).await,
            name => Err(Failure::because(self.unknown(name))),
        }
    }

    async fn answer<T: Tool>(&self, arguments: &str) -> Result<String, Failure> {
        let arguments = tool::arguments(arguments)?;
        let answer = T::run(&self.sources, arguments).await?;
        Ok(serde_json::to_string(&answer).expect("an answer serialises"))
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
    // A model cannot know which chains there are, unless it is told.
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

/// The text, or as much of it as there is room for beside a note that says so.
fn bounded(mut text: String) -> String {
    const NOTE: &str = "\n[cut: the rest was longer than a tool's answer may be]";
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES - NOTE.len()));
        text.push_str(NOTE);
    }
    text
}

#[cfg(test)]
mod tests;
