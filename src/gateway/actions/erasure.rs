//! Deleting an account at the wish of one of its owners.
//!
//! The steps are in two stores. A deletion is recorded before anything is changed, and its people are removed last: one
//! that was interrupted in between is found by that and finished later, by any gateway.

use std::sync::Arc;

use serde_json::json;

use super::{ActionError, OperatorActions};
use crate::{
    backoffice::{Action, Person, Role, deletion_id, mail::templates},
    base::{money::NanoUsd, timestamp},
    gateway::{Gateway, STARTER_CREDIT},
};

impl OperatorActions {
    /// Deletes an account: its keys end at once and calls that run are charged; its people are removed, and names and
    /// addresses are replaced in all that stays. Returns the credit that is forfeited. Refused while an operator is among
    /// its people.
    ///
    /// After an error the deletion may have begun. Then it is finished later.
    pub(crate) async fn delete_account(&self, owner: Person) -> Result<NanoUsd, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let gateway = &actions.gateway;
            let id = owner.account_id.as_str();
            let people = people_to_delete(gateway, id).await?;
            let balance = gateway.ledger.balances(id).await?.balance;
            let after = json!({
                "balance": balance,
                "deleted_keys": gateway.ledger.keys(id).await?.len(),
                "people": people.iter().map(|person| person.id.as_str()).collect::<Vec<_>>(),
            });
            let begun = Action {
                at_ms: timestamp::now_ms(),
                actor: owner.id.clone(),
                what: "account.delete".into(),
                subject: id.to_owned(),
                before: None,
                after: Some(after.to_string()),
            };
            // It may be repeated after a failure, and is one deletion.
            let backoffice = &gateway.backoffice;
            backoffice.record_once(&deletion_id(id), &begun).await?;
            finish(gateway, id).await?;
            Ok(balance)
        })
        .await
    }
}

/// Finishes deletions that were interrupted. What fails again is logged, and tried again with the next run.
pub(crate) async fn finish_deletions(gateway: &Arc<Gateway>) {
    let unfinished = gateway.backoffice.unfinished_deletions().await;
    let unfinished = unfinished.unwrap_or_else(|error| {
        tracing::warn!(%error, "looking for unfinished deletions of accounts failed; retrying in an hour");
        Vec::new()
    });
    for id in unfinished {
        match finish(gateway, &id).await {
            Ok(()) => tracing::info!(
                account.id = id,
                "a deletion of an account that was interrupted is finished"
            ),
            Err(error) => {
                tracing::error!(%error, account.id = id, "finishing the deletion of an account failed; retrying in an hour");
            }
        }
    }
}

/// The steps of a deletion. Each can be repeated.
async fn finish(gateway: &Arc<Gateway>, id: &str) -> Result<(), ActionError> {
    let (ledger, backoffice) = (&gateway.ledger, &gateway.backoffice);
    let people = people_to_delete(gateway, id).await?;
    // First, so that no credit is bought for it any more.
    backoffice.turn_off_top_up(id).await?;
    keep_starter_credit(gateway, id, &people).await?;
    // From here on the people cannot use the portal.
    ledger.erase_account(id).await?;
    if let Err(error) = gateway.conversations.delete_all_of(id).await {
        tracing::error!(%error, account.id = id, "deleting the stored responses of a deleted account failed; they expire");
    }
    let traces = backoffice.traces_of(id).await?;
    let grants = ledger.grants(id).await?.into_iter();
    let reasons = grants.filter_map(|grant| Some((grant.id, traces.replaced(&grant.reason?)?)));
    ledger.erase_texts(id, reasons.collect()).await?;
    backoffice.erase_from_actions(&traces).await?;
    backoffice.erase_people_of(id, &traces).await?;
    for person in people {
        let message = templates::account_deleted(&person.email, &gateway.portal.url);
        gateway.send_later(async { Some(message) });
    }
    Ok(())
}

/// Keeps who has signed up and got starter credit, before they are removed: there is no second one for them.
async fn keep_starter_credit(
    gateway: &Gateway,
    account_id: &str,
    people: &[Person],
) -> Result<(), ActionError> {
    let grants = gateway.ledger.grants(account_id).await?;
    let mut references = grants.iter().map(|grant| grant.reference.as_deref());
    if !references.any(|reference| reference == Some(STARTER_CREDIT)) {
        return Ok(());
    }
    let account = gateway.ledger.account(account_id).await?;
    let first = people
        .iter()
        .filter(|person| person.created_at <= account.created_at);
    for person in first {
        let kept = gateway
            .backoffice
            .keep_starter_credit(person, timestamp::now());
        kept.await?;
    }
    Ok(())
}

async fn people_to_delete(gateway: &Gateway, id: &str) -> Result<Vec<Person>, ActionError> {
    let people = gateway.backoffice.people_of(id).await?;
    if people.iter().any(|person| person.role == Role::Operator) {
        return Err(ActionError::OperatorInAccount);
    }
    Ok(people)
}
