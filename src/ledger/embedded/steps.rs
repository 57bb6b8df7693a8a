//! What each command does: checks against the memory, writes to the database, and changes the memory.
//!
//! A refusal changes neither. An error of the database rolls the transaction back, and the memory is read again.

use std::{collections::BTreeSet, sync::Arc};

mod budgets;
mod erasure;

pub(crate) use self::{
    budgets::{remove_budget, set_budget},
    erasure::erase_texts,
};
use super::{
    command::{LimitChange, ModelChange},
    directory::Shared,
    sqlite::Database,
};
use crate::{
    base::money::NanoUsd,
    ledger::{
        Account, AccountChange, Call, Charged, Grant, Key, KeyChange, KeyState, LedgerError,
        LimitRule, ModelSettings, PendingCharge, Project, Violation,
        budgets::{Budgets, Counted},
        credit::Funds,
        rotation::Rotation,
    },
    wire::chat::Usage,
};

/// Posts the account's expired credit and the charge of the call.
pub(crate) fn charge(
    database: &Database,
    directory: &Shared,
    call: &Call,
    usage: Usage,
    cost: NanoUsd,
) -> Result<Charged, LedgerError> {
    let now = call.ended_ms.div_euclid(1_000);
    if let Some(idempotency) = &call.idempotency
        && database.is_key_spent(call, idempotency)?
    {
        return Err(LedgerError::KeySpent);
    }
    let (update, charge) = {
        let directory = directory.read();
        let mut credit = directory.credit(&call.account_id);
        let update = credit.bring_up_to_date(now);
        (update, credit.charge(call.id, cost, now))
    };
    database.post_update(&call.account_id, &update, now)?;
    let charge = charge.ok_or(LedgerError::NoHold)?;
    let charged = Charged {
        usage,
        cost,
        balance_before: charge.before,
        balance_after: charge.after,
    };
    database.insert_charged(call, charged, &charge)?;
    if let Some(idempotency) = &call.idempotency {
        database.insert_response(call, idempotency)?;
    }
    Ok(charged)
}

/// Charges a call of an earlier process; `None` if its end is recorded already.
pub(crate) fn settle_pending(
    database: &Database,
    directory: &Shared,
    pending: &PendingCharge,
) -> Result<Option<Charged>, LedgerError> {
    let call = &pending.call;
    directory.read().account(&call.account_id)?;
    if database.has_call(call.id)? || database.has_new_call(call.id) {
        return Ok(None);
    }
    if database.is_pruned(call)? {
        pending.warn_of_pruning();
        return Ok(None);
    }
    if let Some(idempotency) = &call.idempotency
        && database.is_key_spent(call, idempotency)?
    {
        pending.warn_of_spent_key();
        return Ok(None);
    }
    directory.read().credit(&call.account_id).hold_nothing(
        call.id,
        &call.payer,
        call.admitted_ms.div_euclid(1_000),
        call.ended_ms.div_euclid(1_000),
    );
    charge(database, directory, call, pending.usage, pending.cost).map(Some)
}

/// Records a call that was not charged. One whose hold was gone before may be recorded already, as charged or released.
pub(crate) fn record_released(
    database: &Database,
    call: &Call,
    was_held: bool,
) -> Result<(), LedgerError> {
    if was_held || !database.has_call(call.id)? {
        database.insert_call(call)?;
    }
    Ok(())
}

/// Gives an account credit; returns the earlier grant if the reference was used before.
pub(crate) fn add_grant(
    database: &Database,
    directory: &Shared,
    account_id: &str,
    grant: Grant,
) -> Result<Grant, LedgerError> {
    directory.read().account(account_id)?;
    if let Some(before) = directory.read().same_grant(account_id, &grant)? {
        return Ok(before);
    }
    let (update, granted) = {
        let directory = directory.read();
        let mut credit = directory.credit(account_id);
        let fits = credit.total().checked_add(grant.amount);
        fits.ok_or(LedgerError::TooMuchCredit)?;
        let id = Arc::from(grant.id.as_str());
        let funds = Funds::new(id, grant.amount, grant.expires_at);
        let update = credit.bring_up_to_date(grant.created_at);
        (update, credit.grant(&funds))
    };
    database.post_update(account_id, &update, grant.created_at)?;
    database.post_grant(account_id, &grant, &granted)?;
    directory.write().put_grant(account_id, grant.clone());
    Ok(grant)
}

