//! `chain_transaction`: state and details of a transaction on an EVM chain.

use alloy_primitives::{Address, B256, U256};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{decimal::Decimal, failure::Failure, sources::Sources, tool::Tool};

const NATIVE_DECIMALS: u8 = 18;

pub(crate) struct ChainTransaction;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The name of the chain
    chain: String,
    /// The hash of the transaction: 0x and 64 hexadecimal digits
    hash: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Output {
    chain: String,
    hash: String,
    status: Status,
    #[serde(flatten)]
    details: Option<Details>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Success,
    Failed,
    Pending,
    NotFound,
    /// In a block from before receipts recorded success or failure.
    Mined,
}

#[derive(Debug, Serialize)]
struct Details {
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_contract: Option<String>,
    /// In the chain's native coin, like the fee.
    value: Decimal,
    symbol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirmations: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gas_used: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gas_price_gwei: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fee: Option<Decimal>,
}

#[derive(Debug, Deserialize)]
struct Transaction {
    from: Address,
    to: Option<Address>,
    value: U256,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Receipt {
    status: Option<U256>,
    block_number: U256,
    gas_used: U256,
    effective_gas_price: Option<U256>,
    contract_address: Option<Address>,
    /// Additional fee of a rollup for its use of the underlying chain.
    l1_fee: Option<U256>,
}

impl Tool for ChainTransaction {
    const NAME: &'static str = "chain_transaction";
    const DESCRIPTION: &'static str = "A transaction on an EVM chain by its hash: sender, \
        recipient, value, whether it succeeded, block, confirmations, gas and fee.";
    type Arguments = Arguments;
    type Output = Output;

    async fn run(sources: &Sources, arguments: Arguments) -> Result<Output, Failure> {
        let chain = sources.chain(&arguments.chain)?;
        let hash = hash(&arguments.hash)?;
        let (transaction, receipt, newest) = tokio::join!(
            chain.query("eth_getTransactionByHash", json!([hash])),
            chain.query("eth_getTransactionReceipt", json!([hash])),
            chain.block_number(),
        );
        let (transaction, receipt) = (transaction?, receipt?);
        let (status, details) = describe(transaction, receipt, newest?, &chain.symbol);
        Ok(Output {
            chain: chain.name.clone(),
            hash: hash.to_string(),
            status,
            details,
        })
    }
}

fn hash(text: &str) -> Result<B256, Failure> {
    let text = text.trim();
    let read = text.strip_prefix("0x").and_then(|_| text.parse().ok());
    read.ok_or_else(|| {
        Failure::arguments("`hash` must be a transaction's hash: 0x and 64 hexadecimal digits")
    })
}

/// Combines the node's responses into a status and, unless the transaction is unknown, its details.
fn describe(
    transaction: Option<Transaction>,
    receipt: Option<Receipt>,
    newest: U256,
    symbol: &str,
) -> (Status, Option<Details>) {
    let Some(transaction) = transaction else {
        return (Status::NotFound, None);
    };
    let shown = |address: Address| address.to_checksum(None);
    let status = match receipt.as_ref().map(|receipt| receipt.status) {
        None => Status::Pending,
        Some(None) => Status::Mined,
        Some(Some(U256::ZERO)) => Status::Failed,
        Some(Some(_)) => Status::Success,
    };
    let mut details = Details {
        from: shown(transaction.from),
        to: transaction.to.map(shown),
        created_contract: None,
        value: Decimal::of_units(transaction.value, NATIVE_DECIMALS),
        symbol: symbol.to_owned(),
        block: None,
        confirmations: None,
        gas_used: None,
        gas_price_gwei: None,
        fee: None,
    };
    if let Some(receipt) = receipt {
        // The three requests run concurrently, so `newest` can be older than the block of the receipt.
        let above = newest.saturating_sub(receipt.block_number);
        let fee = receipt.effective_gas_price.and_then(|price| {
            let fee = receipt.gas_used.checked_mul(price)?;
            fee.checked_add(receipt.l1_fee.unwrap_or_default())
        });
        details.created_contract = receipt.contract_address.map(shown);
        details.block = Some(receipt.block_number.to_string());
        details.confirmations = Some(above.saturating_add(U256::ONE).to_string());
        details.gas_used = Some(receipt.gas_used.to_string());
        let price = receipt.effective_gas_price;
        details.gas_price_gwei = price.map(|price| Decimal::of_units(price, 9));
        details.fee = fee.map(|fee| Decimal::of_units(fee, NATIVE_DECIMALS));
    }
    (status, Some(details))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction() -> Option<Transaction> {
        serde_json::from_str(
            r#"{"from":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed","gas":"0x5208",
                "to":"0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359","value":"0x14d1120d7b160000"}"#,
        )
        .unwrap()
    }

    fn receipt(more: &str) -> Option<Receipt> {
        let text = format!(
            r#"{{"blockNumber":"0x10","gasUsed":"0x5208","effectiveGasPrice":"0x3b9aca07"{more}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn status_and_details_follow_from_transaction_and_receipt() {
        let newest = U256::from(0x12);
        for (transaction, receipt, status) in [
            (None, None, Status::NotFound),
            (transaction(), None, Status::Pending),
            (
                transaction(),
                receipt(r#","status":"0x1""#),
                Status::Success,
            ),
            (transaction(), receipt(r#","status":"0x0""#), Status::Failed),
            (transaction(), receipt(""), Status::Mined),
        ] {
            let (found, details) = describe(transaction, receipt, newest, "ETH");
            assert_eq!(found, status);
            assert_eq!(details.is_none(), status == Status::NotFound);
        }
        let details = |receipt| describe(transaction(), receipt, newest, "ETH").1.unwrap();
        let shown = serde_json::to_string(&details(receipt(r#","status":"0x1""#))).unwrap();
        insta::assert_snapshot!(shown, @r#"{"from":"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed","to":"0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359","value":"1.5","symbol":"ETH","block":"16","confirmations":"3","gas_used":"21000","gas_price_gwei":"1.000000007","fee":"0.000021000000147"}"#);
        // 21,000 × 1,000,000,007 wei, plus 5 wei of a rollup in the second case.
        let fee = |more| details(receipt(more)).fee.unwrap().plain();
        assert_eq!(fee(""), "0.000021000000147");
        assert_eq!(fee(r#","l1Fee":"0x5""#), "0.000021000000147005");
        let early = describe(transaction(), receipt(""), U256::from(0xf), "ETH").1;
        assert_eq!(early.unwrap().confirmations.as_deref(), Some("1"));
    }

    #[test]
    fn a_hash_is_64_digits() {
        assert!(hash(&format!(" 0x{} ", "aB".repeat(32))).is_ok());
        for wrong in [
            "",
            "0x",
            "0x12",
            &"ab".repeat(32),
            &format!("0x{}", "zz".repeat(32)),
        ] {
            assert!(matches!(hash(wrong), Err(Failure::Arguments(_))), "{wrong}");
        }
    }
}
