//! What the ledger keeps, as values.

use std::time::Duration;

use super::LedgerError;
use crate::{
    auth::KeyDigest,
    catalog::{Plan, Tier, Track},
    money::NanoUsd,
};

#[derive(Clone, Debug)]
pub struct Account {
    pub id: String,
    pub email: String,
    pub name: Option<String>,
    pub plan: Plan,
    pub closed: bool,
    pub created_at: i64,
}

#[derive(Clone, Debug)]
pub struct NewAccount {
    pub email: String,
    pub name: Option<String>,
    pub track: Track,
    pub tier: Tier,
}

impl NewAccount {
    pub(super) fn plan(&self) -> Result<Plan, LedgerError> {
        plan(self.track, self.tier)
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct AccountChange {
    pub track: Option<Track>,
    pub tier: Option<Tier>,
    pub closed: Option<bool>,
}

impl AccountChange {
    pub(super) fn applied_to(self, account: &Account) -> Result<Account, LedgerError> {
        let track = self.track.unwrap_or(account.plan.track());
        let tier = self.tier.unwrap_or(account.plan.tier());
        Ok(Account {
            plan: plan(track, tier)?,
            closed: self.closed.unwrap_or(account.closed),
            ..account.clone()
        })
    }
}

fn plan(track: Track, tier: Tier) -> Result<Plan, LedgerError> {
    let (track_name, tier_name) = (track.as_str(), tier.as_str());
    Plan::new(track, tier).ok_or(LedgerError::NoSuchPlan {
        track: track_name,
        tier: tier_name,
    })
}

#[derive(Clone, Debug)]
pub struct Grant {
    pub id: String,
    pub amount: NanoUsd,
    pub expires_at: Option<i64>,
    pub reason: Option<String>,
    /// The operator's own number for it, e.g. that of a payment.
    pub reference: Option<String>,
    pub created_at: i64,
}

#[derive(Clone, Debug)]
pub struct NewGrant {
    pub amount: NanoUsd,
    pub expires_at: Option<i64>,
    pub reason: Option<String>,
    /// A grant with a number that was given before is that grant, and no other.
    pub reference: Option<String>,
}

#[derive(Clone)]
pub struct Key {
    pub id: String,
    pub account_id: String,
    pub name: String,
    /// The twelve characters that stay visible.
    pub prefix: String,
    pub state: KeyState,
    pub created_at: i64,
    pub digest: KeyDigest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Active,
    Disabled,
    Deleted,
}

impl KeyState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Active, Self::Disabled, Self::Deleted]
            .into_iter()
            .find(|s| s.as_str() == text)
    }
}

/// What the operator decided about a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSettings {
    pub enabled: bool,
    /// `None` leaves it to the catalog.
    pub unlisted: Option<bool>,
}

impl Default for ModelSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            unlisted: None,
        }
    }
}

/// What an audit found.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// The accounts that were looked at, and how many entries and charges.
    pub accounts: Vec<String>,
    pub entries: u64,
    pub charges: u64,
    /// The last entry that was looked at.
    pub last_entry: i64,
    pub violations: Vec<Violation>,
    pub took: Duration,
}

/// Something that does not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub account_id: String,
    pub what: String,
}
