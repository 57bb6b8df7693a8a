//! Sign-in with an OpenID Connect issuer: the authorization code flow with PKCE.
//!
//! The issuer's discovery document and keys are fetched when they are first needed and cached. Requests to the issuer
//! are bounded in time and bytes, and a failure affects only this way of signing in. The reasons of failures are for the
//! log; they contain no code, token or secret.

use std::time::Duration;

use axum::http::{Method, StatusCode, header};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

mod cache;
mod claims;
mod client;
mod document;
mod keys;
mod token;

use self::{
    cache::Cached,
    claims::{Expected, UserClaims},
    client::HttpClient,
    document::{ClientAuth, Document},
    keys::{Key, KeySet},
    token::IdToken,
};
pub(crate) use self::{claims::Claims, client::is_error_code};
use crate::{
    base::{keys::Secret, timestamp},
    config,
};

/// Timeout of each request to the issuer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why a user could not be identified, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OidcError {
    /// The issuer cannot be reached or is not configured properly.
    #[error("{0}")]
    Unavailable(String),
    /// The issuer refused, or its response does not identify the user.
    #[error("{0}")]
    Refused(String),
}

/// The parameters of one attempt to sign in, the same in both steps of the flow.
#[derive(Clone, Copy)]
pub(crate) struct SignInAttempt<'a> {
    /// Where the issuer sends the browser back to.
    pub redirect_uri: &'a str,
    pub state: &'a str,
    pub nonce: &'a str,
    /// The PKCE code verifier, which proves to the issuer that the code is used by the client that requested it.
    pub verifier: &'a str,
}

pub struct Issuer {
    config: config::Oidc,
    http: HttpClient,
    document: Cached<Document>,
    keys: Cached<Vec<Key>>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
    access_token: Option<String>,
}

impl Issuer {
    pub(crate) fn new(config: &config::Oidc) -> Result<Self, String> {
        Ok(Self {
            config: config.clone(),
            http: HttpClient::new(TIMEOUT)?,
            document: Cached::default(),
            keys: Cached::default(),
        })
    }

    /// The display name.
    pub(crate) fn name(&self) -> &str {
        &self.config.name
    }

    /// The issuer identifier (`iss`).
    pub(crate) fn id(&self) -> &str {
        &self.config.issuer
    }

    /// Whether the configuration allows users with this address to sign in.
    pub(crate) fn admits(&self, email: Option<&str>) -> bool {
        let allowed = &self.config.allowed_domains;
        let domain = email.and_then(|email| email.rsplit_once('@'));
        let domain = domain.map(|(_, domain)| domain.to_lowercase());
        allowed.is_empty() || domain.is_some_and(|domain| allowed.contains(&domain))
    }

    /// The URL of the issuer's page on which the user signs in.
    pub(crate) async fn authorization_url(
        &self,
        attempt: SignInAttempt<'_>,
    ) -> Result<String, OidcError> {
        let document = self.document().await?;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(attempt.verifier));
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", attempt.redirect_uri),
            ("scope", &self.config.scopes),
            ("state", attempt.state),
            ("nonce", attempt.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let endpoint = &document.authorization_endpoint;
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{separator}{query}"))
    }

