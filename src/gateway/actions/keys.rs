//! Operator actions on API keys. Their secrets are never recorded.

use serde_json::json;

use super::{ActionError, MAX_KEY_NAME, OperatorActions};
use crate::{
    base::keys::ApiKey,
    gateway::Gateway,
    ledger::{Key, KeyState},
};

impl OperatorActions {
    /// Creates a key and returns it with its secret, which cannot be read again.
    pub(crate) async fn create_key(
        &self,
        account_id: String,
        name: String,
    ) -> Result<(Key, ApiKey), ActionError> {
        if name.chars().count() > MAX_KEY_NAME {
            return Err(ActionError::KeyName);
        }
        let actions = self.clone();
        self.run_to_completion(async move {
            let Gateway {
                ledger, max_keys, ..
            } = &*actions.gateway;
            let (key, secret) = ledger.create_key(&account_id, name, *max_keys).await?;
            let after = json!({
                "account": key.account_id,
                "name": key.name,
                "prefix": key.prefix,
                "state": key.state.as_str(),
            });
            actions
                .record("key.create", &key.id, None, Some(after))
                .await;
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
