//! Calls of an ERC-20 contract, and decoding of its responses.

use alloy_primitives::{Address, U256};
use alloy_sol_types::{SolCall as _, sol};

use super::{Chain, RpcFault};
use crate::tools::failure::Failure;

sol! {
    function balanceOf(address owner) external view returns (uint256);
    function decimals() external view returns (uint8);
    function symbol() external view returns (string);
}

/// What an owner holds of one token.
pub struct Holding {
    /// In the token's smallest unit.
    pub units: U256,
    /// `None` if the contract does not implement the function; `decimals` and `symbol` are optional in ERC-20.
    pub decimals: Option<u8>,
    pub symbol: Option<String>,
}

/// A model reads the symbol, and the author of the contract chose it, so its length is limited.
const MAX_SYMBOL_CHARS: usize = 32;

pub async fn holding(chain: &Chain, token: Address, owner: Address) -> Result<Holding, Failure> {
    let (units, decimals, symbol) = tokio::join!(
        chain.read_contract(token, balanceOfCall { owner }.abi_encode()),
        chain.read_contract(token, decimalsCall {}.abi_encode()),
        chain.read_contract(token, symbolCall {}.abi_encode()),
    );
    let no_token = || {
        let name = &chain.name;
        Failure::other(format!(
            "there is no ERC-20 token at {token} on the chain `{name}`"
        ))
    };
    let units = match units {
        Ok(bytes) => balanceOfCall::abi_decode_returns_validate(&bytes).map_err(|_| no_token())?,
        Err(fault) if fault.is_revert() => return Err(no_token()),
        Err(fault) => return Err(chain.failure(fault)),
    };
    let decimals = unless_reverted(chain, decimals)?;
    let symbol = unless_reverted(chain, symbol)?;
    Ok(Holding {
        units,
        decimals: decimals.and_then(|bytes| decode_decimals(&bytes)),
        symbol: symbol.and_then(|bytes| decode_symbol(&bytes)),
    })
}

/// `None` if the contract reverted, because it does not implement the function; other faults are failures.
fn unless_reverted<T>(chain: &Chain, result: Result<T, RpcFault>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(fault) if fault.is_revert() => Ok(None),
        Err(fault) => Err(chain.failure(fault)),
    }
}

fn decode_decimals(bytes: &[u8]) -> Option<u8> {
    decimalsCall::abi_decode_returns_validate(bytes).ok()
}

/// Decodes a string, or the form of the oldest tokens: 32 bytes, padded with zeros.
fn decode_symbol(bytes: &[u8]) -> Option<String> {
    let text = if bytes.len() == 32 {
        let end = bytes.iter().position(|byte| *byte == 0);
        String::from_utf8(bytes[..end.unwrap_or(32)].to_vec()).ok()?
    } else {
        symbolCall::abi_decode_returns_validate(bytes).ok()?
    };
    let printable = text.chars().filter(|c| !c.is_control());
    let text: String = printable.take(MAX_SYMBOL_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::hex;

    use super::*;

    /// Checks the function selectors of the ERC-20 standard.
    #[test]
    fn calls_are_encoded_as_erc_20_defines() {
        let owner = Address::repeat_byte(0x11);
        let call = hex::encode(balanceOfCall { owner }.abi_encode());
        assert_eq!(
            call,
            format!("70a08231{}{}", "00".repeat(12), "11".repeat(20))
        );
        assert_eq!(decimalsCall {}.abi_encode(), hex!("313ce567"));
        assert_eq!(symbolCall {}.abi_encode(), hex!("95d89b41"));
    }

    /// Without validation, decoding would cut a number that is too large to its last byte.
    #[test]
    fn invalid_decimals_are_not_decoded() {
        let mut bytes = [0; 32];
        bytes[31] = 18;
        assert_eq!(decode_decimals(&bytes), Some(18));
        bytes[0] = 1;
        assert_eq!(decode_decimals(&bytes), None);
        assert_eq!(decode_decimals(&[]), None);
    }

    #[test]
    fn a_symbol_comes_in_two_forms_and_is_kept_short() {
        let encoded = |text: &str| symbolCall::abi_encode_returns(&text.to_owned());
        assert_eq!(decode_symbol(&encoded("USDC")).as_deref(), Some("USDC"));
        assert_eq!(
            decode_symbol(&encoded("US\nDC\u{1b}")).as_deref(),
            Some("USDC")
        );
        assert_eq!(decode_symbol(&encoded(&"x".repeat(500))).unwrap().len(), 32);
        assert_eq!(decode_symbol(&encoded("")), None);
        let mut old = [0; 32];
        old[..3].copy_from_slice(b"MKR");
        assert_eq!(decode_symbol(&old).as_deref(), Some("MKR"));
        assert_eq!(decode_symbol(&[0xff; 32]), None);
        assert_eq!(decode_symbol(&[]), None);
        assert_eq!(decode_symbol(&[0xff; 64]), None);
    }
}
