//! Keys. Their secrets are in no record.

use serde_json::json;

use super::{ActError, Acts, MAX_KEY_NAME};
use crate::{
    base::keys::ApiKey,
    ledger::{Key, KeyState},
};

impl Acts {
    /// Makes a key, and returns the one chance to see it.
    pub async fn create_key(
        &self,
        account_id: String,
        name: String,
    ) -> Result<(Key, ApiKey), ActError> {
        if name.chars().count() > MAX_KEY_NAME {
            return Err(ActError::KeyName);
        }
        let acts = self.clone();
        self.whole(async move {
            let (key, secret) = acts.gateway.ledger.create_key(&account_id, name).await?;
            let after = json!({
                "account": key.account_id,
                "name": key.name,
                "prefix": key.prefix,
                "state": key.state.as_str(),
            });
            acts.record("key.create", &key.id, None, Some(after)).await;
            Ok((key, secret))
        })
        .await
    }

    pub async fn set_key_state(&self, id: String, state: KeyState) -> Result<Key, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let ledger = &acts.gateway.ledger;
            let before = ledger.key(&id).await?.state;
            let key = ledger.set_key_state(&id, state).await?;
            if before != key.state {
                let told = |state: KeyState| {
                    Some(json!({ "account": key.account_id, "state": state.as_str() }))
                };
                let (before, after) = (told(before), told(key.state));
                acts.record("key.change", &id, before, after).await;
            }
            Ok(key)
        })
        .await
    }
}
