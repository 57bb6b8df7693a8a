//! Reads the section `[limits]`.

use super::{
    LimiterStore, MAX_ABANDONED, RefusalLimits, Store, StoreLocation,
    read::deadline,
    values::{Environment, store_url},
};
use crate::{
    base::{
        checked_toml::{self, Section, Value},
        rate::Ceilings,
    },
    ledger::MAX_KEYS,
    limits,
};

/// The whole section.
pub(super) struct Limits {
    pub ceilings: Ceilings,
    pub store: LimiterStore,
    pub max_abandoned: u32,
    pub max_keys: u32,
    pub refusals: RefusalLimits,
}

pub(super) fn limits(mut section: Section, store: &Store, environment: &Environment) -> Limits {
    let store = limiter_store(&mut section, store, environment);
    let refusals = refusals(&mut section);
    let mut at_least_one = |key: &str, default, zero: &str| {
        let expected = format!("a number from 1 to 4294967295; 0 would {zero}");
        let read = |value: &Value| checked_toml::as_integer(value).filter(|number| *number > 0);
        section.optional(key, &expected, read).unwrap_or(default)
    };
    let refuses_all = "refuse every request";
    let limits = Limits {
        ceilings: Ceilings {
            requests: at_least_one("rpm", 60, refuses_all),
            tokens: at_least_one("tpm", 100_000, refuses_all),
        },
        max_abandoned: at_least_one("max_abandoned", MAX_ABANDONED, refuses_all),
        max_keys: at_least_one("max_keys", MAX_KEYS, "allow no keys"),
        store,
        refusals,
    };
    section.finish();
    limits
}

/// The bounds on refused requests; 0 for none.
fn refusals(section: &mut Section) -> RefusalLimits {
    let mut bound = |key: &str, default| {
        let expected = "a number from 0 to 4294967295; 0 means no bound";
        let read = |value: &Value| checked_toml::as_integer(value);
        section.optional(key, expected, read).unwrap_or(default)
    };
    let default = RefusalLimits::default();
    RefusalLimits {
        per_account: bound("refused_per_account", default.per_account),
        per_address: bound("refused_per_address", default.per_address),
    }
}

/// Memory for an embedded store, Redis for a shared one. Gateways that share accounts must share their limits, and
/// Redis requires the shared ledger, from which windows that Redis has lost are rebuilt.
fn limiter_store(section: &mut Section, store: &Store, environment: &Environment) -> LimiterStore {
    let url = store_url(section, "`memory:` or `redis://…`", environment);
    let deadline = deadline(section);
    let is_shared = matches!(store.location, StoreLocation::Postgres { .. });
    let url = url.unwrap_or_else(|| "memory:".to_owned());
    if url == "memory:" {
        if is_shared {
            let hint = "gateways that share a `postgres://` store share their limits";
            section.mistake("url", &format!("must be `redis://…`: {hint}"));
        }
        return LimiterStore::Memory;
    }
    match limits::Address::parse(&url) {
        Ok(address) if is_shared => LimiterStore::Redis {
            address: Box::new(address),
            deadline: deadline.unwrap_or(limits::DEADLINE),
        },
        Ok(_) => {
            let hint = "Redis goes with a `postgres://` store, which gateways share as well";
            section.mistake("url", &format!("must be `memory:`: {hint}"));
            LimiterStore::Memory
        }
        Err(mistake) => {
            section.mistake("url", &mistake);
            LimiterStore::Memory
        }
    }
}
