//! Deleting an account at the wish of one of its owners.
//!
//! The steps are in two stores and can be repeated; the people are removed last, so that an owner can repeat the whole
//! after a failure in between.

use serde_json::json;

use super::{ActionError, OperatorActions};
use crate::{
    backoffice::{Person, Role, mail::templates},
    base::{money::NanoUsd, timestamp},
    gateway::{Gateway, STARTER_CREDIT},
    ledger::{KeyFilter, KeysPage},
};

/// How many keys are read at a time.
const PAGE: usize = 500;

impl OperatorActions {
    /// Deletes an account: its keys end at once and calls that run are charged; its people are removed, and names and
    /// addresses are replaced in all that stays. Returns the credit that is forfeited. Refused while an operator is among
    /// its people.
    pub(crate) async fn delete_account(&self, owner: Person) -> Result<NanoUsd, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let gateway = &actions.gateway;
            let (ledger, backoffice) = (&gateway.ledger, &gateway.backoffice);
            let id = owner.account_id.as_str();
            let people = backoffice.people_of(id).await?;
            if people.iter().any(|person| person.role == Role::Operator) {
                return Err(ActionError::OperatorInAccount);
            }
            let mut subjects = subjects(gateway, id).await?;
            subjects.extend(people.iter().map(|person| person.id.clone()));
            // First, so that no credit is bought for it any more.
            backoffice.turn_off_top_up(id).await?;
            keep_starter_credit(gateway, id, &people).await?;
            let deleted_keys = ledger.erase_account(id).await?;
            if let Err(error) = gateway.conversations.delete_all_of(id).await {
                tracing::error!(%error, account.id = id, "deleting the stored responses of a deleted account failed; they expire");
            }
            let balance = ledger.balances(id).await?.balance;
            let as_owner = Self::by(gateway, &owner.id);
            let after = json!({
                "balance": balance,
                "deleted_keys": deleted_keys,
                "people": people.iter().map(|person| person.id.as_str()).collect::<Vec<_>>(),
            });
            // It may be repeated after a failure, and is one deletion.
            let action = format!("action_delete_{id}");
            as_owner
                .record_once(&action, "account.delete", id, None, Some(after))
                .await;
            backoffice.erase_from_actions(&subjects, &people).await?;
            backoffice.erase_people_of(id, &people).await?;
            for person in people {
                let message = templates::account_deleted(&person.email, &gateway.portal.url);
                gateway.send_later(async { Some(message) });
            }
            Ok(balance)
        })
        .await
    }
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

/// What recorded actions on the account can be about: itself, its keys, projects and budgets.
async fn subjects(gateway: &Gateway, account_id: &str) -> Result<Vec<String>, ActionError> {
    let ledger = &gateway.ledger;
    let mut subjects = vec![account_id.to_owned()];
    let projects = ledger.projects(account_id).await?.into_iter();
    subjects.extend(projects.map(|project| project.id));
    let budgets = ledger.budgets(account_id).await?.into_iter();
    subjects.extend(budgets.map(|state| state.budget.id.clone()));
    let mut before = None;
    loop {
        let page = KeysPage {
            account_id,
            filter: KeyFilter::All,
            member_id: None,
            before,
            limit: PAGE,
        };
        let keys = ledger.keys_page(page).await?;
        before = keys.last().map(|key| (key.created_at, key.id.clone()));
        let is_last = keys.len() < PAGE;
        subjects.extend(keys.into_iter().map(|key| key.id));
        if is_last {
            return Ok(subjects);
        }
    }
}
