//! What an ERC-20 contract is asked, and what it may answer.

use alloy_primitives::{Address, U256};
use alloy_sol_types::{SolCall as _, sol};

use super::{Chain, RpcFault};
use crate::tools::failure::Failure;

sol! {
    function balanceOf(address owner) external view returns (uint256);
    function decimals() external view returns (uint8);
    function symbol() external view returns (string);
}

pub struct Holding {
    pub units: U256,
    /// A contract need not say how many decimals it has, nor what it is called.
    pub decimals: Option<u8>,
    pub symbol: Option<String>,
}

/// Who wrote a contract chose its symbol, and a model reads it: a word, not an essay.
const MAX_SYMBOL_CHARS: usize = 32;

pub async fn holding(chain: &Chain, token: Address, owner: Address) -> Result<Holding, Failure> {
    let (units, decimals, symbol) = tokio::join!(
        chain.read(token, balanceOfCall { owner }.abi_encode()),
        chain.read(token, decimalsCall {}.abi_encode()),
        chain.read(token, symbolCall {}.abi_encode()),
    );
    let none = || {
        let name = &chain.name;
        Failure::because(format!(
            "there is no ERC-20 token at {token} on the chain `{name}`"
        ))
    };
    let units = match units {
        Ok(answer) => balanceOfCall::abi_decode_returns_validate(&answer).map_err(|_| none())?,
        Err(fault) if fault.is_revert() => return Err(none()),
        Err(fault) => return Err(chain.failure(fault)),
    };
    let decimals = said(chain, decimals)?;
    let symbol = said(chain, symbol)?;
    Ok(Holding {
        units,
        decimals: decimals.and_then(|answer| decimals_in(&answer)),
        symbol: symbol.and_then(|answer| symbol_in(&answer)),
    })
}

/// What a contract says if it says anything; a node that fails is another matter.
fn said<T>(chain: &Chain, answer: Result<T, RpcFault>) -> Result<Option<T>, Failure> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(fault) if fault.is_revert() => Ok(None),
        Err(fault) => Err(chain.failure(fault)),
    }
}

fn decimals_in(answer: &[u8]) -> Option<u8> {
    decimalsCall::abi_decode_returns_validate(answer).ok()
}

/// A string, or as in the oldest tokens 32 bytes that end in zeros.
fn symbol_in(answer: &[u8]) -> Option<String> {
    let text = if answer.len() == 32 {
        let end = answer.iter().position(|byte| *byte == 0);
        String::from_utf8(answer[..end.unwrap_or(32)].to_vec()).ok()?
    } else {
        symbolCall::abi_decode_returns_validate(answer).ok()?
    };
    let printable = text.chars().filter(|c| !c.is_control());
    let text: String = printable.take(MAX_SYMBOL_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::hex;

    use super::*;

    /// The selectors that every ERC-20 contract has.
    #[test]
    fn questions_are_those_of_erc_20() {
        let owner = Address::repeat_byte(0x11);
        let question = hex::encode(balanceOfCall { owner }.abi_encode());
        assert_eq!(
            question,
            format!("70a08231{}{}", "00".repeat(12), "11".repeat(20))
        );
        assert_eq!(decimalsCall {}.abi_encode(), hex!("313ce567"));
        assert_eq!(symbolCall {}.abi_encode(), hex!("95d89b41"));
    }

    /// Without validation a number that is too large is cut to its last byte.
    #[test]
    fn decimals_that_are_none_are_not_made_up() {
        let mut answer = [0; 32];
        answer[31] = 18;
        assert_eq!(decimals_in(&answer), Some(18));
        answer[0] = 1;
        assert_eq!(decimals_in(&answer), None);
        assert_eq!(decimals_in(&[]), None);
    }

    #[test]
    fn a_symbol_comes_in_two_forms_and_is_kept_short() {
        let encoded = |text: &str| symbolCall::abi_encode_returns(&text.to_owned());
        assert_eq!(symbol_in(&encoded("USDC")).as_deref(), Some("USDC"));
        assert_eq!(symbol_in(&encoded("US\nDC\u{1b}")).as_deref(), Some("USDC"));
        assert_eq!(symbol_in(&encoded(&"x".repeat(500))).unwrap().len(), 32);
        assert_eq!(symbol_in(&encoded("")), None);
        let mut old = [0; 32];
        old[..3].copy_from_slice(b"MKR");
        assert_eq!(symbol_in(&old).as_deref(), Some("MKR"));
        assert_eq!(symbol_in(&[0xff; 32]), None);
        assert_eq!(symbol_in(&[]), None);
        assert_eq!(symbol_in(&[0xff; 64]), None);
    }
}
