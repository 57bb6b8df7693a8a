//! Operator actions on accounts and their credit.

use serde_json::{Value, json};

use super::{ActionError, OperatorActions, error::check_email};
use crate::{
    base::timestamp,
    ledger::{Account, AccountChange, Grant, NewAccount, NewGrant},
};

impl OperatorActions {
    pub(crate) async fn create_account(&self, new: NewAccount) -> Result<Account, ActionError> {
        check_email(&new.email)?;
        let actions = self.clone();
        self.run_to_completion(async move {
            let account = actions.gateway.ledger.create_account(new).await?;
            let after = json!({
                "email": account.email,
                "name": account.name,
                "track": account.plan.track().as_str(),
                "tier": account.plan.tier().as_str(),
            });
            let id = &account.id;
            actions
                .record("account.create", id, None, Some(after))
                .await;
            Ok(account)
        })
        .await
    }

    pub(crate) async fn change_account(
        &self,
        id: String,
        change: AccountChange,
    ) -> Result<Account, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let ledger = &actions.gateway.ledger;
            let account = ledger.account(&id).await?;
            if account.is_deleted() {
                return Err(ActionError::AccountDeleted);
            }
            let before = changeable(&account);
            let account = ledger.change_account(&id, change).await?;
            let after = changeable(&account);
            // Closing a closed account changes nothing and is not recorded.
            if before != after {
                let (before, after) = (Some(before), Some(after));
                actions.record("account.change", &id, before, after).await;
            }
            Ok(account)
        })
        .await
    }

    pub(crate) async fn grant(
        &self,
        account_id: String,
        new: NewGrant,
    ) -> Result<Grant, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let ledger = &actions.gateway.ledger;
            ledger.account(&account_id).await?;
            let balance = ledger.balances(&account_id).await?.balance;
            let (grant, is_new) = ledger.grant_once(&account_id, new).await?;
            // Repeating a grant with a known reference returns the earlier grant, which was recorded when it was
            // made.
            if is_new {
                let before = Some(json!({ "balance": balance }));
                // The grant stands even if its balance cannot be read for the record.
                let balance = ledger.balances(&account_id).await;
                let after = json!({
                    "balance": balance.ok().map(|balances| balances.balance),
                    "grant": grant.id,
                    "amount": grant.amount,
                    "expires_at": grant.expires_at.map(timestamp::shown),
                    "reason": grant.reason,
                    "reference": grant.reference,
                });
                // Several gateways may make the grant at once. It is one grant, so its ID makes the record unique.
                let id = format!("action_{}", grant.id);
                actions
                    .record_once(&id, "account.grant", &account_id, before, Some(after))
                    .await;
            }
            Ok(grant)
        })
        .await
    }
}

impl OperatorActions {
    /// Sets the customer's name and address on receipts and statements. Returns what they were.
    pub(crate) async fn set_bill_to(
        &self,
        account_id: String,
        bill_to: String,
    ) -> Result<String, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let backoffice = &actions.gateway.backoffice;
            let before = backoffice.bill_to(&account_id).await?;
            if before != bill_to {
                let now = timestamp::now();
                backoffice.set_bill_to(&account_id, &bill_to, now).await?;
                let (was, is) = (json!({ "bill_to": before }), json!({ "bill_to": bill_to }));
                let what = "billing_details.set";
                actions.record(what, &account_id, Some(was), Some(is)).await;
            }
            Ok(before)
        })
        .await
    }
}

/// Returns the fields of an account that an operator can change.
fn changeable(account: &Account) -> Value {
    json!({
        "track": account.plan.track().as_str(),
        "tier": account.plan.tier().as_str(),
        "closed": account.closed,
    })
}
