//! A sign-in between the password and the code, sealed in a cookie: any gateway of a fleet can finish it.
//!
//! It is bound to the browser that has sent the password, by the visit cookie, and to the password, so that it ends when
//! that is changed. It can be used for ten minutes, and once.

use axum::http::{HeaderMap, HeaderValue};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{
    backoffice::{CookieSecret, Digest, Person, Signed},
    base::{keys::random_text, timestamp},
    portal::cookies::{self, Kind, SECOND_STEP_SECONDS, Token},
};

#[derive(Serialize, Deserialize)]
pub(super) struct Pending {
    pub person_id: String,
    /// The page to open after signing in.
    pub to: String,
    /// Digest of the stored password hash.
    password: Digest,
    /// Digest of the browser's visit cookie.
    visit: Digest,
    /// A random number, under which it is stored as used.
    number: String,
    /// Unix seconds at which it expires.
    until: i64,
}

impl Pending {
    pub(super) fn new(person: &Person, visit: &Token, to: String) -> Self {
        Self {
            person_id: person.id.clone(),
            to,
            password: password_digest(person),
            visit: visit.digest(),
            number: random_text(43),
            until: timestamp::now() + SECOND_STEP_SECONDS,
        }
    }

    /// The cookie with it. The browser could read it, but not change it.
    pub(super) fn cookie(&self, secret: &CookieSecret, secure: bool) -> HeaderValue {
        let text = serde_json::to_vec(self).expect("our own fields serialise");
        let text = BASE64_URL_SAFE_NO_PAD.encode(text);
        let tag = BASE64_URL_SAFE_NO_PAD.encode(secret.sign(Signed::SecondStep, &[&text]));
        cookies::set(Kind::SecondStep, &format!("{text}.{tag}"), secure)
    }

    /// The one that this browser has, if its signature is right and it has not expired.
    pub(super) fn presented(
        headers: &HeaderMap,
        visit: &Token,
        secret: &CookieSecret,
        secure: bool,
    ) -> Option<Self> {
        let sealed = cookies::presented(headers, Kind::SecondStep, secure)?;
        let (text, tag) = sealed.split_once('.')?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?;
        if !secret.verifies(Signed::SecondStep, &[text], &tag) {
            return None;
        }
        let text = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
        let pending: Self = serde_json::from_slice(&text).ok()?;
        let is_ours = pending.visit == visit.digest() && timestamp::now() < pending.until;
        is_ours.then_some(pending)
    }

    /// Whether the person's password is still the one that was proven.
    pub(super) fn is_of(&self, person: &Person) -> bool {
        self.password == password_digest(person)
    }

    /// The digest under which it is stored as used.
    pub(super) fn digest(&self) -> Digest {
        Sha256::digest([b"second step ", self.number.as_bytes()].concat()).into()
    }
}

fn password_digest(person: &Person) -> Digest {
    Sha256::digest(person.password.as_deref().unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;
    use crate::backoffice::{Role, TeamRole};

    fn person(password: &str) -> Person {
        Person {
            id: "person_1".into(),
            email: "ada@example.com".into(),
            name: None,
            password: Some(password.into()),
            role: Role::Customer,
            account_id: "acct_1".into(),
            team_role: TeamRole::Owner,
            created_at: 0,
            second_factor_at: Some(0),
        }
    }

    fn sent(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(cookie).unwrap())])
    }

    #[test]
    fn a_pending_sign_in_is_of_one_browser_one_password_and_ten_minutes() {
        let [ours, others] = [[1; 32], [2; 32]].map(|bytes| CookieSecret::new(&bytes));
        let (visit, person) = (Token::generate(), person("$argon2id$1"));
        let mut pending = Pending::new(&person, &visit, "/portal/keys".into());
        let cookie = pending.cookie(&ours, true);
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        let headers = sent(pair);
        let opened = Pending::presented(&headers, &visit, &ours, true).unwrap();
        assert_eq!(
            (opened.to.as_str(), opened.digest()),
            ("/portal/keys", pending.digest())
        );
        assert!(opened.is_of(&person) && !opened.is_of(&self::person("$argon2id$2")));
        assert!(Pending::presented(&headers, &Token::generate(), &ours, true).is_none());
        assert!(Pending::presented(&headers, &visit, &others, true).is_none());
        for wrong in [
            &pair[..pair.len() - 1],
            &pair[..pair.len() - 44],
            "__Host-tollgate-code=.",
        ] {
            assert!(Pending::presented(&sent(wrong), &visit, &ours, true).is_none());
        }
        pending.until = timestamp::now();
        let late = pending.cookie(&ours, true);
        let late = sent(late.to_str().unwrap().split(';').next().unwrap());
        assert!(Pending::presented(&late, &visit, &ours, true).is_none());
    }
}