pub(crate) fn create_account(
    database: &Database,
    directory: &Shared,
    account: Account,
) -> Result<Account, LedgerError> {
    database.insert_account(&account)?;
    Ok(directory.write().put_account(account))
}

/// Creates an account, or returns the one that has this ID.
pub(crate) fn ensure_account(
    database: &Database,
    directory: &Shared,
    account: Account,
) -> Result<Account, LedgerError> {
    if let Ok(there) = directory.read().account(&account.id) {
        return Ok(there.clone());
    }
    create_account(database, directory, account)
}

pub(crate) fn change_account(
    database: &Database,
    directory: &Shared,
    id: &str,
    change: AccountChange,
) -> Result<Account, LedgerError> {
    let account = change.applied_to(directory.read().account(id)?)?;
    database.update_account(&account)?;
    Ok(directory.write().put_account(account))
}

/// Creates a key unless the account has `max` live keys.
pub(crate) fn create_key(
    database: &Database,
    directory: &Shared,
    key: Key,
    max: u32,
) -> Result<Key, LedgerError> {
    {
        let directory = directory.read();
        directory.account(&key.account_id)?;
        if directory.key_count(&key.account_id) >= max as usize {
            return Err(LedgerError::TooManyKeys { max });
        }
    }
    check_project(directory, &key)?;
    database.insert_key(&key)?;
    Ok(directory.write().put_key(key))
}

/// Changes the name or the terms of a live key.
pub(crate) fn change_key(
    database: &Database,
    directory: &Shared,
    id: &str,
    change: KeyChange,
) -> Result<Key, LedgerError> {
    let key = change.applied_to(live_key(database, directory, id)?);
    check_project(directory, &key)?;
    database.update_key(&key)?;
    Ok(directory.write().put_key(key))
}

/// Gives a live key a new secret.
pub(crate) fn rotate_key(
    database: &Database,
    directory: &Shared,
    id: &str,
    new: Rotation,
    now: i64,
) -> Result<Key, LedgerError> {
    let key = live_key(database, directory, id)?.rotated(new, now);
    database.update_secrets(&key)?;
    Ok(directory.write().put_key(key))
}

fn live_key(database: &Database, directory: &Shared, id: &str) -> Result<Key, LedgerError> {
    let live = directory.read().key(id).cloned();
    match live {
        Some(key) => Ok(key),
        None => Err(match database.key(id)? {
            Some(_) => LedgerError::KeyDeleted,
            None => missing("key", id),
        }),
    }
}

/// Whether the key's project is one of its account.
fn check_project(directory: &Shared, key: &Key) -> Result<(), LedgerError> {
    let Some(id) = &key.payer.project_id else {
        return Ok(());
    };
    let directory = directory.read();
    let project = directory.project(id);
    let is_there = |project: &Project| project.account_id == key.account_id && !project.archived;
    if project.is_some_and(is_there) {
        Ok(())
    } else {
        Err(missing("project", id))
    }
}

fn missing(what: &'static str, id: &str) -> LedgerError {
    let id = id.to_owned();
    LedgerError::NotFound { what, id }
}

/// A change of a project.
pub(crate) enum ProjectChange {
    Create(Project),
    Rename { id: String, name: String },
    Archive { id: String },
}

pub(crate) fn change_project(
    database: &Database,
    directory: &Shared,
    change: ProjectChange,
) -> Result<Project, LedgerError> {
    let find = |id: &str| {
        let project = directory.read().project(id).cloned();
        project.ok_or_else(|| missing("project", id))
    };
    let project = match change {
        ProjectChange::Create(project) => {
            directory.read().account(&project.account_id)?;
            project
        }
        ProjectChange::Rename { id, name } => Project { name, ..find(&id)? },
        ProjectChange::Archive { id } => {
            let project = find(&id)?;
            let is_of_it = |key: &Key| key.payer.project_id.as_ref() == Some(&id);
            if directory.read().keys_of(&project.account_id).any(is_of_it) {
                return Err(LedgerError::ProjectInUse);
            }
            Project {
                archived: true,
                ..project
            }
        }
    };
    database.put_project(&project)?;
    Ok(directory.write().put_project(project))
}

