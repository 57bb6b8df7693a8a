//! `chain_gas`: current fees of an EVM chain.

use alloy_primitives::U256;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{chain::RpcFault, decimal::Decimal, failure::Failure, sources::Sources, tool::Tool};

/// Number of recent blocks whose priority fees are read.
const BLOCKS: u32 = 5;
/// Decimals of a gwei in wei.
const GWEI_DECIMALS: u8 = 9;

pub(crate) struct ChainGas;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The name of the chain
    chain: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Output {
    chain: String,
    block: String,
    gas_price_gwei: Decimal,
    /// Base fee of the next block.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_fee_gwei: Option<Decimal>,
    /// Median of the median priority fees of the last blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_fee_gwei: Option<Decimal>,
}

/// Fees of EIP-1559; older chains have none.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct FeeHistory {
    #[serde(default)]
    base_fee_per_gas: Vec<U256>,
    /// For each block, the priority fees at the requested percentiles.
    reward: Option<Vec<Vec<U256>>>,
}

impl Tool for ChainGas {
    const NAME: &'static str = "chain_gas";
    const DESCRIPTION: &'static str = "Current gas price, base fee and priority fee of an EVM \
        chain in gwei, and its newest block.";
    type Arguments = Arguments;
    type Output = Output;

    async fn run(sources: &Sources, arguments: Arguments) -> Result<Output, Failure> {
        let chain = sources.chain(&arguments.chain)?;
        let (price, fees, block) = tokio::join!(
            chain.query("eth_gasPrice", json!([])),
            chain.call(
                "eth_feeHistory",
                json!([format!("{BLOCKS:#x}"), "latest", [50]])
            ),
            chain.block_number(),
        );
        let fees = match fees {
            Ok(fees) => fees,
            // A chain without EIP-1559 does not support the method.
            Err(RpcFault::Refused(_)) => FeeHistory::default(),
            Err(fault) => return Err(chain.failure(fault)),
        };
        Ok(output(&chain.name, block?, price?, fees))
    }
}

fn output(chain: &str, block: U256, price: U256, fees: FeeHistory) -> Output {
    let gwei = |wei: U256| Decimal::of_units(wei, GWEI_DECIMALS);
    let base_fee = fees.base_fee_per_gas.last().copied();
    let rewards = fees.reward.unwrap_or_default();
    let mut tips: Vec<U256> = rewards
        .iter()
        .filter_map(|tips| tips.first().copied())
        .collect();
    tips.sort_unstable();
    Output {
        chain: chain.to_owned(),
        block: block.to_string(),
        gas_price_gwei: gwei(price),
        base_fee_gwei: base_fee.map(gwei),
        priority_fee_gwei: tips.get(tips.len() / 2).copied().map(gwei),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fees_are_exact_and_the_base_fee_is_the_next_blocks() {
        let fees = serde_json::from_str(
            r#"{"oldestBlock":"0x1","baseFeePerGas":["0x3b9aca00","0x342770c0","0x2d9c5cc1"],
                "gasUsedRatio":[0,0],"reward":[["0x9502f900"],["0x1"],["0x3b9aca00"]]}"#,
        )
        .unwrap();
        let output = output("local", U256::from(7), U256::from(2_000_000_001), fees);
        insta::assert_snapshot!(serde_json::to_string(&output).unwrap(), @r#"{"chain":"local","block":"7","gas_price_gwei":"2.000000001","base_fee_gwei":"0.765222081","priority_fee_gwei":"1"}"#);
    }

    #[test]
    fn a_chain_without_base_fees_has_a_price_alone() {
        let output = output("old", U256::from(7), U256::from(5), FeeHistory::default());
        let shown = serde_json::to_string(&output).unwrap();
        assert_eq!(
            shown,
            r#"{"chain":"old","block":"7","gas_price_gwei":"0.000000005"}"#
        );
    }
}
