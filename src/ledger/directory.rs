//! The copy in memory that requests read.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use super::{
    Account, Caller, Key, KeyState, LedgerError, LimitRule, ModelSettings, limits::LimitRules,
};
use crate::auth::KeyDigest;

#[derive(Default)]
pub struct Directory {
    accounts: HashMap<String, Account>,
    keys: BTreeMap<String, Key>,
    by_digest: HashMap<KeyDigest, String>,
    models: HashMap<String, ModelSettings>,
    limits: LimitRules,
}

/// The directory as all share it. It is locked for a look or a put, never for the disk.
#[derive(Clone)]
pub struct Shared(Arc<RwLock<Directory>>);

impl Shared {
    pub fn new(directory: Directory) -> Self {
        Self(Arc::new(RwLock::new(directory)))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, Directory> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// For the writer's thread alone, once a change is committed.
    pub fn write(&self) -> RwLockWriteGuard<'_, Directory> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory {
    pub fn caller(&self, digest: KeyDigest) -> Option<Caller> {
        let key = self.keys.get(self.by_digest.get(&digest)?)?;
        if key.state != KeyState::Active {
            return None;
        }
        let account = self.accounts.get(&key.account_id)?;
        Some(Caller {
            account_id: account.id.clone(),
            key_id: key.id.clone(),
            plan: account.plan,
            account_closed: account.closed,
        })
    }

    pub fn account(&self, id: &str) -> Result<&Account, LedgerError> {
        let missing = || LedgerError::NotFound {
            what: "account",
            id: id.to_owned(),
        };
        self.accounts.get(id).ok_or_else(missing)
    }

    /// Oldest first.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        let mut accounts: Vec<_> = self.accounts.values().collect();
        accounts.sort_by_key(|account| (account.created_at, account.id.as_str()));
        accounts.into_iter()
    }

    pub fn key(&self, id: &str) -> Result<&Key, LedgerError> {
        let missing = || LedgerError::NotFound {
            what: "key",
            id: id.to_owned(),
        };
        self.keys.get(id).ok_or_else(missing)
    }

    /// Oldest first.
    pub fn keys_of(&self, account_id: &str) -> impl Iterator<Item = &Key> {
        let mut keys: Vec<_> = self
            .keys
            .values()
            .filter(|key| key.account_id == account_id)
            .collect();
        keys.sort_by_key(|key| (key.created_at, key.id.as_str()));
        keys.into_iter()
    }

    pub fn model_settings(&self, id: &str) -> ModelSettings {
        self.models.get(id).copied().unwrap_or_default()
    }

    pub fn limits(&self) -> &LimitRules {
        &self.limits
    }

    pub fn put_limit(&mut self, rule: &LimitRule) {
        self.limits.put(rule);
    }

    pub fn put_account(&mut self, account: Account) -> Account {
        self.accounts.insert(account.id.clone(), account.clone());
        account
    }

    pub fn put_key(&mut self, key: Key) -> Key {
        self.by_digest.insert(key.digest, key.id.clone());
        self.keys.insert(key.id.clone(), key.clone());
        key
    }

    pub fn put_model_settings(&mut self, id: String, settings: ModelSettings) {
        self.models.insert(id, settings);
    }
}
