//! API keys, other secrets and random IDs. Secrets have no `Display`, so that they cannot be printed by accident.

use std::fmt;

use rand::RngExt as _;
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sk-svc-";
const RANDOM_CHARS: usize = 48;
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A caller's API key in plain text, as a request presented it or as it was just generated.
///
/// Only its digest is stored and looked up. It has no `Display` and no `Serialize`, so
/// printing or storing it by accident does not compile:
///
/// ```compile_fail
/// let key = tollgate::base::keys::ApiKey::generate();
/// println!("{key}");
/// ```
pub struct ApiKey(Box<str>);

/// The digest by which a key is stored and looked up.
///
/// It is a plain SHA-256: a key has 288 random bits and cannot be guessed, so a slow hash would only cost time.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyDigest(pub [u8; 32]);

impl ApiKey {
    pub(crate) fn generate() -> Self {
        Self(format!("{PREFIX}{}", random_text(RANDOM_CHARS)).into())
    }

    /// Returns the key if the text has the form of one. Other texts are rejected without a lookup.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(PREFIX)?;
        let is_url_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        // Without an early exit the compiler vectorizes this loop, which is faster for valid keys.
        let bad = random.bytes().filter(|byte| !is_url_safe(*byte)).count();
        (random.len() == RANDOM_CHARS && bad == 0).then(|| Self(text.into()))
    }

    pub fn digest(&self) -> KeyDigest {
        KeyDigest(Sha256::digest(self.0.as_bytes()).into())
    }

    /// The first twelve characters, which stay visible after creation.
    pub(crate) fn visible_prefix(&self) -> &str {
        &self.0[..12]
    }

    /// The key in full, for the one response that shows it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl KeyDigest {
    /// The digest in hexadecimal digits, as the database's functions read it.
    pub(crate) fn to_hex(self) -> String {
        super::hex::hex(&self.0)
    }
}

impl fmt::Debug for KeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyDigest(..)")
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(..)")
    }
}

/// A secret from the configuration, such as the operator token or a provider's key.
#[derive(Clone)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    pub(crate) fn generate() -> Self {
        Self(random_text(40).into())
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `presented` is this secret. Compares digests, so that the time taken does not reveal how many
    /// characters were right.
    pub fn matches(&self, presented: &str) -> bool {
        Sha256::digest(self.0.as_bytes()) == Sha256::digest(presented.as_bytes())
    }
}

/// Compares digests, as [`Secret::matches`] does.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The characters of our IDs, in the order of their bytes, so that IDs sort like the numbers in them.
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const ID_CHARS: usize = 24;
const TIME_CHARS: u8 = 9;

/// An ID: the prefix `kind`, such as `acct_`, and 24 random characters.
pub(crate) fn random_id(kind: &str) -> String {
    let mut id = String::with_capacity(kind.len() + ID_CHARS);
    id.push_str(kind);
    push_random(&mut id, ID_CHARS);
    id
}

/// A time-ordered ID: the prefix `kind`, the time in nine characters, and random characters, 24 after the prefix.
///
/// For records that are created often and looked up by their ID: recent ones are next to each other in an index.
pub(crate) fn rising_id(kind: &str, now_ms: u64) -> String {
    let mut id = String::with_capacity(kind.len() + ID_CHARS);
    id.push_str(kind);
    for place in (0..TIME_CHARS).rev() {
        let digit = (now_ms / 36_u64.pow(place.into())) % 36;
        id.push(char::from(ALPHABET[usize::try_from(digit).unwrap_or(0)]));
    }
    push_random(&mut id, ID_CHARS - usize::from(TIME_CHARS));
    id
}

fn push_random(id: &mut String, count: usize) {
    let mut rng = rand::rng();
    // Eight characters of 36 are 41 bits of 64, so the modulo bias is below a millionth.
    for start in (0..count).step_by(8) {
        let mut word: u64 = rng.random();
        for _ in start..count.min(start + 8) {
            id.push(char::from(
                ALPHABET[usize::try_from(word % 36).unwrap_or(0)],
            ));
            word /= 36;
        }
    }
}

/// `length` random characters that need no escaping in a URL or a cookie.
pub(crate) fn random_text(length: usize) -> String {
    random_characters(URL_SAFE, length)
}

/// `length` random characters of an alphabet.
pub(crate) fn random_characters(alphabet: &[u8], length: usize) -> String {
    let mut rng = rand::rng();
    (0..length)
        .map(|_| char::from(alphabet[rng.random_range(0..alphabet.len())]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_has_the_published_form() {
        let key = ApiKey::generate();
        assert_eq!(key.reveal().len(), 55);
        assert!(key.reveal().starts_with("sk-svc-"));
        assert_eq!(key.visible_prefix().len(), 12);
        assert!(ApiKey::parse(key.reveal()).is_some());
        assert_ne!(key.reveal(), ApiKey::generate().reveal());
    }

    #[test]
    fn texts_of_another_form_are_rejected() {
        let good = ApiKey::generate().reveal().to_owned();
        for bad in [
            "",
            "sk-svc-",
            &good[..54],
            &format!("{good}A"),
            &good.replace("sk-svc-", "sk-abc-"),
            &format!("{}!", &good[..54]),
        ] {
            assert!(ApiKey::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn rising_ids_sort_by_their_times() {
        let times = [
            0,
            1,
            35,
            36,
            1_794_000_000_000,
            1_794_000_000_001,
            99_000_000_000_000,
        ];
        let ids = times.map(|now| rising_id("req_", now));
        assert!(ids.is_sorted(), "{ids:?}");
        assert!(ids.iter().all(|id| id.len() == random_id("req_").len()));
        assert_ne!(rising_id("req_", 1), rising_id("req_", 1));
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let key = ApiKey::generate();
        let secret = Secret::new("hush");
        assert_eq!(format!("{key:?} {secret:?}"), "ApiKey(..) Secret(..)");
        assert!(secret.matches("hush") && !secret.matches("hus") && !secret.matches(""));
    }
}
