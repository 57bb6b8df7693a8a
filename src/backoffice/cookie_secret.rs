//! The secret that signs the portal's cookies: random, stored once for all gateways of a store, and replaceable.
//!
//! Other secrets are kept beside it, by name. It is independent of the operator token, so that a cookie is no means to test guesses of that token.

use ring::{
    hmac,
    rand::{SystemRandom, generate},
};

use super::{
    Backoffice, BackofficeError, Digest,
    sessions::digest,
    sql::{Row, statement, unexpected},
};
use crate::base::hex::hex;

/// The name of the secret in its table.
pub(crate) const COOKIES: &str = "cookies";

/// The secret as a key. It has no `Display` and no `Serialize`, so that it cannot be shown by accident.
#[derive(Clone)]
pub(crate) struct CookieSecret(hmac::Key);

/// What is signed. A signature for one purpose is not valid for another.
#[derive(Clone, Copy)]
pub(crate) enum Signed {
    /// A browser with which a person has signed in.
    Device,
    /// A running sign-in at an OpenID Connect issuer.
    OidcAttempt,
    /// The name under which a session of the operator token is stored.
    OperatorSession,
    /// A sign-in that still needs a code.
    SecondStep,
    /// An address or an identity that has got starter credit.
    StarterCredit,
}

impl CookieSecret {
    pub(crate) fn new(bytes: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The HMAC-SHA-256 of these parts.
    pub(crate) fn sign(&self, what: Signed, parts: &[&str]) -> Digest {
        let tag = hmac::sign(&self.0, &message(what, parts));
        let mut digest = Digest::default();
        digest.copy_from_slice(tag.as_ref());
        digest
    }

    /// Whether `signature` is that of these parts. The time that it takes does not depend on the signature.
    pub(crate) fn verifies(&self, what: Signed, parts: &[&str], signature: &[u8]) -> bool {
        hmac::verify(&self.0, &message(what, parts), signature).is_ok()
    }
}

/// The parts after their lengths, so that different parts never give one message.
fn message(what: Signed, parts: &[&str]) -> Vec<u8> {
    let purpose = match what {
        Signed::Device => "device",
        Signed::OidcAttempt => "oidc attempt",
        Signed::OperatorSession => "operator session",
        Signed::SecondStep => "second step",
        Signed::StarterCredit => "starter credit",
    };
    let mut message = Vec::new();
    for part in [purpose].iter().chain(parts) {
        message.extend_from_slice(&part.len().to_be_bytes());
        message.extend_from_slice(part.as_bytes());
    }
    message
}

impl Backoffice {
    pub(crate) async fn cookie_secret(&self, now: i64) -> Result<CookieSecret, BackofficeError> {
        self.secret(COOKIES, now).await
    }

    /// Reads the secret with this name; the first call creates it. If several gateways create it at once, one succeeds,
    /// and all read that one.
    pub(super) async fn secret(
        &self,
        name: &str,
        now: i64,
    ) -> Result<CookieSecret, BackofficeError> {
        let select = || {
            statement(
                "SELECT secret FROM backoffice_secrets WHERE name = $1",
                [name.into()],
            )
        };
        let mut rows = self.run(vec![select()]).await?;
        if rows.is_empty() {
            let create = statement(
                "INSERT INTO backoffice_secrets (name, secret, made_at) VALUES ($1, $2, $3)
                 ON CONFLICT (name) DO NOTHING",
                [name.into(), random()?.as_str().into(), now.into()],
            );
            rows = self.run(vec![create, select()]).await?;
        }
        let stored = rows.first_mut().map(Row::text).transpose()?;
        let stored = stored.and_then(|stored| digest(&stored));
        let stored = stored.ok_or_else(|| unexpected("a secret of 32 bytes"))?;
        Ok(CookieSecret::new(&stored))
    }

    /// Replaces the secret, or creates it. Nothing that the previous one has signed is valid afterwards.
    pub(crate) async fn rotate_cookie_secret(&self, now: i64) -> Result<(), BackofficeError> {
        let replace = statement(
            "INSERT INTO backoffice_secrets (name, secret, made_at) VALUES ($1, $2, $3)
             ON CONFLICT (name) DO UPDATE SET secret = excluded.secret, made_at = excluded.made_at",
            [COOKIES.into(), random()?.as_str().into(), now.into()],
        );
        self.run(vec![replace]).await?;
        Ok(())
    }
}

/// 32 bytes from the operating system, in hexadecimal.
fn random() -> Result<String, BackofficeError> {
    let bytes = generate::<Digest>(&SystemRandom::new())
        .map_err(|_| BackofficeError::Unavailable("the system returns no random bytes".into()))?;
    Ok(hex(&bytes.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_valid_for_its_secret_purpose_and_parts_only() {
        let (secret, other) = (CookieSecret::new(&[1; 32]), CookieSecret::new(&[2; 32]));
        let signature = secret.sign(Signed::Device, &["ab", "c"]);
        assert!(secret.verifies(Signed::Device, &["ab", "c"], &signature));
        assert!(!other.verifies(Signed::Device, &["ab", "c"], &signature));
        assert!(!secret.verifies(Signed::OidcAttempt, &["ab", "c"], &signature));
        for parts in [&["a", "bc"][..], &["abc"], &["ab", "c", ""], &[]] {
            assert!(!secret.verifies(Signed::Device, parts, &signature));
        }
        for wrong in [&signature[..31], &[], &[0; 32]] {
            assert!(!secret.verifies(Signed::Device, &["ab", "c"], wrong));
        }
    }
}
