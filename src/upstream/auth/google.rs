//! Requests for tokens of Google: with an assertion that a service account's key signs (RFC 7523), with the refresh
//! token of a person, or from the metadata server of the machine.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls_pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::json;

use super::token::TokenRequest;
use crate::config::Google;

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// How long an assertion is valid, in seconds: the longest that Google accepts.
const ASSERTION_SECONDS: i64 = 3_600;

/// Credentials whose key has been read.
pub(crate) struct Grant {
    credentials: Google,
    key: Option<RsaKeyPair>,
}

impl Grant {
    pub(crate) fn new(credentials: &Google) -> Result<Self, String> {
        let key = match credentials {
            Google::ServiceAccount { private_key, .. } => Some(read_key(private_key.reveal())?),
            Google::User { .. } | Google::Metadata { .. } => None,
        };
        Ok(Self {
            credentials: credentials.clone(),
            key,
        })
    }

    /// The request for a token at this time, in seconds since 1970.
    pub(crate) fn request(&self, now: i64) -> Result<TokenRequest, String> {
        match &self.credentials {
            Google::ServiceAccount { token_url, .. } => Ok(posted(
                token_url,
                vec![
                    ("grant_type", GRANT_TYPE.to_owned()),
                    ("assertion", self.assertion(now)?),
                ],
            )),
            Google::User {
                client_id,
                client_secret,
                refresh_token,
                token_url,
            } => Ok(posted(
                token_url,
                vec![
                    ("grant_type", "refresh_token".to_owned()),
                    ("client_id", client_id.clone()),
                    ("client_secret", client_secret.reveal().to_owned()),
                    ("refresh_token", refresh_token.reveal().to_owned()),
                ],
            )),
            Google::Metadata { host } => Ok(TokenRequest {
                url: format!(
                    "http://{host}/computeMetadata/v1/instance/service-accounts/default/token"
                ),
                headers: vec![("metadata-flavor", "Google".to_owned())],
                form: None,
            }),
        }
    }

    /// A JSON Web Token that claims to be the service account, signed with its key (RS256).
    fn assertion(&self, now: i64) -> Result<String, String> {
        let (
            Google::ServiceAccount {
                email,
                key_id,
                token_url,
                ..
            },
            Some(key),
        ) = (&self.credentials, &self.key)
        else {
            return Err("these credentials have no key".into());
        };
        let mut header = json!({ "alg": "RS256", "typ": "JWT" });
        if let Some(id) = key_id {
            header["kid"] = json!(id);
        }
        let claims = json!({
            "iss": email,
            "scope": SCOPE,
            "aud": token_url,
            "iat": now,
            "exp": now + ASSERTION_SECONDS,
        });
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(
            &RSA_PKCS1_SHA256,
            &SystemRandom::new(),
            signed.as_bytes(),
            &mut signature,
        )
        .map_err(|_| "the key of the service account cannot sign")?;
        Ok(format!("{signed}.{}", encode(&signature)))
    }
}

fn posted(token_url: &str, form: Vec<(&'static str, String)>) -> TokenRequest {
    TokenRequest {
        url: token_url.to_owned(),
        headers: Vec::new(),
        form: Some(form),
    }
}

/// Reads a key in PEM. What is wrong with it does not quote it.
fn read_key(pem: &str) -> Result<RsaKeyPair, String> {
    let wrong = "the `private_key` in its `credentials_file` is no RSA key in PEM (PKCS#8)";
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| wrong)?;
    let key = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der());
    Ok(key.map_err(|_| wrong)?)
}

#[cfg(test)]
mod tests;
