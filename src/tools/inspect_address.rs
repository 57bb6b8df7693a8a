//! `inspect_address`: kind and validity of an address, judged by its form only.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    address::{
        self, Address, Family,
        bitcoin::{Encoding, Kind, Network},
        evm::Checksum,
    },
    failure::Failure,
    sources::Sources,
    tool::Tool,
};

pub(crate) struct InspectAddress;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Arguments {
    /// The address to look at
    address: String,
}

/// Result of the inspection. A text that is no address is not a failure: `valid` is false and `reason` says why.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Inspected {
    address: String,
    valid: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    family: Option<Family>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// State of the EIP-55 checksum.
    #[serde(skip_serializing_if = "Option::is_none")]
    checksum: Option<Checksum>,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksummed: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "type")]
    kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<Encoding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

impl Tool for InspectAddress {
    const NAME: &'static str = "inspect_address";
    const DESCRIPTION: &'static str = "Tells what a cryptocurrency address is: EVM, Bitcoin or \
        Solana, whether it is valid and why not, its checksum, network and type. Looks at its \
        form only; for what it holds, see chain_balance.";
    type Arguments = Arguments;
    type Output = Inspected;

    async fn run(_: &Sources, arguments: Arguments) -> Result<Inspected, Failure> {
        Ok(inspect(arguments.address.trim()))
    }
}

/// Longest part of the input that the output repeats.
const MAX_SHOWN_CHARS: usize = 100;

fn inspect(text: &str) -> Inspected {
    let valid = Inspected {
        address: text.chars().take(MAX_SHOWN_CHARS).collect(),
        valid: true,
        ..Inspected::default()
    };
    match address::inspect(text) {
        Address::Evm(address) => {
            let wrong = address.checksum == Checksum::Wrong;
            let reason = "the case of its letters does not match its EIP-55 checksum: a character \
                          may be mistyped";
            Inspected {
                family: Some(Family::Evm),
                valid: !wrong,
                reason: wrong.then(|| reason.into()),
                checksum: Some(address.checksum),
                checksummed: Some(address.bytes.to_checksum(None)),
                ..valid
            }
        }
        Address::Bitcoin(address) => Inspected {
            family: Some(Family::Bitcoin),
            network: Some(address.network),
            kind: Some(address.kind),
            encoding: Some(address.encoding),
            ..valid
        },
        Address::Solana => Inspected {
            family: Some(Family::Solana),
            note: Some(
                "32 bytes of base58, which have no checksum; whether they are on the curve is not \
                 checked",
            ),
            ..valid
        },
        Address::Invalid(family, reason) => Inspected {
            valid: false,
            family,
            reason: Some(reason),
            ..valid
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_as_models_read_it() {
        let texts = [
            "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
            "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
            "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0",
            "BC1SW50QGDZ25J",
            "mipcBbFg9gMiCh81Kj8tqqdgoZub1ZJRfn",
            "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA",
            "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb",
            "vitalik.eth",
        ];
        let shown = texts.map(|text| serde_json::to_string(&inspect(text)).unwrap());
        insta::assert_snapshot!(shown.join("\n"), @r#"
        {"address":"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed","valid":true,"family":"evm","checksum":"right","checksummed":"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"}
        {"address":"0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed","valid":true,"family":"evm","checksum":"absent","checksummed":"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"}
        {"address":"0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed","valid":false,"family":"evm","reason":"the case of its letters does not match its EIP-55 checksum: a character may be mistyped","checksum":"wrong","checksummed":"0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"}
        {"address":"bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0","valid":true,"family":"bitcoin","network":"mainnet","type":"p2tr","encoding":"bech32m"}
        {"address":"BC1SW50QGDZ25J","valid":true,"family":"bitcoin","network":"mainnet","type":"future_witness","encoding":"bech32m"}
        {"address":"mipcBbFg9gMiCh81Kj8tqqdgoZub1ZJRfn","valid":true,"family":"bitcoin","network":"testnet","type":"p2pkh","encoding":"base58"}
        {"address":"TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA","valid":true,"family":"solana","note":"32 bytes of base58, which have no checksum; whether they are on the curve is not checked"}
        {"address":"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb","valid":false,"family":"bitcoin","reason":"its checksum is wrong: a character may be mistyped"}
        {"address":"vitalik.eth","valid":false,"reason":"it is a name, and names are not looked up here"}
        "#);
    }
}
