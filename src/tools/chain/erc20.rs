//! Calls of an ERC-20 contract, and decoding of its responses.

use alloy_primitives::{Address, U256};

use super::{Chain, RpcFault};
use crate::tools::failure::Failure;

/// Function selectors: the first four bytes of the Keccak-256 hash of each signature.
const BALANCE_OF: [u8; 4] = [0x70, 0xa0, 0x82, 0x31]; // balanceOf(address)
const DECIMALS: [u8; 4] = [0x31, 0x3c, 0xe5, 0x67]; // decimals()
const SYMBOL: [u8; 4] = [0x95, 0xd8, 0x9b, 0x41]; // symbol()

/// The size of a word of the contract ABI.
const WORD: usize = 32;

/// What an owner holds of one token.
pub(crate) struct Holding {
    /// In the token's smallest unit.
    pub units: U256,
    /// `None` if the contract does not implement the function; `decimals` and `symbol` are optional in ERC-20.
    pub decimals: Option<u8>,
    pub symbol: Option<String>,
}

/// A model reads the symbol, and the author of the contract chose it, so its length is limited.
const MAX_SYMBOL_CHARS: usize = 32;

pub(crate) async fn holding(
    chain: &Chain,
    token: Address,
    owner: Address,
) -> Result<Holding, Failure> {
    let (units, decimals, symbol) = tokio::join!(
        chain.read_contract(token, balance_of(owner)),
        chain.read_contract(token, DECIMALS.to_vec()),
        chain.read_contract(token, SYMBOL.to_vec()),
    );
    let no_token = || {
        let name = &chain.name;
        Failure::other(format!(
            "there is no ERC-20 token at {token} on the chain `{name}`"
        ))
    };
    let units = match units {
        Ok(bytes) => decode_number(&bytes).ok_or_else(no_token)?,
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

/// The call `balanceOf(owner)`: an address is a word with leading zeros.
fn balance_of(owner: Address) -> Vec<u8> {
    [&BALANCE_OF[..], owner.into_word().as_slice()].concat()
}

/// Decodes a number: the first word. Some contracts return more than one.
fn decode_number(bytes: &[u8]) -> Option<U256> {
    bytes
        .first_chunk::<WORD>()
        .map(|word| U256::from_be_bytes(*word))
}

fn decode_decimals(bytes: &[u8]) -> Option<u8> {
    decode_number(bytes)?.try_into().ok()
}

/// Decodes a string: a word with the offset of its length, and its bytes after the length. The padding is ignored.
fn decode_text(bytes: &[u8]) -> Option<String> {
    let offset: usize = decode_number(bytes)?.try_into().ok()?;
    let (length, rest) = bytes.get(offset..)?.split_at_checked(WORD)?;
    let length: usize = decode_number(length)?.try_into().ok()?;
    String::from_utf8(rest.get(..length)?.to_vec()).ok()
}

/// Decodes a string, or the form of the oldest tokens: 32 bytes, padded with zeros.
fn decode_symbol(bytes: &[u8]) -> Option<String> {
    let text = if bytes.len() == 32 {
        let end = bytes.iter().position(|byte| *byte == 0);
        String::from_utf8(bytes[..end.unwrap_or(32)].to_vec()).ok()?
    } else {
        decode_text(bytes)?
    };
    let printable = text.chars().filter(|c| !c.is_control());
    let text: String = printable.take(MAX_SYMBOL_CHARS).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use alloy_primitives::{hex, keccak256};

    use super::*;

    /// Checks the function selectors of the ERC-20 standard.
    #[test]
    fn calls_are_encoded_as_erc_20_defines() {
        let owner = Address::repeat_byte(0x11);
        assert_eq!(
            hex::encode(balance_of(owner)),
            format!("70a08231{}{}", "00".repeat(12), "11".repeat(20))
        );
        for (selector, signature) in [
            (BALANCE_OF, "balanceOf(address)"),
            (DECIMALS, "decimals()"),
            (SYMBOL, "symbol()"),
        ] {
            assert_eq!(keccak256(signature)[..4], selector, "{signature}");
        }
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
        let word = |number: usize| U256::from(number).to_be_bytes::<WORD>();
        let encoded = |text: &str| {
            let mut bytes = [word(WORD), word(text.len())].concat();
            bytes.extend_from_slice(text.as_bytes());
            bytes.resize(bytes.len().next_multiple_of(WORD), 0);
            bytes
        };
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
        let good = encoded("USDC");
        let longer = [&good[..], &[0; WORD]].concat();
        assert_eq!(decode_symbol(&longer).as_deref(), Some("USDC"));
        let unpadded = &good[..68];
        assert_eq!(decode_symbol(unpadded).as_deref(), Some("USDC"));
        assert_eq!(decode_symbol(&good[..67]), None, "cut off");
        // The offset and the length lead beyond the end, or the text is not UTF-8.
        for (at, byte) in [(0, 0xff), (31, 96), (32, 0xff), (63, 33), (64, 0xff)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(decode_symbol(&bad), None, "byte {at}");
        }
    }
}
