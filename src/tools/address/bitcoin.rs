//! Bitcoin addresses: base58 with a checksum; bech32 and bech32m for segregated witness.

use bech32::{
    primitives::decode::{CharError, SegwitHrpstringError, UncheckedHrpstringError},
    segwit,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub network: Network,
    pub kind: Kind,
    pub encoding: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Network {
    Mainnet,
    /// Also signet, whose addresses have the same form.
    Testnet,
    Regtest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    P2pkh,
    P2sh,
    P2wpkh,
    P2wsh,
    P2tr,
    /// A witness version or length without a defined meaning yet; anyone can spend coins sent to it.
    #[serde(rename = "future_witness")]
    FutureWitness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Encoding {
    Base58,
    Bech32,
    Bech32m,
}

const PREFIXES: [(&str, Network); 3] = [
    ("bc", Network::Mainnet),
    ("tb", Network::Testnet),
    ("bcrt", Network::Regtest),
];

pub(crate) fn looks_like_segwit(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let prefix = lower.rsplit_once('1').map(|(prefix, _)| prefix);
    let matches = |(known, _): &(&str, Network)| {
        // The last `1` is the separator. If a later `1` is a typo, the start of the text still has the prefix.
        prefix == Some(*known) || lower.starts_with(&format!("{known}1"))
    };
    PREFIXES.iter().any(matches)
}

pub(crate) fn read_segwit(text: &str) -> Result<Address, String> {
    let (prefix, version, program) = segwit::decode(text).map_err(|error| reason(&error.0))?;
    let prefix = prefix.to_lowercase();
    let network = PREFIXES.iter().find(|(known, _)| *known == prefix);
    let Some((_, network)) = network else {
        return Err(format!("`{prefix}` is the prefix of no Bitcoin network"));
    };
    let kind = match (version.to_u8(), program.len()) {
        (0, 20) => Kind::P2wpkh,
        (0, _) => Kind::P2wsh,
        (1, 32) => Kind::P2tr,
        _ => Kind::FutureWitness,
    };
    let encoding = match version.to_u8() {
        0 => Encoding::Bech32,
        _ => Encoding::Bech32m,
    };
    Ok(Address {
        network: *network,
        kind,
        encoding,
    })
}

fn reason(error: &SegwitHrpstringError) -> String {
    match error {
        SegwitHrpstringError::Unchecked(UncheckedHrpstringError::Char(error)) => match error {
            CharError::MixedCase => "it mixes upper and lower case".into(),
            CharError::InvalidChar(character) => format!("`{character}` is not used in bech32"),
            _ => "nothing follows its prefix".into(),
        },
        SegwitHrpstringError::Unchecked(_) => "its prefix cannot be read".into(),
        SegwitHrpstringError::NoData => "nothing follows its prefix".into(),
        SegwitHrpstringError::TooLong(_) => "it is too long".into(),
        SegwitHrpstringError::InvalidWitnessVersion(_) => {
            "its witness version is none of 0 to 16".into()
        }
        SegwitHrpstringError::Padding(_) => "its last bits are wrong".into(),
        SegwitHrpstringError::WitnessLength(_) => {
            "its witness program has a length that is not allowed".into()
        }
        _ => "its checksum is wrong: a character may be mistyped".into(),
    }
}

/// Parses a text of 25 bytes in base58: one byte of version, 20 of hash and four of checksum.
pub(crate) fn read_base58(text: &str) -> Result<Address, String> {
    let checked = bs58::decode(text).with_check(None).into_vec();
    let bytes = checked.map_err(|_| "its checksum is wrong: a character may be mistyped")?;
    let (network, kind) = match bytes[0] {
        0x00 => (Network::Mainnet, Kind::P2pkh),
        0x05 => (Network::Mainnet, Kind::P2sh),
        0x6f => (Network::Testnet, Kind::P2pkh),
        0xc4 => (Network::Testnet, Kind::P2sh),
        version => {
            let reason = format!("version {version} is another currency's, and not Bitcoin's");
            return Err(reason);
        }
    };
    Ok(Address {
        network,
        kind,
        encoding: Encoding::Base58,
    })
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Address as Any, Family, inspect},
        *,
    };

    fn assert_address(text: &str, network: Network, kind: Kind, encoding: Encoding) {
        let address = Address {
            network,
            kind,
            encoding,
        };
        assert_eq!(inspect(text), Any::Bitcoin(address), "{text}");
    }

    fn assert_invalid(text: &str, expected: &str) {
        match inspect(text) {
            Any::Invalid(_, reason) => assert!(reason.contains(expected), "{text}: {reason}"),
            valid => panic!("{text} is {valid:?}"),
        }
    }

    /// Valid test vectors of BIP-350, which include the still valid ones of BIP-173.
    #[test]
    fn addresses_that_bip_350_calls_valid() {
        use {Encoding::*, Kind::*, Network::*};
        for (text, network, kind, encoding) in [
            (
                "BC1QW508D6QEJXTDG4Y5R3ZARVARY0C5XW7KV8F3T4",
                Mainnet,
                P2wpkh,
                Bech32,
            ),
            (
                "tb1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3q0sl5k7",
                Testnet,
                P2wsh,
                Bech32,
            ),
            (
                "bc1pw508d6qejxtdg4y5r3zarvary0c5xw7kw508d6qejxtdg4y5r3zarvary0c5xw7kt5nd6y",
                Mainnet,
                FutureWitness,
                Bech32m,
            ),
            ("BC1SW50QGDZ25J", Mainnet, FutureWitness, Bech32m),
            (
                "bc1zw508d6qejxtdg4y5r3zarvaryvaxxpcs",
                Mainnet,
                FutureWitness,
                Bech32m,
            ),
            (
                "tb1qqqqqp399et2xygdj5xreqhjjvcmzhxw4aywxecjdzew6hylgvsesrxh6hy",
                Testnet,
                P2wsh,
                Bech32,
            ),
            (
                "tb1pqqqqp399et2xygdj5xreqhjjvcmzhxw4aywxecjdzew6hylgvsesf3hn0c",
                Testnet,
                P2tr,
                Bech32m,
            ),
            (
                "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0",
                Mainnet,
                P2tr,
                Bech32m,
            ),
            (
                "bcrt1qs758ursh4q9z627kt3pp5yysm78ddny6txaqgw",
                Regtest,
                P2wpkh,
                Bech32,
            ),
        ] {
            assert_address(text, network, kind, encoding);
        }
    }

    #[test]
    fn addresses_that_bip_173_calls_invalid() {
        for (text, expected) in [
            (
                "tc1qw508d6qejxtdg4y5r3zarvary0c5xw7kg3g4ty",
                "no known form",
            ),
            ("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5", "checksum"),
            (
                "BC13W508D6QEJXTDG4Y5R3ZARVARY0C5XW7KN40WF2",
                "witness version",
            ),
            ("bc1rw5uspcuh", ""),
            (
                "bc10w508d6qejxtdg4y5r3zarvary0c5xw7kw508d6qejxtdg4y5r3zarvary0c5xw7kw5rljs90",
                "",
            ),
            ("BC1QR508D6QEJXTDG4Y5R3ZARVARYV98GJ9P", "length"),
            (
                "tb1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3q0sL5k7",
                "mixes",
            ),
            ("bc1zw508d6qejxtdg4y5r3zarvaryvqyzf3du", ""),
            (
                "tb1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3pjxtptv",
                "last bits",
            ),
            ("bc1gmk9yu", "checksum"),
        ] {
            assert_invalid(text, expected);
        }
    }

    #[test]
    fn addresses_that_bip_350_calls_invalid() {
        for (text, expected) in [
            (
                "tc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vq5zuyut",
                "no known form",
            ),
            (
                "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqh2y7hd",
                "checksum",
            ),
            (
                "tb1z0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqglt7rf",
                "checksum",
            ),
            (
                "BC1S0XLXVLHEMJA6C4DQV22UAPCTQUPFHLXM9H8Z3K2E72Q4K9HCZ7VQ54WELL",
                "checksum",
            ),
            ("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kemeawh", "checksum"),
            (
                "tb1q0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vq24jc47",
                "checksum",
            ),
            (
                "bc1p38j9r5y49hruaue7wxjce0updqjuyyx0kh56v8s25huc6995vvpql3jow4",
                "`o` is not used",
            ),
            (
                "BC130XLXVLHEMJA6C4DQV22UAPCTQUPFHLXM9H8Z3K2E72Q4K9HCZ7VQ7ZWS8R",
                "witness version",
            ),
            ("bc1pw5dgrnzv", "length"),
            (
                "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7v8n0nx0muaewav253zgeav",
                "length",
            ),
            ("BC1QR508D6QEJXTDG4Y5R3ZARVARYV98GJ9P", "length"),
            (
                "tb1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vq47Zagq",
                "mixes",
            ),
            (
                "bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7v07qwwzcrf",
                "last bits",
            ),
            (
                "tb1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vpggkg4j",
                "last bits",
            ),
            ("bc1gmk9yu", "checksum"),
        ] {
            assert_invalid(text, expected);
        }
    }

    #[test]
    fn base58_addresses() {
        use {Encoding::Base58, Kind::*, Network::*};
        assert_address("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa", Mainnet, P2pkh, Base58);
        assert_address("1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2", Mainnet, P2pkh, Base58);
        assert_address("3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy", Mainnet, P2sh, Base58);
        assert_address("mipcBbFg9gMiCh81Kj8tqqdgoZub1ZJRfn", Testnet, P2pkh, Base58);
        assert_address("2MzQwSSnBHWHqSAqtTVQ6v47XtaisrJa1Vc", Testnet, P2sh, Base58);
        assert_address("1111111111111111111114oLvT2", Mainnet, P2pkh, Base58);

        assert_invalid("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb", "checksum is wrong");
        assert_invalid(
            "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfN0",
            "`0` is not used in base58",
        );
        assert_invalid("DH5yaieqoZN36fDVciNyRueRGvGLR3mr7L", "another currency's");
        assert!(matches!(
            inspect("1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNb"),
            Any::Invalid(Some(Family::Bitcoin), _)
        ));
    }
}
