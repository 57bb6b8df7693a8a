//! What an issuer says of itself (OpenID Connect Discovery 1.0).

use serde::Deserialize;

use super::OidcError;
use crate::config::is_safe_url;

#[derive(Debug, Deserialize)]
pub struct Document {
    issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub jwks_uri: String,
    pub userinfo_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// How we prove to the token endpoint who we are.
#[derive(Debug, PartialEq, Eq)]
pub enum SecretGoes {
    InTheHeader,
    InTheBody,
}

/// Where an issuer's document is.
pub fn url(issuer: &str) -> String {
    let issuer = issuer.trim_end_matches('/');
    format!("{issuer}/.well-known/openid-configuration")
}

impl Document {
    /// The document, if it is this issuer's and leads nowhere that is not safe.
    pub fn checked(self, issuer: &str) -> Result<Self, OidcError> {
        if self.issuer != issuer {
            let own: String = self.issuer.chars().take(200).collect();
            return Err(OidcError::Unavailable(format!(
                "its configuration is that of `{own}`; write this as `issuer`, if it is the one that is meant"
            )));
        }
        let urls = [
            Some(&self.authorization_endpoint),
            Some(&self.token_endpoint),
            Some(&self.jwks_uri),
            self.userinfo_endpoint.as_ref(),
        ];
        let with_tls = issuer.starts_with("https:");
        let is_fit = |url: &String| is_safe_url(url) && (!with_tls || url.starts_with("https:"));
        if urls.into_iter().flatten().all(is_fit) {
            Ok(self)
        } else {
            let words = "its configuration leads to an address that is not `https`";
            Err(OidcError::Unavailable(words.into()))
        }
    }

    pub fn secret_goes(&self) -> Result<SecretGoes, OidcError> {
        let Some(methods) = &self.token_endpoint_auth_methods_supported else {
            return Ok(SecretGoes::InTheHeader);
        };
        let has = |method: &str| methods.iter().any(|one| one == method);
        if has("client_secret_basic") {
            Ok(SecretGoes::InTheHeader)
        } else if has("client_secret_post") {
            Ok(SecretGoes::InTheBody)
        } else {
            let words = "its token endpoint takes no `client_secret` in a way that is known here";
            Err(OidcError::Unavailable(words.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ISSUER: &str = "https://id.example.com/realm/";

    fn document(changed: &[(&str, Value)]) -> Document {
        let mut document = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://id.example.com/authorize?realm=1",
            "token_endpoint": "https://id.example.com/token",
            "jwks_uri": "https://keys.example.net/keys",
        });
        for (key, value) in changed {
            document[*key] = value.clone();
        }
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn a_document_is_its_issuers_letter_by_letter_and_leads_to_https() {
        let url = url(ISSUER);
        assert_eq!(
            url,
            "https://id.example.com/realm/.well-known/openid-configuration"
        );
        assert!(document(&[]).checked(ISSUER).is_ok());
        for (key, value) in [
            ("issuer", "https://id.example.com/realm"),
            ("issuer", "https://evil.example/realm/"),
            ("authorization_endpoint", "javascript:alert(1)"),
            ("authorization_endpoint", "http://id.example.com/authorize"),
            ("token_endpoint", "http://127.0.0.1/token"),
            ("jwks_uri", "ftp://id.example.com/keys"),
            ("userinfo_endpoint", "http://id.example.com/me"),
        ] {
            let changed = document(&[(key, value.into())]);
            assert!(changed.checked(ISSUER).is_err(), "{key} {value}");
        }
    }

    #[test]
    fn http_is_for_this_machine() {
        for safe in [
            "https://id.example.com",
            "http://localhost:8080/realm",
            "http://127.0.0.1:9",
            "http://[::1]:80/",
        ] {
            assert!(is_safe_url(safe), "{safe}");
        }
        for other in [
            "http://id.example.com",
            "http://localhost.example.com",
            "https://me:secret@id.example.com",
            "https://",
            "id.example.com",
            "",
        ] {
            assert!(!is_safe_url(other), "{other}");
        }
    }

    #[test]
    fn a_secret_goes_where_the_issuer_takes_it() {
        let methods = "token_endpoint_auth_methods_supported";
        for (offered, expected) in [
            (Value::Null, Some(SecretGoes::InTheHeader)),
            (
                json!(["client_secret_post", "client_secret_basic"]),
                Some(SecretGoes::InTheHeader),
            ),
            (json!(["client_secret_post"]), Some(SecretGoes::InTheBody)),
            (json!(["private_key_jwt"]), None),
        ] {
            let goes = document(&[(methods, offered.clone())]).secret_goes();
            assert_eq!(goes.ok(), expected, "{offered}");
        }
    }
}
