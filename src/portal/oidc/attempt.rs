//! What belongs to one attempt, from setting out to an issuer until coming back: in a cookie of the browser
//! that set out, so that no other browser can come back with it, to whichever gateway.

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::hmac;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    backoffice::{Digest, oidc::SignInAttempt},
    base::{
        keys::{Secret, random_text},
        timestamp,
    },
    portal::cookies::ATTEMPT_SECONDS,
};

const RANDOM_CHARS: usize = 43;

#[derive(Serialize, Deserialize)]
pub struct Attempt {
    pub state: String,
    nonce: String,
    verifier: String,
    /// The page where it leads in the end.
    pub to: String,
    pub purpose: Purpose,
    /// From then on it is none any more.
    until: i64,
}

#[derive(Serialize, Deserialize)]
pub enum Purpose {
    /// Sessions by which the browser may have been known when it set out.
    SignIn { before: Vec<Digest> },
    /// The session of whoever wants to be known by it too.
    Connect { session: Digest },
}

impl Attempt {
    pub fn new(to: String, purpose: Purpose) -> Self {
        Self {
            state: random_text(RANDOM_CHARS),
            nonce: random_text(RANDOM_CHARS),
            verifier: random_text(RANDOM_CHARS),
            to,
            purpose,
            until: timestamp::now() + ATTEMPT_SECONDS,
        }
    }

    pub fn asking<'a>(&'a self, redirect_uri: &'a str) -> SignInAttempt<'a> {
        SignInAttempt {
            redirect_uri,
            state: &self.state,
            nonce: &self.nonce,
            verifier: &self.verifier,
        }
    }

    /// Whether this is the state that came back.
    pub fn is_of(&self, state: &str) -> bool {
        Secret::new(self.state.as_str()).matches(state)
    }

    /// What it is remembered by once it has been used.
    pub fn digest(&self) -> Digest {
        Sha256::digest([b"attempt ", self.state.as_bytes()].concat()).into()
    }

    /// As it stands in the cookie: to be read by its browser, to be changed by nobody.
    pub fn sealed(&self, secret: &Secret) -> String {
        let text = serde_json::to_vec(self).expect("our own fields serialise");
        let text = BASE64_URL_SAFE_NO_PAD.encode(text);
        let tag = hmac::sign(&key(secret), text.as_bytes());
        format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    /// The attempt, if we have sealed it and not too long ago.
    pub fn opened(sealed: &str, secret: &Secret) -> Option<Self> {
        let (text, tag) = sealed.split_once('.')?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&key(secret), text.as_bytes(), &tag).ok()?;
        let text = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let attempt: Self = serde_json::from_slice(&text).ok()?;
        (timestamp::now() < attempt.until).then_some(attempt)
    }
}

fn key(secret: &Secret) -> hmac::Key {
    let key = Sha256::digest([b"oidc attempt ", secret.reveal().as_bytes()].concat());
    hmac::Key::new(hmac::HMAC_SHA256, &key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt() -> Attempt {
        let before = vec![[255; 32]; 2];
        Attempt::new("/portal/keys".into(), Purpose::SignIn { before })
    }

    #[test]
    fn an_attempt_is_opened_as_it_was_sealed_and_by_us_alone() {
        let (ours, others) = (Secret::new("ours"), Secret::new("others"));
        let attempt = attempt();
        let sealed = attempt.sealed(&ours);
        assert!(sealed.len() < 2_500, "{}", sealed.len());
        let opened = Attempt::opened(&sealed, &ours).unwrap();
        assert!(opened.is_of(&attempt.state) && !opened.is_of(""));
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
    fn an_attempt_has_its_time() {
        let secret = Secret::new("ours");
        let mut late = attempt();
        late.until = timestamp::now();
        assert!(Attempt::opened(&late.sealed(&secret), &secret).is_none());
    }
}
