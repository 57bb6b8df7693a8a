//! Rotation of a key: it gets a new secret, and the one before stays valid for a while.
//!
//! Everything but the secret stays: calls, limits and usage go by the ID of the key. At most two secrets are valid, and
//! both end with the key.

use super::{Key, Ledger, LedgerError};
use crate::base::keys::{ApiKey, KeyDigest};

/// The longest grace of a secret that is replaced: 30 days.
pub(crate) const MAX_GRACE: u32 = 30 * 24 * 60 * 60;
/// The grace unless the caller says.
pub(crate) const DEFAULT_GRACE: u32 = 24 * 60 * 60;

/// The secret that a key had before its last rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreviousSecret {
    pub prefix: String,
    pub digest: KeyDigest,
    /// It is refused from this time on, in seconds since 1970.
    pub valid_until: i64,
}

/// What is stored of a new secret, and for how many seconds the present one stays valid.
#[derive(Clone, Debug)]
pub(crate) struct Rotation {
    pub prefix: String,
    pub digest: KeyDigest,
    pub grace: u32,
}

impl Key {
    /// The secret of before, while it is valid.
    pub(crate) fn previous_at(&self, now: i64) -> Option<&PreviousSecret> {
        let previous = self.previous.as_ref();
        previous.filter(|previous| now < previous.valid_until)
    }

    /// Whether a request with this secret may use the key at this time.
    pub(super) fn accepts(&self, digest: KeyDigest, now: i64) -> bool {
        let previous = self.previous_at(now).map(|previous| previous.digest);
        self.is_active(now) && (self.digest == digest || previous == Some(digest))
    }

    /// Whether this is a secret of the key, whether or not it is valid.
    pub(crate) fn has_digest(&self, digest: KeyDigest) -> bool {
        self.digests().any(|own| own == digest)
    }

    /// The digests by which the key is looked up.
    pub(super) fn digests(&self) -> impl Iterator<Item = KeyDigest> {
        let previous = self.previous.as_ref().map(|previous| previous.digest);
        [self.digest].into_iter().chain(previous)
    }

    pub(super) fn rotated(self, new: Rotation, now: i64) -> Self {
        let previous = PreviousSecret {
            prefix: self.prefix,
            digest: self.digest,
            valid_until: now + i64::from(new.grace),
        };
        Self {
            prefix: new.prefix,
            digest: new.digest,
            previous: (new.grace > 0).then_some(previous),
            ..self
        }
    }
}

impl Ledger {
    /// Gives a live key a new secret, which is returned and not stored. The present one is refused after `grace` seconds,
    /// and one that an earlier rotation had left valid at once.
    pub async fn rotate_key(&self, id: &str, grace: u32) -> Result<(Key, ApiKey), LedgerError> {
        let secret = ApiKey::generate();
        let new = Rotation {
            prefix: secret.visible_prefix().to_owned(),
            digest: secret.digest(),
            grace: grace.min(MAX_GRACE),
        };
        let key = match self {
            Self::Embedded(ledger) => ledger.rotate_key(id, new).await?,
            Self::Shared(ledger) => ledger.rotate_key(id, new).await?,
        };
        Ok((key, secret))
    }
}
