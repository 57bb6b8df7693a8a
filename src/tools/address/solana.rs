//! Solana addresses: 32 bytes in base58, without a checksum.
//!
//! Points on the curve (wallets) and other values (accounts of programs) are both addresses, so the curve is not
//! checked.

pub(crate) const BYTES: usize = 32;

#[cfg(test)]
mod tests {
    use super::super::{Address, inspect};

    #[test]
    fn thirty_two_bytes_are_an_address() {
        for text in [
            "11111111111111111111111111111111", // the system program
            "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA", // the token program
            "So11111111111111111111111111111111111111112", // wrapped SOL
            "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v", // USDC
            "Vote111111111111111111111111111111111111111",
        ] {
            assert_eq!(inspect(text), Address::Solana, "{text}");
        }
    }

    #[test]
    fn other_lengths_and_characters_are_no_address() {
        for text in [
            "1111111111111111111111111111111",                 // 31 bytes
            "111111111111111111111111111111111",               // 33 bytes
            "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5D",      // cut
            "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA5DA1", // too long
            "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5Dl",     // no `l` in base58
            "hello",
            "hello world",
            "vitalik.eth",
            "",
            "💰",
            &"1".repeat(10_000),
        ] {
            assert!(matches!(inspect(text), Address::Invalid(..)), "{text}");
        }
    }
}
