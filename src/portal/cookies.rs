//! The cookies of a visitor, and how they are set.

use axum::http::{HeaderMap, HeaderValue, header};
use sha2::{Digest as _, Sha256};

use crate::{
    backoffice,
    base::keys::{Secret, random_text},
};

/// How long a session lasts, whatever is done in it.
pub const SESSION_SECONDS: i64 = 14 * 86_400;
/// How long a browser is remembered as one that its owner has signed in with.
const DEVICE_SECONDS: i64 = 400 * 86_400;
/// How long somebody may take to an issuer and back.
pub const ATTEMPT_SECONDS: i64 = 10 * 60;
const TOKEN_CHARS: usize = 43;

/// What a cookie is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Whoever is signed in.
    Session,
    /// Whoever is not: ties the sign-in form to the browser that asked for it.
    Visit,
    /// A browser that someone has signed in with before.
    Device,
    /// Somebody on their way to an issuer and back.
    Attempt,
}

impl Kind {
    /// With TLS a name that no other host of the domain can set.
    fn name(self, secure: bool) -> &'static str {
        match (self, secure) {
            (Self::Session, true) => "__Host-tollgate-session",
            (Self::Session, false) => "tollgate-session",
            (Self::Visit, true) => "__Host-tollgate-visit",
            (Self::Visit, false) => "tollgate-visit",
            (Self::Device, true) => "__Host-tollgate-device",
            (Self::Device, false) => "tollgate-device",
            (Self::Attempt, true) => "__Host-tollgate-oidc",
            (Self::Attempt, false) => "tollgate-oidc",
        }
    }

    fn seconds(self) -> Option<i64> {
        match self {
            Self::Session => Some(SESSION_SECONDS),
            Self::Visit => None,
            Self::Device => Some(DEVICE_SECONDS),
            Self::Attempt => Some(ATTEMPT_SECONDS),
        }
    }

    /// Whoever comes back from an issuer comes from another site; all others are for our own pages.
    fn same_site(self) -> &'static str {
        match self {
            Self::Attempt => "Lax",
            Self::Session | Self::Visit | Self::Device => "Strict",
        }
    }
}

/// What a session or a visit is known by: in the cookie, and nowhere else.
#[derive(Clone)]
pub struct Token(Secret);

impl Token {
    pub fn generate() -> Self {
        Self(Secret::new(random_text(TOKEN_CHARS)))
    }

    /// The cookie's value, if it has the form of one of ours.
    pub fn presented(headers: &HeaderMap, kind: Kind, secure: bool) -> Option<Self> {
        let value = value(headers, kind.name(secure))?;
        (value.len() == TOKEN_CHARS).then(|| Self(Secret::new(value)))
    }

    /// What the session is kept under.
    pub fn digest(&self) -> backoffice::Digest {
        Sha256::digest(self.0.reveal().as_bytes()).into()
    }

    /// What a session is kept under that was begun with a secret of the operator's: with another secret
    /// it is not found any more.
    pub fn digest_with(&self, secret: &Secret) -> backoffice::Digest {
        let secret = Sha256::digest(secret.reveal().as_bytes());
        let token = Sha256::digest(self.0.reveal().as_bytes());
        Sha256::digest([&b"operator "[..], &secret[..], &token[..]].concat()).into()
    }

    /// What a form must bring along to be from a page that was made for this visitor.
    pub fn form_token(&self) -> String {
        hex(&Sha256::digest(
            [b"form ", self.0.reveal().as_bytes()].concat(),
        ))
    }

    /// Whether a form brought it. Digests are compared: the time taken tells nothing.
    pub fn has_form_token(&self, sent: &str) -> bool {
        Secret::new(self.form_token()).matches(sent)
    }

    pub fn set(&self, kind: Kind, secure: bool) -> HeaderValue {
        cookie(kind, self.0.reveal(), kind.seconds(), secure)
    }
}

/// A cookie with a value that somebody else has made, which can stand there.
pub fn set(kind: Kind, value: &str, secure: bool) -> HeaderValue {
    cookie(kind, value, kind.seconds(), secure)
}

/// What the browser has sent of it.
pub fn presented(headers: &HeaderMap, kind: Kind, secure: bool) -> Option<&str> {
    value(headers, kind.name(secure))
}

/// Has the browser forget a cookie.
pub fn forget(kind: Kind, secure: bool) -> HeaderValue {
    cookie(kind, "", Some(0), secure)
}