/// Changes the state of a key. A deleted key stays deleted.
pub(crate) fn set_key_state(
    database: &Database,
    directory: &Shared,
    id: &str,
    state: KeyState,
) -> Result<Key, LedgerError> {
    let live = directory.read().key(id).cloned();
    let Some(key) = live else {
        // Deleted keys are not in memory.
        let deleted = database.key(id)?.ok_or_else(|| missing("key", id))?;
        return match state {
            KeyState::Deleted => Ok(deleted),
            KeyState::Active | KeyState::Disabled => Err(LedgerError::KeyDeleted),
        };
    };
    let key = Key { state, ..key };
    database.update_key(&key)?;
    Ok(directory.write().put_key(key))
}

pub(crate) fn set_model(
    database: &Database,
    directory: &Shared,
    change: ModelChange,
) -> Result<ModelSettings, LedgerError> {
    let before = directory.read().model_settings(&change.model_id);
    let settings = ModelSettings {
        enabled: change.enabled.unwrap_or(before.enabled),
        unlisted: change.unlisted.or(before.unlisted),
    };
    database.put_model_settings(&change.model_id, settings)?;
    directory
        .write()
        .put_model_settings(change.model_id, settings);
    Ok(settings)
}

pub(crate) fn set_limit(
    database: &Database,
    directory: &Shared,
    change: LimitChange,
) -> Result<LimitRule, LedgerError> {
    let LimitChange { account, model, .. } = change;
    let before = directory
        .read()
        .limits()
        .get(account.as_deref(), model.as_deref());
    let rule = LimitRule {
        account,
        model,
        requests: change.requests.applied_to(before.requests),
        tokens: change.tokens.applied_to(before.tokens),
    };
    database.put_limit(&rule)?;
    directory.write().put_limit(&rule);
    Ok(rule)
}

/// Posts what has expired of these accounts' credit.
pub(crate) fn post_expiries(
    database: &Database,
    directory: &Shared,
    accounts: &[String],
    now: i64,
) -> Result<(), LedgerError> {
    for account_id in accounts {
        let update = directory.read().credit(account_id).bring_up_to_date(now);
        database.post_update(account_id, &update, now)?;
    }
    Ok(())
}

/// The accounts that an audit found not to add up.
pub(crate) struct Frozen {
    pub accounts: BTreeSet<String>,
    /// They replace the frozen accounts of before: the audit was a full one.
    pub replaces: bool,
}

/// Differences between memory and database, and contradictions within the memory.
pub(crate) fn compare_memory(
    database: &Database,
    directory: &Shared,
    accounts: &[String],
) -> Result<Vec<Violation>, LedgerError> {
    let not_posted = database.unposted_sums()?;
    let mut violations = Vec::new();
    for account_id in accounts {
        let new = not_posted.get(account_id).copied().unwrap_or(0);
        let stored = database.total(account_id)? + new;
        let (remembered, contradiction) = {
            let directory = directory.read();
            let credit = directory.credit(account_id);
            (credit.total().nanos(), credit.contradiction())
        };
        let differs = (remembered != stored)
            .then(|| format!("{remembered} nano-dollars in memory are {stored} in the database"));
        let of_budgets = {
            let directory = directory.read();
            let credit = directory.credit(account_id);
            let budgets = credit.budgets().into_iter().flat_map(Budgets::all);
            budgets.map(Counted::spent).collect::<Vec<_>>()
        };
        let of_budgets = database.spent_differently(&of_budgets)?;
        let found = differs.into_iter().chain(contradiction).chain(of_budgets);
        violations.extend(found.map(|what| Violation {
            account_id: account_id.clone(),
            what,
        }));
    }
    Ok(violations)
}
