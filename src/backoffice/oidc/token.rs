//! Parses an ID token and checks its signature (RFC 7515).

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;

use super::{
    OidcError,
    keys::{Algorithm, Key},
};

/// A parsed ID token. Not to be trusted before its signature and its claims are checked.
pub(crate) struct IdToken<'a> {
    algorithm: Algorithm,
    key_id: Option<String>,
    signed: &'a [u8],
    signature: Vec<u8>,
    pub payload: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that the recipient must support; none are supported.
    crit: Option<serde::de::IgnoredAny>,
}

impl<'a> IdToken<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, OidcError> {
        let refused = |why: &str| OidcError::Refused(format!("the ID token {why}"));
        let unreadable = || refused("cannot be read");
        let (signed, signature) = text.rsplit_once('.').ok_or_else(unreadable)?;
        let (header, payload) = signed.split_once('.').ok_or_else(unreadable)?;
        let decode = |part: &str| BASE64_URL_SAFE_NO_PAD.decode(part).ok();
        let header = decode(header).ok_or_else(unreadable)?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| unreadable())?;
        if header.crit.is_some() {
            return Err(refused("requires an unsupported extension (`crit`)"));
        }
        let algorithm = Algorithm::parse(&header.alg);
        let unsupported = || refused("has an unsupported algorithm: not RS256, ES256 or EdDSA");
        Ok(Self {
            algorithm: algorithm.ok_or_else(unsupported)?,
            key_id: header.kid,
            signed: signed.as_bytes(),
            signature: decode(signature).ok_or_else(unreadable)?,
            payload: decode(payload).ok_or_else(unreadable)?,
        })
    }

    /// Whether the token is signed by the key that it names, or by any of the keys if it names none.
    pub(crate) fn is_signed_by(&self, keys: &[Key]) -> bool {
        let mut keys = keys
            .iter()
            .filter(|key| self.key_id.is_none() || key.id == self.key_id);
        keys.any(|key| key.has_signed(self.algorithm, self.signed, &self.signature))
    }

    /// Whether the token names one of these keys.
    pub(crate) fn names_one_of(&self, keys: &[Key]) -> bool {
        self.key_id.is_some() && keys.iter().any(|key| key.id == self.key_id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::backoffice::oidc::keys::KeySet;

    /// From RFC 7515, A.2 and A.3.
    const CLAIMS: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";

    fn keys(key: &Value) -> Vec<Key> {
        let set: KeySet = serde_json::from_value(json!({ "keys": [key] })).unwrap();
        set.usable()
    }

    /// Keys and tokens from the standards.
    fn examples() -> [(Value, String); 3] {
        let rsa = json!({
            "kty": "RSA", "e": "AQAB",
            "n": "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
        });
        let ec = json!({
            "kty": "EC", "crv": "P-256",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        });
        let ed = json!({
            "kty": "OKP", "crv": "Ed25519",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        });
        [
            (
                rsa,
                format!(
                    "eyJhbGciOiJSUzI1NiJ9.{CLAIMS}.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw"
                ),
            ),
            (
                ec,
                format!(
                    "eyJhbGciOiJFUzI1NiJ9.{CLAIMS}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
                ),
            ),
            // From RFC 8037, A.4.
            (
                ed,
                "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg".into(),
            ),
        ]
    }

    #[test]
    fn the_examples_of_the_standards_are_signed_by_their_keys_and_no_others() {
        let examples = examples();
        for (at, (_, text)) in examples.iter().enumerate() {
            let token = IdToken::parse(text).unwrap();
            for (other, (key, _)) in examples.iter().enumerate() {
                let signed = token.is_signed_by(&keys(key));
                assert_eq!(signed, at == other, "{text}");
            }
            let (signed, signature) = text.rsplit_once('.').unwrap();
            let (header, _) = signed.split_once('.').unwrap();
            for changed in [
                format!("{header}.e30.{signature}"),
                format!("{signed}."),
                format!("{signed}.AAAA"),
            ] {
                let token = IdToken::parse(&changed).unwrap();
                assert!(!token.is_signed_by(&keys(&examples[at].0)));
            }
        }
    }

    #[test]
    fn use_and_algorithm_of_a_key_are_respected() {
        let [_, (key, text), _] = examples();
        let token = IdToken::parse(&text).unwrap();
        for (field, value, is_used) in [
            ("use", "sig", true),
            ("use", "enc", false),
            ("alg", "ES256", true),
            ("alg", "RS256", false),
            ("alg", "none", false),
            ("crv", "P-384", false),
            ("x", "not base64!", false),
        ] {
            let mut key = key.clone();
            key[field] = value.into();
            assert_eq!(token.is_signed_by(&keys(&key)), is_used, "{field} {value}");
        }
    }

    #[test]
    fn unsupported_and_malformed_tokens_are_refused() {
        let with = |header: &str| {
            let header = BASE64_URL_SAFE_NO_PAD.encode(header);
            format!("{header}.{CLAIMS}.")
        };
        for wrong in [
            with(r#"{"alg":"none"}"#),
            with(r#"{"alg":"HS256"}"#),
            with(r#"{"alg":"RS1"}"#),
            with(r#"{"alg":"ES256","crit":["exp"]}"#),
            with("{}"),
            with("ES256"),
            format!("{CLAIMS}.{CLAIMS}"),
            "a.b.c".into(),
            String::new(),
        ] {
            assert!(IdToken::parse(&wrong).is_err(), "{wrong}");
        }
    }
}