/// A browser that a person has signed in with: its own number, and a proof that we gave it out for this
/// address.
pub struct Device {
    number: String,
    proof: String,
}

impl Device {
    pub fn new(secret: &Secret, email: &str) -> Self {
        let number = random_text(22);
        let proof = proof(secret, email, &number);
        Self { number, proof }
    }

    /// The number of this browser, if the person with this address has signed in with it before.
    pub fn known(
        headers: &HeaderMap,
        secure: bool,
        secret: &Secret,
        email: &str,
    ) -> Option<String> {
        let (number, sent) = value(headers, Kind::Device.name(secure))?.split_once('.')?;
        let right = Secret::new(proof(secret, email, number)).matches(sent);
        right.then(|| number.to_owned())
    }

    pub fn set(&self, secure: bool) -> HeaderValue {
        let value = format!("{}.{}", self.number, self.proof);
        cookie(Kind::Device, &value, Kind::Device.seconds(), secure)
    }
}

/// Lengths go first, so that no two different inputs are one text; the secret's digest goes in front
/// and behind, so that nothing can be appended.
fn proof(secret: &Secret, email: &str, number: &str) -> String {
    let key = Sha256::digest([b"device ", secret.reveal().as_bytes()].concat());
    let text = format!("{} {} {number}", email.len(), email.to_lowercase());
    let inner = Sha256::digest([&key[..], text.as_bytes()].concat());
    hex(&Sha256::digest([&key[..], &inner[..]].concat()))
}

fn cookie(kind: Kind, value: &str, seconds: Option<i64>, secure: bool) -> HeaderValue {
    let age = seconds.map_or_else(String::new, |seconds| format!("; Max-Age={seconds}"));
    let only_tls = if secure { "; Secure" } else { "" };
    let name = kind.name(secure);
    let same_site = kind.same_site();
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}{only_tls}{age}");
    HeaderValue::try_from(text).expect("our own names and values are plain")
}

/// The value of a cookie that was sent once. Sent twice, it is not known which is ours.
pub fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter();
    let texts = lines.filter_map(|line| line.to_str().ok());
    let mut found = texts
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(key, _)| *key == name)
        .map(|(_, value)| value);
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(pair).unwrap())])
    }

    #[test]
    fn a_token_comes_back_as_it_was_set() {
        let token = Token::generate();
        let headers = sent(&token.set(Kind::Session, true));
        let back = Token::presented(&headers, Kind::Session, true).unwrap();
        assert_eq!(back.digest(), token.digest());
        assert!(back.has_form_token(&token.form_token()));
        assert!(!back.has_form_token(&Token::generate().form_token()));
        assert!(Token::presented(&headers, Kind::Session, false).is_none());
        assert!(Token::presented(&headers, Kind::Visit, true).is_none());
    }

    #[test]
    fn a_session_of_the_operator_token_is_none_with_another_token() {
        let token = Token::generate();
        let (one, other) = (Secret::new("one"), Secret::new("other"));
        assert_eq!(token.digest_with(&one), token.digest_with(&one));
        assert_ne!(token.digest_with(&one), token.digest_with(&other));
        assert_ne!(token.digest_with(&one), token.digest());
    }

    #[test]
    fn a_session_is_for_this_host_and_for_no_script() {
        let cookie = Token::generate().set(Kind::Session, true);
        let cookie = cookie.to_str().unwrap();
        assert!(cookie.starts_with("__Host-"));
        for part in [
            "; Path=/",
            "; HttpOnly",
            "; SameSite=Strict",
            "; Secure",
            "; Max-Age=",
        ] {
            assert!(cookie.contains(part), "{cookie} has no {part}");
        }
    }

    #[test]
    fn a_browser_is_known_for_the_address_that_it_signed_in_with() {
        let (secret, other) = (Secret::new("one secret"), Secret::new("another"));
        let headers = sent(&Device::new(&secret, "a@example.com").set(false));
        assert!(Device::known(&headers, false, &secret, "A@example.com").is_some());
        assert!(Device::known(&headers, false, &secret, "b@example.com").is_none());
        assert!(Device::known(&headers, false, &other, "a@example.com").is_none());
    }

    #[test]
    fn a_cookie_that_is_sent_twice_is_none() {
        let headers =
            HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static("a=1; b=2; a=3"))]);
        assert_eq!(value(&headers, "b"), Some("2"));
        assert_eq!(value(&headers, "a"), None);
    }
}
