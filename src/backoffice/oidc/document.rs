//! The issuer's discovery document (OpenID Connect Discovery 1.0).

use serde::Deserialize;

use super::OidcError;
use crate::config::is_safe_url;

#[derive(Debug, Deserialize)]
pub(crate) struct Document {
    issuer: String,
    pub authorization_endpoint: String,
    pub token_endpoint: String,
    pub jwks_uri: String,
    pub(crate) userinfo_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
}

/// How the client authenticates at the token endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClientAuth {
    /// `client_secret_basic`: the secret in the `Authorization` header.
    Basic,
    /// `client_secret_post`: the secret in the body.
    Post,
}

/// The URL of an issuer's discovery document.
pub(crate) fn url(issuer: &str) -> String {
    let issuer = issuer.trim_end_matches('/');
    format!("{issuer}/.well-known/openid-configuration")
}

impl Document {
    /// Checks that the document is this issuer's and that its URLs are safe.
    pub(crate) fn checked(self, issuer: &str) -> Result<Self, OidcError> {
        if self.issuer != issuer {
            let own: String = self.issuer.chars().take(200).collect();
            return Err(OidcError::Unavailable(format!(
                "its discovery document is that of `{own}`; set `issuer` to this value if it is the intended issuer"
            )));
        }
        let urls = [
            Some(&self.authorization_endpoint),
            Some(&self.token_endpoint),
            Some(&self.jwks_uri),
            self.userinfo_endpoint.as_ref(),
        ];
        let with_tls = issuer.starts_with("https:");
        let is_safe = |url: &String| is_safe_url(url) && (!with_tls || url.starts_with("https:"));
        if urls.into_iter().flatten().all(is_safe) {
            Ok(self)
        } else {
            let reason = "its discovery document has a URL that is not `https`";
            Err(OidcError::Unavailable(reason.into()))
        }
    }

    /// How to authenticate at the token endpoint; `Basic` is the standard's default.
    pub(crate) fn client_auth(&self) -> Result<ClientAuth, OidcError> {
        let Some(methods) = &self.token_endpoint_auth_methods_supported else {
            return Ok(ClientAuth::Basic);
        };
        let has = |method: &str| methods.iter().any(|one| one == method);
        if has("client_secret_basic") {
            Ok(ClientAuth::Basic)
        } else if has("client_secret_post") {
            Ok(ClientAuth::Post)
        } else {
            let reason = "its token endpoint supports neither `client_secret_basic` nor `client_secret_post`";
            Err(OidcError::Unavailable(reason.into()))
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
    fn the_issuer_must_match_exactly_and_urls_must_be_https() {
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
    fn plain_http_is_allowed_for_loopback_only() {
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
    fn the_client_authenticates_as_the_issuer_supports() {
        let methods = "token_endpoint_auth_methods_supported";
        for (offered, expected) in [
            (Value::Null, Some(ClientAuth::Basic)),
            (
                json!(["client_secret_post", "client_secret_basic"]),
                Some(ClientAuth::Basic),
            ),
            (json!(["client_secret_post"]), Some(ClientAuth::Post)),
            (json!(["private_key_jwt"]), None),
        ] {
            let auth = document(&[(methods, offered.clone())]).client_auth();
            assert_eq!(auth.ok(), expected, "{offered}");
        }
    }
}
