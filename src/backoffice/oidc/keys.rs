//! The keys that an issuer signs with (RFC 7517), as far as we can check with them.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// How a token may be signed. `none` is no way, nor is a secret that both sides have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Rs256,
    Es256,
    EdDsa,
}

impl Algorithm {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "EdDSA" => Some(Self::EdDsa),
            _ => None,
        }
    }
}

/// As it is sent; a key that cannot be read is one that is not there.
#[derive(Deserialize)]
pub struct KeySet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Written {
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

pub struct Key {
    pub id: Option<String>,
    public: Public,
}

enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

impl KeySet {
    pub fn usable(self) -> Vec<Key> {
        self.keys.into_iter().filter_map(Key::read).collect()
    }
}

impl Key {
    fn read(written: Value) -> Option<Self> {
        let written: Written = serde_json::from_value(written).ok()?;
        let public = match (written.kty.as_str(), written.crv.as_deref()) {
            ("RSA", None) => Public::Rsa {
                n: number(written.n?)?,
                e: number(written.e?)?,
            },
            ("EC", Some("P-256")) => {
                // SEC 1: a point that is written out in full.
                Public::P256([vec![4], bytes(written.x?)?, bytes(written.y?)?].concat())
            }
            ("OKP", Some("Ed25519")) => Public::Ed25519(bytes(written.x?)?),
            _ => return None,
        };
        let key = Self {
            id: written.kid,
            public,
        };
        let is_for_signing = written.purpose.is_none_or(|purpose| purpose == "sig");
        let algorithm = written.alg.as_deref().map(Algorithm::parse);
        let is_for_this = algorithm.is_none_or(|one| one == Some(key.algorithm()));
        (is_for_signing && is_for_this).then_some(key)
    }

    fn algorithm(&self) -> Algorithm {
        match self.public {
            Public::Rsa { .. } => Algorithm::Rs256,
            Public::P256(_) => Algorithm::Es256,
            Public::Ed25519(_) => Algorithm::EdDsa,
        }
    }

    /// Whether `message` was signed with this key, in the way that goes with it and no other.
    pub fn has_signed(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
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

/// Without zeros in front, which some write.
fn number(text: String) -> Option<Vec<u8>> {
    let bytes = bytes(text)?;
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    Some(bytes[zeros..].to_vec())
}
