//! The portal's cookies and the tokens in them.

use axum::http::{HeaderMap, HeaderValue, header};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use sha2::{Digest as _, Sha256};

use crate::{
    backoffice::{self, CookieSecret, Signed, email_key},
    base::{
        hex::hex,
        keys::{Secret, random_text},
    },
};

/// Lifetime of a session, regardless of activity.
pub(crate) const SESSION_SECONDS: i64 = 14 * 86_400;
/// How long a browser is recognised as a device with which its user has signed in.
const DEVICE_SECONDS: i64 = 400 * 86_400;
/// How long a sign-in at an OpenID Connect issuer may take.
pub(crate) const ATTEMPT_SECONDS: i64 = 10 * 60;
/// How long the code may take after the password.
pub(crate) const SECOND_STEP_SECONDS: i64 = 10 * 60;
/// How long the next page may take to be loaded.
const CONFIRMATION_SECONDS: i64 = 60;
const TOKEN_CHARS: usize = 43;
const DIGEST_BYTES: usize = 32;

/// The purpose of a cookie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The session of a signed-in person.
    Session,
    /// A visitor without a session. The cookie ties the sign-in form to the browser that loaded it.
    Visit,
    /// A browser with which a person has signed in before.
    Device,
    /// A running sign-in at an OpenID Connect issuer.
    Attempt,
    /// What a form has done, until the next page shows it.
    Confirmation,
    /// A sign-in with the right password that still needs a code.
    SecondStep,
}

impl Kind {
    /// The cookie's name. With TLS it has the `__Host-` prefix, so that no other host of the domain can set it.
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
            (Self::Confirmation, true) => "__Host-tollgate-done",
            (Self::Confirmation, false) => "tollgate-done",
            (Self::SecondStep, true) => "__Host-tollgate-code",
            (Self::SecondStep, false) => "tollgate-code",
        }
    }

    fn seconds(self) -> Option<i64> {
        match self {
            Self::Session => Some(SESSION_SECONDS),
            Self::Visit => None,
            Self::Device => Some(DEVICE_SECONDS),
            Self::Attempt => Some(ATTEMPT_SECONDS),
            Self::Confirmation => Some(CONFIRMATION_SECONDS),
            Self::SecondStep => Some(SECOND_STEP_SECONDS),
        }
    }

    /// `Lax` for the OpenID Connect attempt, because the browser returns from the issuer's site; `Strict` for
    /// all others, which only our own pages need.
    fn same_site(self) -> &'static str {
        match self {
            Self::Attempt => "Lax",
            Self::Session | Self::Visit | Self::Device | Self::Confirmation | Self::SecondStep => {
                "Strict"
            }
        }
    }
}

/// The secret of a session or visit. Only the cookie holds it; the store has its digest.
#[derive(Clone)]
pub(crate) struct Token {
    secret: Secret,
    /// Hides the form token in this response, see [`Token::form_token`].
    mask: [u8; DIGEST_BYTES],
}

impl Token {
    pub(crate) fn generate() -> Self {
        Self::new(&random_text(TOKEN_CHARS))
    }

    fn new(secret: &str) -> Self {
        Self {
            secret: Secret::new(secret),
            mask: rand::random(),
        }
    }

    /// The token from the request's cookie, if it has the length of one of ours.
    pub(crate) fn presented(headers: &HeaderMap, kind: Kind, secure: bool) -> Option<Self> {
        let value = value(headers, kind.name(secure))?;
        (value.len() == TOKEN_CHARS).then(|| Self::new(value))
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The digest under which the session is stored.
    pub(crate) fn digest(&self) -> backoffice::Digest {
        Sha256::digest(self.secret.reveal().as_bytes()).into()
    }

    /// The digest under which a session opened with the operator token is stored. It depends on that token and on
    /// the secret that signs cookies, so the session is no longer found once one of them is replaced.
    pub(crate) fn operator_digest(
        &self,
        secret: &CookieSecret,
        operator_token: &Secret,
    ) -> backoffice::Digest {
        let parts = [operator_token.reveal(), self.secret.reveal()];
        secret.sign(Signed::OperatorSession, &parts)
    }

    /// The token that a form must carry to prove that it comes from a page rendered for this visitor.
    ///
    /// Each response masks it differently: pages are compressed and repeat texts of their address, so that the sizes of
    /// many responses with the same token would reveal it (the BREACH attack).
    pub(crate) fn form_token(&self) -> String {
        let masked = xor(self.form_digest(), self.mask);
        BASE64_URL_SAFE_NO_PAD.encode([self.mask, masked].concat())
    }

    /// Whether `sent` is the form token, with any mask. Digests are compared, so the timing reveals nothing.
    pub(crate) fn has_form_token(&self, sent: &str) -> bool {
        let sent = BASE64_URL_SAFE_NO_PAD.decode(sent).unwrap_or_default();
        let [mask, masked] = match sent.as_chunks() {
            ([mask, masked], []) => [*mask, *masked],
            _ => return false,
        };
        Secret::new(hex(&self.form_digest())).matches(&hex(&xor(mask, masked)))
    }

    fn form_digest(&self) -> [u8; DIGEST_BYTES] {
        Sha256::digest([b"form ", self.secret.reveal().as_bytes()].concat()).into()
    }

    pub(crate) fn set(&self, kind: Kind, secure: bool) -> HeaderValue {
        cookie(kind, self.secret.reveal(), kind.seconds(), secure)
    }
}

fn xor(one: [u8; DIGEST_BYTES], other: [u8; DIGEST_BYTES]) -> [u8; DIGEST_BYTES] {
    std::array::from_fn(|at| one[at] ^ other[at])
}

/// A `Set-Cookie` value for a cookie whose content is made elsewhere. `value` must be valid in a cookie.
pub(crate) fn set(kind: Kind, value: &str, secure: bool) -> HeaderValue {
    cookie(kind, value, kind.seconds(), secure)
}

/// The value of this cookie in the request.
pub(crate) fn presented(headers: &HeaderMap, kind: Kind, secure: bool) -> Option<&str> {
    value(headers, kind.name(secure))
}

/// A `Set-Cookie` value that deletes the cookie.
pub(crate) fn forget(kind: Kind, secure: bool) -> HeaderValue {
    cookie(kind, "", Some(0), secure)
}

/// A browser with which a person has signed in: a random number, and a proof that we issued it for this email
/// address.
pub(crate) struct Device {
    number: String,
    proof: String,
}

impl Device {
    pub(crate) fn new(secret: &CookieSecret, email: &str) -> Self {
        let number = random_text(22);
        let proof = secret.sign(Signed::Device, &[&email_key(email), &number]);
        let proof = BASE64_URL_SAFE_NO_PAD.encode(proof);
        Self { number, proof }
    }

