//! Accounts and their credit.

use serde_json::{Value, json};

use super::{ActError, Acts, error::check_email};
use crate::{
    base::timestamp,
    ledger::{Account, AccountChange, Grant, NewAccount, NewGrant},
};

impl Acts {
    pub async fn create_account(&self, new: NewAccount) -> Result<Account, ActError> {
        check_email(&new.email)?;
        let acts = self.clone();
        self.whole(async move {
            let account = acts.gateway.ledger.create_account(new).await?;
            let after = json!({
                "email": account.email,
                "name": account.name,
                "track": account.plan.track().as_str(),
                "tier": account.plan.tier().as_str(),
            });
            let id = &account.id;
            acts.record("account.create", id, None, Some(after)).await;
            Ok(account)
        })
        .await
    }

    pub async fn change_account(
        &self,
        id: String,
        change: AccountChange,
    ) -> Result<Account, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let ledger = &acts.gateway.ledger;
            let before = changeable(&ledger.account(&id).await?);
            let account = ledger.change_account(&id, change).await?;
            let after = changeable(&account);
            // Whoever closes what is closed has done nothing.
            if before != after {
                let (before, after) = (Some(before), Some(after));
                acts.record("account.change", &id, before, after).await;
            }
            Ok(account)
        })
        .await
    }

    pub async fn grant(&self, account_id: String, new: NewGrant) -> Result<Grant, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let ledger = &acts.gateway.ledger;
            ledger.account(&account_id).await?;
            let balance = ledger.balances(&account_id).await?.balance;
            let (grant, is_new) = ledger.grant_once(&account_id, new).await?;
            // A grant that was given before is that one, and was written down by whoever gave it.
            if is_new {
                let before = Some(json!({ "balance": balance }));
                // The act stands, whatever can be told of the balance.
                let balance = ledger.balances(&account_id).await;
                let after = json!({
                    "balance": balance.ok().map(|balances| balances.balance),
                    "grant": grant.id,
                    "amount": grant.amount,
                    "expires_at": grant.expires_at.map(timestamp::shown),
                    "reason": grant.reason,
                    "reference": grant.reference,
                });
                // Given at several gateways at once it is one grant, and one act.
                let id = format!("action_{}", grant.id);
                acts.record_once(&id, "account.grant", &account_id, before, Some(after))
                    .await;
            }
            Ok(grant)
        })
        .await
    }
}

/// What an operator can change.
fn changeable(account: &Account) -> Value {
    json!({
        "track": account.plan.track().as_str(),
        "tier": account.plan.tier().as_str(),
        "closed": account.closed,
    })
}
