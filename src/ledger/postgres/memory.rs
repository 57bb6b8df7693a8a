//! What a gateway remembers of what all share: callers and settings, each with the version they had.
//!
//! What is remembered may drive a request, but every hold names the versions it went by and is
//! refused where they are no longer those of the database.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use arc_swap::ArcSwap;
use serde::Deserialize;

use super::look::Known;
use crate::{
    base::keys::KeyDigest,
    ledger::{LimitRule, ModelSettings, limits::LimitRules},
};

/// When there are this many callers, all are forgotten, and asked for again.
const MAX_CALLERS: usize = 100_000;

#[derive(Default)]
pub struct Memory {
    callers: RwLock<HashMap<KeyDigest, Known>>,
    settings: ArcSwap<Settings>,
}

/// What operators have set.
#[derive(Default)]
pub struct Settings {
    pub version: i64,
    pub models: HashMap<String, ModelSettings>,
    pub limits: LimitRules,
}

#[derive(Deserialize)]
struct Written {
    version: i64,
    models: Vec<WrittenModel>,
    limits: Vec<WrittenLimit>,
}

#[derive(Deserialize)]
pub struct WrittenModel {
    model_id: String,
    enabled: bool,
    unlisted: Option<bool>,
}

#[derive(Deserialize)]
pub struct WrittenLimit {
    account_id: String,
    model_id: String,
    rpm: Option<u32>,
    tpm: Option<u32>,
}

impl Memory {
    pub fn caller(&self, digest: KeyDigest) -> Option<Known> {
        let callers = self.callers.read().unwrap_or_else(PoisonError::into_inner);
        callers.get(&digest).cloned()
    }

    /// Remembers what was just seen: the caller, or that there is none.
    pub fn saw(&self, digest: KeyDigest, seen: Option<&Known>) {
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

    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    pub fn settings_version(&self) -> i64 {
        self.settings.load().version
    }

    /// Of two that race, the later ones stay.
    pub fn put_settings(&self, settings: Settings) {
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
    pub fn parse(text: &str) -> Option<Self> {
        let written: Written = serde_json::from_str(text).ok()?;
        let mut settings = Self {
            version: written.version,
            ..Self::default()
        };
        for model in written.models {
            let id = model.model_id.clone();
            settings.models.insert(id, model.settings());
        }
        for limit in written.limits {
            settings.limits.put(&limit.rule());
        }
        Some(settings)
    }
}

impl WrittenModel {
    pub fn settings(&self) -> ModelSettings {
        ModelSettings {
            enabled: self.enabled,
            unlisted: self.unlisted,
        }
    }
}

impl WrittenLimit {
    pub fn rule(self) -> LimitRule {
        let named = |name: String| (!name.is_empty()).then_some(name);
        LimitRule {
            account: named(self.account_id),
            model: named(self.model_id),
            requests: self.rpm,
            tokens: self.tpm,
        }
    }
}
