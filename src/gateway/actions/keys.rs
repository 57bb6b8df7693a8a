//! Operator actions on API keys. Their secrets are never recorded.

use serde_json::{Value, json};

use super::{ActionError, MAX_NAME, OperatorActions};
use crate::{
    base::keys::ApiKey,
    gateway::Gateway,
    ledger::{Key, KeyChange, KeyState, NewKey},
};

impl OperatorActions {
    /// Creates a key and returns it with its secret, which cannot be read again.
    pub(crate) async fn create_key(
        &self,
        account_id: String,
        new: NewKey,
    ) -> Result<(Key, ApiKey), ActionError> {
        check_name(&new.name)?;
        let actions = self.clone();
        self.run_to_completion(async move {
            let Gateway {
                ledger, max_keys, ..
            } = &*actions.gateway;
            let (key, secret) = ledger.create_key(&account_id, new, *max_keys).await?;
            actions
                .record("key.create", &key.id, None, Some(recorded(&key)))
                .await;
            Ok((key, secret))
        })
        .await
    }

    /// Changes the name, the project or the terms of a key.
    pub(crate) async fn change_key(
        &self,
        id: String,
        change: KeyChange,
    ) -> Result<Key, ActionError> {
        if let Some(name) = &change.name {
            check_name(name)?;
        }
        let actions = self.clone();
        self.run_to_completion(async move {
            let ledger = &actions.gateway.ledger;
            let before = recorded(&ledger.key(&id).await?);
            let key = ledger.change_key(&id, change).await?;
            let after = recorded(&key);
            if before != after {
                actions
                    .record("key.change", &id, Some(before), Some(after))
                    .await;
            }
            Ok(key)
        })
        .await
    }

    /// Gives a key a new secret and returns it. The present one is refused after `grace` seconds.
    pub(crate) async fn rotate_key(
        &self,
        id: String,
        grace: u32,
    ) -> Result<(Key, ApiKey), ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let (key, secret) = actions.gateway.ledger.rotate_key(&id, grace).await?;
            let after = json!({
                "account": key.account_id,
                "prefix": key.prefix,
                "grace_seconds": grace,
            });
            actions.record("key.rotate", &id, None, Some(after)).await;
            Ok((key, secret))
        })
        .await
    }

    pub(crate) async fn set_key_state(
        &self,
        id: String,
        state: KeyState,
    ) -> Result<Key, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let ledger = &actions.gateway.ledger;
            let before = ledger.key(&id).await?.state;
            let key = ledger.set_key_state(&id, state).await?;
            if before != key.state {
                let state_json = |state: KeyState| {
                    Some(json!({ "account": key.account_id, "state": state.as_str() }))
                };
                let (before, after) = (state_json(before), state_json(key.state));
                actions.record("key.change", &id, before, after).await;
            }
            Ok(key)
        })
        .await
    }
}

fn check_name(name: &str) -> Result<(), ActionError> {
    if name.chars().count() > MAX_NAME {
        return Err(ActionError::KeyName);
    }
    Ok(())
}

/// A key in the log of actions: only what was set.
fn recorded(key: &Key) -> Value {
    let mut recorded = json!({
        "account": key.account_id,
        "name": key.name,
        "prefix": key.prefix,
        "state": key.state.as_str(),
    });
    let (payer, terms) = (&key.payer, &key.terms);
    for (name, value) in [
        ("project", payer.project_id.clone().map(Value::from)),
        ("member", payer.member_id.clone().map(Value::from)),
        ("expires_at", terms.expires_at.map(Value::from)),
        ("models", terms.models.clone().map(Value::from)),
        ("rpm", terms.rpm.map(Value::from)),
        ("tpm", terms.tpm.map(Value::from)),
    ] {
        if let Some(value) = value {
            recorded[name] = value;
        }
    }
    recorded
}
