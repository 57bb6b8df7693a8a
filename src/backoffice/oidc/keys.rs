//! The issuer's JSON Web Keys (RFC 7517), as far as their algorithms are supported.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// The supported algorithms. `none` and algorithms with a shared secret (`HS256`) are not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// The key set as it is sent. Parsed key by key, so that unreadable keys are skipped.
#[derive(Deserialize)]
pub(crate) struct KeySet {
    keys: Vec<Value>,
}

/// A key as it is sent.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

pub(crate) struct Key {
    pub id: Option<String>,
    public: Public,
}

enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl KeySet {
    pub(crate) fn usable(self) -> Vec<Key> {
        self.keys.into_iter().filter_map(Key::read).collect()
    }
}

impl Key {
    /// `None` if the key cannot be read, is not for signatures or has an unsupported algorithm.
    fn read(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", None) => Public::Rsa {
                n: number(jwk.n?)?,
                e: number(jwk.e?)?,
            },
            ("EC", Some("P-256")) => {
                // SEC 1: 4 marks an uncompressed point.
                Public::P256([vec![4], bytes(jwk.x?)?, bytes(jwk.y?)?].concat())
            }
            ("OKP", Some("Ed25519")) => Public::Ed25519(bytes(jwk.x?)?),
            _ => return None,
        };
        let key = Self {
            id: jwk.kid,
            public,
        };
        let is_for_signing = jwk.purpose.is_none_or(|purpose| purpose == "sig");
        let algorithm = jwk.alg.as_deref().map(Algorithm::parse);
        let has_algorithm = algorithm.is_none_or(|one| one == Some(key.algorithm()));
        (is_for_signing && has_algorithm).then_some(key)
    }

    fn algorithm(&self) -> Algorithm {
        match self.public {
            Public::Rsa { .. } => Algorithm::Rs256,
            Public::P256(_) => Algorithm::Es256,
            Public::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether `message` was signed with this key, by the algorithm of the key.
    pub(crate) fn has_signed(
        &self,
        algorithm: Algorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let checked = match &self.public {
            _ if algorithm != self.algorithm() => return false,
            Public::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
            Public::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            Public::Ed25519(point) => {
                UnparsedPublicKey::new(&ED25519, point).verify(message, signature)
            }
        };
        checked.is_ok()
    }
}

fn bytes(text: String) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

/// Decodes an integer without leading zeros, which some issuers add and `ring` refuses.
fn number(text: String) -> Option<Vec<u8>> {
    let bytes = bytes(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec())
}
