//! Recognises and checks addresses of EVM chains, Bitcoin and Solana by their form.

pub(crate) mod bitcoin;
pub(crate) mod evm;
pub(crate) mod solana;

/// Result of inspecting a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Evm(evm::Address),
    Bitcoin(bitcoin::Address),
    Solana,
    /// No valid address: the family that it resembles, if any, and the reason.
    Invalid(Option<Family>, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    Evm,
    Bitcoin,
    Solana,
}

/// No address of any chain is longer.
const MAX_CHARS: usize = 100;

/// Determines what kind of address a text is.
///
/// The forms do not overlap: hexadecimal after `0x` is EVM; a prefix and `1` is Bitcoin with segregated witness; in
/// base58, 25 bytes with a checksum are Bitcoin and 32 bytes are Solana.
pub(crate) fn inspect(text: &str) -> Address {
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
