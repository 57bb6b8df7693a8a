//! Accounts, grants, keys, settings and reports, as plain values.

use std::{sync::Arc, time::Duration};

use super::{Call, CallId, Charged, Edit, KeyTerms, LedgerError, Payer, PreviousSecret};
use crate::{
    base::{
        keys::{ApiKey, KeyDigest, random_id},
        money::NanoUsd,
    },
    catalog::{Plan, Tier, Track},
};

#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub(super) fn into_account(self, now: i64) -> Result<Account, LedgerError> {
        self.into_account_with_id(random_id("acct_"), now)
    }

    pub(super) fn into_account_with_id(self, id: String, now: i64) -> Result<Account, LedgerError> {
        Ok(Account {
            id,
            plan: plan(self.track, self.tier)?,
            email: self.email,
            name: self.name,
            closed: false,
            created_at: now,
        })
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct AccountChange {
    pub email: Option<String>,
    pub name: Edit<String>,
    pub track: Option<Track>,
    pub tier: Option<Tier>,
    pub closed: Option<bool>,
}

impl AccountChange {
    pub(super) fn applied_to(self, account: &Account) -> Result<Account, LedgerError> {
        let track = self.track.unwrap_or(account.plan.track());
        let tier = self.tier.unwrap_or(account.plan.tier());
        Ok(Account {
            email: self.email.unwrap_or_else(|| account.email.clone()),
            name: self.name.applied_to(account.name.clone()),
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
    /// The operator's own ID of the grant, e.g. that of a payment.
    pub reference: Option<String>,
    pub created_at: i64,
}

#[derive(Clone, Debug)]
pub struct NewGrant {
    pub amount: NanoUsd,
    pub expires_at: Option<i64>,
    pub reason: Option<String>,
    /// An idempotency key: a second grant with the reference of an earlier one returns that grant.
    pub reference: Option<String>,
}

impl NewGrant {
    pub(super) fn into_grant(self, now: i64) -> Grant {
        Grant {
            id: random_id("grant_"),
            amount: self.amount,
            expires_at: self.expires_at,
            reason: self.reason,
            reference: self.reference,
            created_at: now,
        }
    }
}

#[derive(Clone)]
pub struct Key {
    pub id: String,
    pub account_id: String,
    pub name: String,
    /// The first twelve characters of the secret, for display.
    pub prefix: String,
    pub state: KeyState,
    pub created_at: i64,
    pub digest: KeyDigest,
    /// The secret that the last rotation replaced, also if it is no longer valid.
    pub previous: Option<PreviousSecret>,
    /// This key as the payer of its calls.
    pub payer: Arc<Payer>,
    pub terms: Arc<KeyTerms>,
}

/// A key to create.
#[derive(Clone, Debug, Default)]
pub struct NewKey {
    pub name: String,
    /// `None` for the default project.
    pub project_id: Option<String>,
    /// The person who makes it; `None` for a service key.
    pub member_id: Option<String>,
    pub terms: KeyTerms,
}

impl From<String> for NewKey {
    /// A service key of the default project, without terms.
    fn from(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }
}

impl From<&str> for NewKey {
    fn from(name: &str) -> Self {
        name.to_owned().into()
    }
}

impl Key {
    /// A new key, and its secret, which is not stored.
    pub(super) fn generate(account_id: &str, new: NewKey, now: i64) -> (Self, ApiKey) {
        let secret = ApiKey::generate();
        let id = random_id("key_");
        let key = Self {
            payer: Arc::new(Payer {
                key_id: id.clone(),
                project_id: new.project_id,
                member_id: new.member_id,
            }),
            id,
            account_id: account_id.to_owned(),
            name: new.name,
            prefix: secret.visible_prefix().to_owned(),
            state: KeyState::Active,
            created_at: now,
            digest: secret.digest(),
            previous: None,
            terms: Arc::new(new.terms),
        };
        (key, secret)
    }
}

impl Key {
    /// Whether requests may use it at this time.
    pub(super) fn is_active(&self, now: i64) -> bool {
        self.state == KeyState::Active && !self.terms.has_expired(now)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    Active,
    Disabled,
    Deleted,
}

impl KeyState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
            Self::Deleted => "deleted",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Active, Self::Disabled, Self::Deleted]
            .into_iter()
            .find(|s| s.as_str() == text)
    }
}

/// What the operator has set for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModelSettings {
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

/// The result of an audit.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// The audited accounts, and how many entries and charges were read.
    pub accounts: Vec<String>,
    pub entries: u64,
    pub charges: u64,
    /// The sequence number of the last entry at the time of the audit.
    pub last_entry: i64,
    pub violations: Vec<Violation>,
    /// Holds without a running call. The audit has released them; no account is frozen for them.
    pub stray_holds: Vec<StrayHold>,
    pub took: Duration,
}

/// An open hold of a running gateway for which that gateway has no call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrayHold {
    pub call: CallId,
    pub account_id: String,
    pub amount: NanoUsd,
}

/// An account whose entries, charges, grants and holds do not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub account_id: String,
    pub what: String,
}

/// An account's credit at this moment.
#[derive(Clone, Copy, Debug)]
pub struct Balances {
    pub balance: NanoUsd,
    /// Held by running calls.
    pub held: NanoUsd,
    pub available: NanoUsd,
    /// When the credit that is used next expires.
    pub expires_at: Option<i64>,
}

/// Selects the calls to sum up.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnalyticsFilter {
    pub from_ms: i64,
    pub to_ms: i64,
    pub account_id: Option<String>,
    pub model: Option<String>,
}

/// Sums of the calls of one account with one model on one day (UTC).
#[derive(Clone, Debug, Default)]
pub(crate) struct AnalyticsRow {
    pub day: String,
    pub account_id: String,
    pub model: String,
    pub calls: u64,
    pub charged: u64,
    pub prompt: u64,
    pub cached: u64,
    /// Prompt tokens that were written to a provider's cache.
    pub cache_write: u64,
    pub completion: u64,
    pub reasoning: u64,
    pub cost: NanoUsd,
    /// What providers charge the operator for these calls, as far as their prices are known.
    pub provider_cost: NanoUsd,
    /// The charges of calls whose provider cost is known, less that cost.
    pub margin: NanoUsd,
    /// How many calls were charged less than their provider cost.
    pub below_cost: u64,
}

impl AnalyticsRow {
    pub(super) fn add(&mut self, call: &Call) {
        let plus = |sum: NanoUsd, more: i64| NanoUsd::new(sum.nanos().saturating_add(more));
        self.calls += 1;
        let charged = call.charged.map_or(0, |charged| charged.cost.nanos());
        if let Some(provider_cost) = call.provider_cost {
            let provider_cost = provider_cost.rounded_up().nanos();
            self.below_cost += u64::from(charged < provider_cost);
            self.provider_cost = plus(self.provider_cost, provider_cost);
            self.margin = plus(self.margin, charged.saturating_sub(provider_cost));
        }
        if let Some(Charged { usage, .. }) = call.charged {
            self.charged += 1;
            self.prompt += u64::from(usage.prompt);
            self.cached += u64::from(usage.cached);
            self.cache_write += u64::from(usage.cache_write);
            self.completion += u64::from(usage.completion);
            self.reasoning += u64::from(usage.reasoning);
            self.cost = plus(self.cost, charged);
        }
    }
}
