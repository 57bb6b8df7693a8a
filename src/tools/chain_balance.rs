//! `chain_balance`: the balance of an address on an EVM chain.

use alloy_primitives::U256;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    chain::{address, erc20},
    decimal::Decimal,
    failure::Failure,
    sources::Sources,
    tool::Tool,
};

const NATIVE_DECIMALS: u8 = 18;

pub(crate) struct ChainBalance;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The name of the chain
    chain: String,
    /// The address that holds the balance, with 0x
    address: String,
    /// The address of an ERC-20 token's contract; left out for the chain's native coin
    token: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Output {
    chain: String,
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol: Option<String>,
    /// In whole coins; absent if the token's contract does not report its decimals.
    #[serde(skip_serializing_if = "Option::is_none")]
    balance: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decimals: Option<u8>,
    smallest_units: String,
}

impl Tool for ChainBalance {
    const NAME: &'static str = "chain_balance";
    const DESCRIPTION: &'static str = "The balance of an address on an EVM chain: of the native \
        coin, or of an ERC-20 token.";
    type Arguments = Arguments;
    type Output = Output;

    async fn run(sources: &Sources, arguments: Arguments) -> Result<Output, Failure> {
        let chain = sources.chain(&arguments.chain)?;
        let owner = address("address", &arguments.address)?;
        // Models write an empty string for an argument that they leave out.
        let token = arguments.token.filter(|token| !token.trim().is_empty());
        let token = token.map(|token| address("token", &token)).transpose()?;
        let (symbol, decimals, units) = match token {
            None => {
                let wei: U256 = chain
                    .query("eth_getBalance", json!([owner, "latest"]))
                    .await?;
                (Some(chain.symbol.clone()), Some(NATIVE_DECIMALS), wei)
            }
            Some(token) => {
                let holding = erc20::holding(chain, token, owner).await?;
                (holding.symbol, holding.decimals, holding.units)
            }
        };
        Ok(Output {
            chain: chain.name.clone(),
            address: owner.to_checksum(None),
            token: token.map(|token| token.to_checksum(None)),
            symbol,
            balance: decimals.map(|decimals| Decimal::of_units(units, decimals)),
            decimals,
            smallest_units: units.to_string(),
        })
    }
}
