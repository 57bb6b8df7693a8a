//! The state of one sign-in at an OpenID Connect issuer, sealed in a cookie. The cookie binds the attempt to
//! the browser that started it, and any gateway of a fleet can finish it.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    backoffice::{CookieSecret, Digest, Signed, oidc::SignInAttempt},
    base::{
        keys::{Secret, random_text},
        timestamp,
    },
    portal::cookies::ATTEMPT_SECONDS,
};

const RANDOM_CHARS: usize = 43;

#[derive(Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub state: String,
    nonce: String,
    verifier: String,
    /// The page to open after signing in.
    pub to: String,
    pub purpose: Purpose,
    /// Unix seconds at which the attempt expires.
    until: i64,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Sign in. `before` has the digests under which the browser's previous session may be stored.
    SignIn { before: Vec<Digest> },
    /// Connect the issuer's identity to the person of this session.
    Connect { session: Digest },
}

impl Attempt {
    pub(crate) fn new(to: String, purpose: Purpose) -> Self {
        Self {
            state: random_text(RANDOM_CHARS),
            nonce: random_text(RANDOM_CHARS),
            verifier: random_text(RANDOM_CHARS),
            to,
            purpose,
            until: timestamp::now() + ATTEMPT_SECONDS,
        }
    }

    pub(crate) fn asking<'a>(&'a self, redirect_uri: &'a str) -> SignInAttempt<'a> {
        SignInAttempt {
            redirect_uri,
            state: &self.state,
            nonce: &self.nonce,
            verifier: &self.verifier,
        }
    }

    /// Whether `state`, as the issuer returned it, is that of this attempt.
    pub(crate) fn has_state(&self, state: &str) -> bool {
        Secret::new(self.state.as_str()).matches(state)
    }

    /// The digest under which the attempt is stored as used.
    pub(crate) fn digest(&self) -> Digest {
        Sha256::digest([b"attempt ", self.state.as_bytes()].concat()).into()
    }

    /// The cookie value: JSON that the browser can read, with an HMAC so that it cannot be changed.
    pub(crate) fn sealed(&self, secret: &CookieSecret) -> String {
        let text = serde_json::to_vec(self).expect("our own fields serialise");
        let text = BASE64_URL_SAFE_NO_PAD.encode(text);
        let tag = secret.sign(Signed::OidcAttempt, &[&text]);
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    /// The attempt in a cookie value, if its HMAC is valid and it has not expired.
    pub(crate) fn opened(sealed: &str, secret: &CookieSecret) -> Option<Self> {
        let (text, tag) = sealed.split_once('.')?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?;
        if !secret.verifies(Signed::OidcAttempt, &[text], &tag) {
            return None;
        }
        let text = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let attempt: Self = serde_json::from_slice(&text).ok()?;
        (timestamp::now() < attempt.until).then_some(attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> Attempt {
        let before = vec![[255; 32]; 2];
        Attempt::new("/portal/keys".into(), Purpose::SignIn { before })
    }

    #[test]
    fn a_sealed_attempt_opens_only_unchanged_and_with_our_secret() {
        let [ours, others] = [[1; 32], [2; 32]].map(|bytes| CookieSecret::new(&bytes));
        let attempt = attempt();
        let sealed = attempt.sealed(&ours);
        assert!(sealed.len() < 2_500, "{}", sealed.len());
        let opened = Attempt::opened(&sealed, &ours).unwrap();
        assert!(opened.has_state(&attempt.state) && !opened.has_state(""));
        assert_eq!(opened.to, "/portal/keys");
        assert!(Attempt::opened(&sealed, &others).is_none());
        let (_, tag) = sealed.split_once('.').unwrap();
        let forged = BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&attempt).unwrap());
        for changed in [
            format!("{forged}x.{tag}"),
            format!("{forged}."),
            forged.clone(),
            String::new(),
        ] {
            assert!(Attempt::opened(&changed, &ours).is_none(), "{changed}");
        }
    }

    #[test]
    fn an_attempt_expires() {
        let secret = CookieSecret::new(&[1; 32]);
        let mut late = attempt();
        late.until = timestamp::now();
        assert!(Attempt::opened(&late.sealed(&secret), &secret).is_none());
    }
}