    /// Whether the request has a cookie of a browser, valid or not.
    pub(crate) fn is_presented(headers: &HeaderMap, secure: bool) -> bool {
        presented(headers, Kind::Device, secure).is_some()
    }

    /// The number of this browser, if it has a valid proof for this email address.
    pub(crate) fn known(
        headers: &HeaderMap,
        secure: bool,
        secret: &CookieSecret,
        email: &str,
    ) -> Option<String> {
        let (number, sent) = presented(headers, Kind::Device, secure)?.split_once('.')?;
        let sent = BASE64_URL_SAFE_NO_PAD.decode(sent).ok()?;
        let right = secret.verifies(Signed::Device, &[&email_key(email), number], &sent);
        right.then(|| number.to_owned())
    }

    pub(crate) fn set(&self, secure: bool) -> HeaderValue {
        let value = format!("{}.{}", self.number, self.proof);
        cookie(Kind::Device, &value, Kind::Device.seconds(), secure)
    }
}

fn cookie(kind: Kind, value: &str, seconds: Option<i64>, secure: bool) -> HeaderValue {
    let age = seconds.map_or_else(String::new, |seconds| format!("; Max-Age={seconds}"));
    let only_tls = if secure { "; Secure" } else { "" };
    let name = kind.name(secure);
    let same_site = kind.same_site();
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite={same_site}{only_tls}{age}");
    HeaderValue::try_from(text).expect("our own names and values are plain")
}

/// The value of a cookie; `None` if it was sent twice, because then it is unknown which one is ours.
pub(crate) fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cookie: &HeaderValue) -> HeaderMap {
        let pair = cookie.to_str().unwrap().split(';').next().unwrap();
        HeaderMap::from_iter([(header::COOKIE, HeaderValue::try_from(pair).unwrap())])
    }

    #[test]
    fn a_token_is_read_back_from_its_cookie() {
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
    fn each_response_masks_the_form_token_differently() {
        let token = Token::generate();
        let headers = sent(&token.set(Kind::Session, false));
        let presented = || Token::presented(&headers, Kind::Session, false).unwrap();
        let (one, other) = (presented(), presented());
        assert_ne!(one.form_token(), other.form_token());
        assert_eq!(
            one.form_token(),
            one.clone().form_token(),
            "one page has one"
        );
        assert!(one.has_form_token(&other.form_token()));
        let masked = BASE64_URL_SAFE_NO_PAD.decode(one.form_token()).unwrap();
        let changed = |at: usize| {
            let mut bytes = masked.clone();
            bytes[at] ^= 1;
            BASE64_URL_SAFE_NO_PAD.encode(bytes)
        };
        for wrong in [changed(0), changed(63), String::new(), "AAAA".into()] {
            assert!(!other.has_form_token(&wrong), "{wrong}");
        }
        let zeros = BASE64_URL_SAFE_NO_PAD.encode([0; 64]);
        let unmasked = BASE64_URL_SAFE_NO_PAD.encode(&masked[32..]);
        assert!(!other.has_form_token(&zeros) && !other.has_form_token(&unmasked));
    }

    #[test]
    fn the_digest_of_an_operator_session_depends_on_both_secrets() {
        let token = Token::generate();
        let (one, other) = (Secret::new("one"), Secret::new("other"));
        let [first, second] = [[1; 32], [2; 32]].map(|bytes| CookieSecret::new(&bytes));
        let digest = token.operator_digest(&first, &one);
        assert_eq!(token.operator_digest(&first, &one), digest);
        assert_ne!(token.operator_digest(&first, &other), digest);
        assert_ne!(token.operator_digest(&second, &one), digest);
        assert_ne!(Token::generate().operator_digest(&first, &one), digest);
        assert_ne!(token.digest(), digest);
    }

    #[test]
    fn session_cookies_are_host_only_and_http_only() {
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
    fn a_device_cookie_is_valid_for_its_address_only() {
        let [secret, other] = [[1; 32], [2; 32]].map(|bytes| CookieSecret::new(&bytes));
        let headers = sent(&Device::new(&secret, "a@example.com").set(false));
        assert!(Device::known(&headers, false, &secret, "A@example.com ").is_some());
        assert!(Device::known(&headers, false, &secret, "b@example.com").is_none());
        assert!(Device::known(&headers, false, &other, "a@example.com").is_none());
    }

    #[test]
    fn a_cookie_sent_twice_is_ignored() {
        let headers =
            HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static("a=1; b=2; a=3"))]);
        assert_eq!(value(&headers, "b"), Some("2"));
        assert_eq!(value(&headers, "a"), None);
    }
}