    /// Identifies the user who came back from the issuer with this code.
    pub(crate) async fn identify(
        &self,
        code: &str,
        attempt: SignInAttempt<'_>,
    ) -> Result<Claims, OidcError> {
        let tokens = self.exchange(code, attempt).await?;
        let id_token = tokens.id_token.as_deref();
        let no_token = || OidcError::Refused("there is no ID token in the response".into());
        let token = IdToken::parse(id_token.ok_or_else(no_token)?)?;
        self.check_signature(&token).await?;
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: attempt.nonce,
            now: timestamp::now(),
        };
        let claims = UserClaims::from_token(&token.payload, &expected)?;
        // Some issuers have only `sub` in the token, and the rest at the userinfo endpoint.
        match tokens.access_token {
            Some(access) if claims.email.is_none() => {
                self.fetch_user_info(claims, &Secret::new(access)).await
            }
            _ => Ok(claims.into()),
        }
    }

    /// Checks that the discovery document and usable keys can be fetched.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        let keys = self.keys().await.map_err(|error| error.to_string())?;
        match keys.len() {
            0 => Err("it has no usable key (RS256, ES256 or EdDSA)".into()),
            count => Ok(format!(
                "{} can be reached and has {count} usable keys",
                self.id()
            )),
        }
    }

    async fn document(&self) -> Result<std::sync::Arc<Document>, OidcError> {
        let fetch = async {
            let url = document::url(&self.config.issuer);
            let document: Document = self.http.get("its discovery document", &url, None).await?;
            document.checked(&self.config.issuer)
        };
        self.document.get(fetch).await
    }

    async fn keys(&self) -> Result<std::sync::Arc<Vec<Key>>, OidcError> {
        self.keys.get(self.fetch_keys()).await
    }

    async fn fetch_keys(&self) -> Result<Vec<Key>, OidcError> {
        let document = self.document().await?;
        let set: KeySet = self.http.get("its keys", &document.jwks_uri, None).await?;
        Ok(set.usable())
    }

    /// Checks the token's signature. If the token names a key that is not cached, fetches the keys again, because the
    /// issuer may have a new one.
    async fn check_signature(&self, token: &IdToken<'_>) -> Result<(), OidcError> {
        let keys = self.keys().await?;
        let mut is_valid = token.is_signed_by(&keys);
        if !is_valid && !token.names_one_of(&keys) {
            let keys = self.keys.refresh(self.fetch_keys()).await?;
            is_valid = token.is_signed_by(&keys);
        }
        let wrong =
            || OidcError::Refused("the ID token is not signed by a key of the issuer".into());
        is_valid.then_some(()).ok_or_else(wrong)
    }

    async fn exchange(&self, code: &str, attempt: SignInAttempt<'_>) -> Result<Tokens, OidcError> {
        let document = self.document().await?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", attempt.redirect_uri),
            ("code_verifier", attempt.verifier),
        ];
        let mut request = HttpClient::request(Method::POST, &document.token_endpoint)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let client_id = self.config.client_id.as_str();
        match self.config.client_secret.as_ref().map(Secret::reveal) {
            None => fields.push(("client_id", client_id)),
            Some(secret) => match document.client_auth()? {
                ClientAuth::Post => {
                    fields.extend([("client_id", client_id), ("client_secret", secret)]);
                }
                ClientAuth::Basic => {
                    let pair = format!("{}:{}", encoded(client_id), encoded(secret));
                    let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
                    request = request.header(header::AUTHORIZATION, basic);
                }
            },
        }
        let what = "its token endpoint";
        let (status, body) = self.http.send(what, request, form(&fields)).await?;
        match status {
            StatusCode::OK => client::read(what, &body),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let reason =
                    client::error_code(&body).unwrap_or_else(|| status.as_str().to_owned());
                Err(OidcError::Refused(format!("{what} refuses: {reason}")))
            }
            _ => Err(client::unexpected(what, status)),
        }
    }

    /// Claims from the userinfo endpoint, whose `sub` must match that of the token.
    async fn fetch_user_info(
        &self,
        claims: UserClaims,
        access: &Secret,
    ) -> Result<Claims, OidcError> {
        let document = self.document().await?;
        let Some(endpoint) = &document.userinfo_endpoint else {
            return Ok(claims.into());
        };
        let what = "its userinfo endpoint";
        let more: UserClaims = self.http.get(what, endpoint, Some(access)).await?;
        if more.sub != claims.sub {
            let reason = format!("{what} returned another `sub` than the ID token");
            return Err(OidcError::Refused(reason));
        }
        Ok(more.into())
    }
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    pairs.join("&")
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
