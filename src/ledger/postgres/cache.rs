//! Cache of callers and settings, each with its version.
//!
//! Requests may use cached data, but every hold names the versions that were used, and is refused if they are no longer
//! those of the database.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use arc_swap::ArcSwap;
use serde::Deserialize;

use super::lookup::KnownCaller;
use crate::{
    base::keys::KeyDigest,
    ledger::{LimitRule, ModelSettings, limits::LimitRules},
};

/// When there are this many callers, the cache is cleared.
const MAX_CALLERS: usize = 100_000;

#[derive(Default)]
pub(crate) struct Cache {
    callers: RwLock<HashMap<KeyDigest, KnownCaller>>,
    settings: ArcSwap<Settings>,
}

/// The operators' settings.
#[derive(Default)]
pub(crate) struct Settings {
    pub version: i64,
    pub models: HashMap<String, ModelSettings>,
    pub limits: LimitRules,
}

#[derive(Deserialize)]
struct StoredSettings {
    version: i64,
    models: Vec<StoredModel>,
    limits: Vec<StoredLimit>,
}

#[derive(Deserialize)]
pub(crate) struct StoredModel {
    model_id: String,
    enabled: bool,
    unlisted: Option<bool>,
}

#[derive(Deserialize)]
pub(crate) struct StoredLimit {
    account_id: String,
    model_id: String,
    rpm: Option<u32>,
    tpm: Option<u32>,
}

impl Cache {
    pub(crate) fn caller(&self, digest: KeyDigest) -> Option<KnownCaller> {
        let callers = self.callers.read().unwrap_or_else(PoisonError::into_inner);
        callers.get(&digest).cloned()
    }

    /// Stores a caller that was just read, or removes it if its key is unknown or inactive.
    pub(crate) fn put_caller(&self, digest: KeyDigest, seen: Option<&KnownCaller>) {
        let mut callers = self.callers.write().unwrap_or_else(PoisonError::into_inner);
        match seen {
            Some(known) => {
                if callers.len() >= MAX_CALLERS {
                    callers.clear();
                }
                callers.insert(digest, known.clone());
            }
            None => {
                callers.remove(&digest);
            }
        }
    }

    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    pub(crate) fn settings_version(&self) -> i64 {
        self.settings.load().version
    }

    /// Replaces the settings, unless newer ones are cached already.
    pub(crate) fn put_settings(&self, settings: Settings) {
        let settings = Arc::new(settings);
        self.settings.rcu(|before| {
            if before.version < settings.version {
                settings.clone()
            } else {
                before.clone()
            }
        });
    }
}

impl Settings {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let stored: StoredSettings = serde_json::from_str(text).ok()?;
        let mut settings = Self {
            version: stored.version,
            ..Self::default()
        };
        for model in stored.models {
            let id = model.model_id.clone();
            settings.models.insert(id, model.settings());
        }
        for limit in stored.limits {
            settings.limits.put(&limit.rule());
        }
        Some(settings)
    }
}

impl StoredModel {
    pub(crate) fn settings(&self) -> ModelSettings {
        ModelSettings {
            enabled: self.enabled,
            unlisted: self.unlisted,
        }
    }
}

impl StoredLimit {
    pub(crate) fn rule(self) -> LimitRule {
        let named = |name: String| (!name.is_empty()).then_some(name);
        LimitRule {
            account: named(self.account_id),
            model: named(self.model_id),
            requests: self.rpm,
            tokens: self.tpm,
        }
    }
}
