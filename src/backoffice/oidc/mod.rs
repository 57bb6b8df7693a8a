//! Signing in with an issuer of OpenID Connect: the authorization code flow, with PKCE.
//!
//! What the issuer says of itself and its keys are fetched when they are first needed. It is bounded in
//! time and in bytes, and whatever is wrong with it is wrong with this way of signing in alone. No reason
//! that is given for a failure has a code, a token or a secret in it: reasons are for the log.

use std::time::Duration;

use axum::http::{Method, StatusCode, header};
use base64::{
    Engine as _,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

mod claims;
mod document;
mod kept;
mod keys;
mod token;
mod web;

pub use self::{claims::Claims, web::is_error_code};
use self::{
    claims::{Expected, Told},
    document::{Document, SecretGoes},
    kept::Kept,
    keys::{Key, KeySet},
    token::IdToken,
    web::Web,
};
use crate::{
    base::{keys::Secret, timestamp},
    config,
};

/// How long the issuer may take for each of its answers.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why somebody could not be identified, for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OidcError {
    /// The issuer cannot be asked at the moment, or not at all.
    #[error("{0}")]
    Unavailable(String),
    /// It has been asked, and what it says does not identify anybody.
    #[error("{0}")]
    Refused(String),
}

/// What one attempt to sign in is known by, to the issuer and to us.
#[derive(Clone, Copy)]
pub struct Asking<'a> {
    /// Where the issuer sends the browser back to.
    pub redirect_uri: &'a str,
    pub state: &'a str,
    pub nonce: &'a str,
    /// What proves to the issuer that the code is used by whom it was asked for (PKCE).
    pub verifier: &'a str,
}

pub struct Issuer {
    config: config::Oidc,
    web: Web,
    document: Kept<Document>,
    keys: Kept<Vec<Key>>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
    access_token: Option<String>,
}

impl Issuer {
    pub fn new(config: &config::Oidc) -> Result<Self, String> {
        Ok(Self {
            config: config.clone(),
            web: Web::new(TIMEOUT)?,
            document: Kept::default(),
            keys: Kept::default(),
        })
    }

    /// What people call it.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What it calls itself.
    pub fn id(&self) -> &str {
        &self.config.issuer
    }

    /// Whether people with this address may sign in.
    pub fn admits(&self, email: Option<&str>) -> bool {
        let allowed = &self.config.allowed_domains;
        let domain = email.and_then(|email| email.rsplit_once('@'));
        let domain = domain.map(|(_, domain)| domain.to_lowercase());
        allowed.is_empty() || domain.is_some_and(|domain| allowed.contains(&domain))
    }

    /// The page of the issuer's where somebody says who they are.
    pub async fn authorization_url(&self, asking: Asking<'_>) -> Result<String, OidcError> {
        let document = self.document().await?;
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(asking.verifier));
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", asking.redirect_uri),
            ("scope", &self.config.scopes),
            ("state", asking.state),
            ("nonce", asking.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let endpoint = &document.authorization_endpoint;
        let with = if endpoint.contains('?') { '&' } else { '?' };
        Ok(format!("{endpoint}{with}{query}"))
    }

    /// Who somebody is that came back with this code.
    pub async fn identify(&self, code: &str, asking: Asking<'_>) -> Result<Claims, OidcError> {
        let tokens = self.exchange(code, asking).await?;
        let id_token = tokens.id_token.as_deref();
        let no_token = || OidcError::Refused("there is no ID token in the answer".into());
        let token = IdToken::parse(id_token.ok_or_else(no_token)?)?;
        self.check_signature(&token).await?;
        let expected = Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: asking.nonce,
            now: timestamp::now(),
        };
        let told = Told::of(&token.payload, &expected)?;
        // Some tell who somebody is in the token, and all else elsewhere.
        match tokens.access_token {
            Some(access) if told.email.is_none() => self.ask_more(told, &Secret::new(access)).await,
            _ => Ok(told.into()),
        }
    }

    /// Whether it says of itself what it must; changes nothing.
    pub async fn probe(&self) -> Result<String, String> {
        let keys = self.keys().await.map_err(|error| error.to_string())?;
        match keys.len() {
            0 => Err("it has no key that can be used (RS256, ES256 or EdDSA)".into()),
            count => Ok(format!("{} answers, with {count} keys", self.id())),
        }
    }

    async fn document(&self) -> Result<std::sync::Arc<Document>, OidcError> {
        let fetch = async {
            let url = document::url(&self.config.issuer);
            let document: Document = self.web.get("its configuration", &url, None).await?;
            document.checked(&self.config.issuer)
        };
        self.document.get(fetch).await
    }

    async fn keys(&self) -> Result<std::sync::Arc<Vec<Key>>, OidcError> {
        self.keys.get(self.fetch_keys()).await
    }

    async fn fetch_keys(&self) -> Result<Vec<Key>, OidcError> {
        let document = self.document().await?;
        let set: KeySet = self.web.get("its keys", &document.jwks_uri, None).await?;
        Ok(set.usable())
    }

    /// By a key that may be so new that we have not seen it yet.
    async fn check_signature(&self, token: &IdToken<'_>) -> Result<(), OidcError> {
        let keys = self.keys().await?;
        let mut is_right = token.is_signed_by(&keys);
        if !is_right && !token.names_one_of(&keys) {
            let keys = self.keys.renewed(self.fetch_keys()).await?;
            is_right = token.is_signed_by(&keys);
        }
        let wrong = || OidcError::Refused("no key of the issuer's has signed the ID token".into());
        is_right.then_some(()).ok_or_else(wrong)
    }

    async fn exchange(&self, code: &str, asking: Asking<'_>) -> Result<Tokens, OidcError> {
        let document = self.document().await?;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", asking.redirect_uri),
            ("code_verifier", asking.verifier),
        ];
        let mut request = Web::request(Method::POST, &document.token_endpoint)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let client_id = self.config.client_id.as_str();
        match self.config.client_secret.as_ref().map(Secret::reveal) {
            None => fields.push(("client_id", client_id)),
            Some(secret) => match document.secret_goes()? {
                SecretGoes::InTheBody => {
                    fields.extend([("client_id", client_id), ("client_secret", secret)]);
                }
                SecretGoes::InTheHeader => {
                    let pair = format!("{}:{}", encoded(client_id), encoded(secret));
                    let basic = format!("Basic {}", BASE64_STANDARD.encode(pair));
                    request = request.header(header::AUTHORIZATION, basic);
                }
            },
        }
        let what = "its token endpoint";
        let (status, body) = self.web.ask(what, request, form(&fields)).await?;
        match status {
            StatusCode::OK => web::read(what, &body),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let reason = web::error_code(&body).unwrap_or_else(|| status.as_str().to_owned());
                Err(OidcError::Refused(format!("{what} refuses: {reason}")))
            }
            _ => Err(web::unexpected(what, status)),
        }
    }

    /// The rest of what it knows of somebody, who must be the same.
    async fn ask_more(&self, told: Told, access: &Secret) -> Result<Claims, OidcError> {
        let document = self.document().await?;
        let Some(endpoint) = &document.userinfo_endpoint else {
            return Ok(told.into());
        };
        let what = "its userinfo endpoint";
        let more: Told = self.web.get(what, endpoint, Some(access)).await?;
        if more.sub != told.sub {
            let words = format!("{what} speaks of somebody else");
            return Err(OidcError::Refused(words));
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
