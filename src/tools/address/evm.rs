//! Addresses of Ethereum and other EVM chains.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub bytes: alloy_primitives::Address,
    pub checksum: Checksum,
}

/// State of the EIP-55 checksum, which is encoded in the case of the letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Checksum {
    Right,
    /// No checksum: all letters have the same case, or there are no letters.
    Absent,
    Wrong,
}

pub(crate) fn looks_like(text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.starts_with("0x") || text.starts_with("0X") || text.len() == 40 && hex(text)
}

/// Parses an address. A wrong checksum is not an error: the caller decides what to do with it.
pub(crate) fn read(text: &str) -> Result<Address, String> {
    let Some(digits) = text.strip_prefix("0x") else {
        return Err("it must begin with `0x`".into());
    };
    if let Some(other) = digits.chars().find(|digit| !digit.is_ascii_hexdigit()) {
        return Err(format!("`{other}` is not a hexadecimal digit"));
    }
    match digits.len() {
        40 => {}
        64 => {
            let looks = "it has 64 digits, as a transaction's hash or a private key has";
            return Err(format!("{looks}; an address has 40"));
        }
        count => {
            return Err(format!(
                "it has {count} digits after `0x`; an address has 40"
            ));
        }
    }
    let bytes = text
        .parse()
        .map_err(|_| "it is not hexadecimal".to_owned())?;
    Ok(Address {
        bytes,
        checksum: checksum(digits, bytes),
    })
}

fn checksum(digits: &str, bytes: alloy_primitives::Address) -> Checksum {
    let lower = digits.bytes().any(|byte| byte.is_ascii_lowercase());
    let upper = digits.bytes().any(|byte| byte.is_ascii_uppercase());
    if bytes.to_checksum(None).ends_with(digits) {
        // An address without letters carries no checksum.
        if lower || upper {
            Checksum::Right
        } else {
            Checksum::Absent
        }
    } else if lower && upper {
        Checksum::Wrong
    } else {
        Checksum::Absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples in EIP-55.
    const EXAMPLES: [&str; 8] = [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x27b1fdb04752bbc536007a920d24acb045561c26",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ];

    #[test]
    fn checksums_are_those_of_eip_55() {
        for example in EXAMPLES {
            let address = read(example).unwrap();
            assert_eq!(address.checksum, Checksum::Right, "{example}");
            assert_eq!(address.bytes.to_checksum(None), example);
            let lower = example.to_lowercase();
            let again = read(&lower).unwrap();
            assert_eq!(again.bytes.to_checksum(None), example);
        }
        for (text, checksum) in [
            (
                "0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed",
                Checksum::Absent,
            ),
            (
                "0x5AAEB6053F3E94C9B9A09F33669435E7EF1BEAED",
                Checksum::Absent,
            ),
            (
                "0x0000000000000000000000000000000000000000",
                Checksum::Absent,
            ),
            (
                "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1Beaed",
                Checksum::Wrong,
            ),
            (
                "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAee",
                Checksum::Wrong,
            ),
        ] {
            assert_eq!(read(text).unwrap().checksum, checksum, "{text}");
        }
    }

    #[test]
    fn errors_name_the_reason() {
        for (text, expected) in [
            ("0x", "0 digits"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAe", "39 digits"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAedd", "41 digits"),
            ("0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAeg", "`g` is not"),
            (
                "5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
                "must begin with `0x`",
            ),
            (
                "0X5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
                "must begin with `0x`",
            ),
            (&format!("0x{}", "ab".repeat(32)), "a transaction's hash"),
        ] {
            assert!(looks_like(text), "{text}");
            let reason = read(text).unwrap_err();
            assert!(reason.contains(expected), "{text}: {reason}");
        }
    }
}
