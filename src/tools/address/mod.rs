//! Addresses of the chains we know, told apart by their form alone.

pub mod bitcoin;
pub mod evm;
pub mod solana;

/// What a text turns out to be.
#[derive(Debug, PartialEq, Eq)]
pub enum Address {
    Evm(evm::Address),
    Bitcoin(bitcoin::Address),
    Solana,
    /// With the family it seems to be of, if any, and what is wrong with it.
    Invalid(Option<Family>, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Evm,
    Bitcoin,
    Solana,
}

/// Longer texts are nothing that any chain calls an address.
const MAX_CHARS: usize = 100;

/// The three forms do not overlap: hexadecimal after `0x`; a prefix and `1` for segregated
/// witness; and base58, where 25 bytes with a checksum are Bitcoin's and 32 bytes are Solana's.
pub fn inspect(text: &str) -> Address {
    let invalid = |family, reason: &str| Address::Invalid(family, reason.into());
    if text.is_empty() {
        return invalid(None, "it is empty");
    }
    if text.len() > MAX_CHARS {
        return invalid(None, "it is longer than any address");
    }
    if evm::looks_like(text) {
        return match evm::read(text) {
            Ok(address) => Address::Evm(address),
            Err(reason) => Address::Invalid(Some(Family::Evm), reason),
        };
    }
    if bitcoin::looks_like_segwit(text) {
        return match bitcoin::read_segwit(text) {
            Ok(address) => Address::Bitcoin(address),
            Err(reason) => Address::Invalid(Some(Family::Bitcoin), reason),
        };
    }
    if text.contains('.') {
        return invalid(None, "it is a name, and names are not looked up here");
    }
    let bytes = match bs58::decode(text).into_vec() {
        Ok(bytes) => bytes,
        Err(bs58::decode::Error::InvalidCharacter { character, .. }) => {
            let reason = format!("it has no known form, and `{character}` is not used in base58");
            return Address::Invalid(None, reason);
        }
        Err(_) => return invalid(None, "it has no known form"),
    };
    match bytes.len() {
        25 => match bitcoin::read_base58(text) {
            Ok(address) => Address::Bitcoin(address),
            Err(reason) => Address::Invalid(Some(Family::Bitcoin), reason),
        },
        solana::BYTES => Address::Solana,
        length => {
            let reason = format!(
                "it is {length} bytes of base58; a Bitcoin address has 25 and a Solana address 32"
            );
            Address::Invalid(None, reason)
        }
    }
}
