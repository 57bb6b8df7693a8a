//! Actions on the members of an account, by operators and by owners of the account: roles and removal.

use serde_json::json;

use super::{ActionError, OperatorActions, people::person_json};
use crate::{
    backoffice::{BackofficeError, Person, Role, TeamRole},
    ledger::{BudgetScope, Key, KeyState, LedgerError},
};

impl OperatorActions {
    /// Changes a member's role in the account with immediate effect.
    pub(crate) async fn set_team_role(
        &self,
        person_id: String,
        role: TeamRole,
    ) -> Result<Person, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let before = actions.person(&person_id).await?;
            let backoffice = &actions.gateway.backoffice;
            // The person may have been removed meanwhile.
            let changed = backoffice.set_team_role(&person_id, role).await?;
            let person = changed.ok_or_else(|| missing(&person_id))?;
            if before.team_role != person.team_role {
                let (before, after) = (person_json(&before), person_json(&person));
                actions
                    .record("member.change", &person_id, Some(before), Some(after))
                    .await;
            }
            Ok(person)
        })
        .await
    }

    /// Removes a member: ends their sessions, and deletes the keys that they made. Calls that run go on and are charged.
    ///
    /// The keys are in another store than the people. They are disabled first, so that no failure in between leaves a
    /// removed member with a key that works.
    pub(crate) async fn remove_member(&self, person_id: String) -> Result<Person, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let person = actions.person(&person_id).await?;
            if person.role == Role::Operator {
                actions.check_is_another(&person)?;
            }
            actions.check_is_not_last_owner(&person).await?;
            let disabled = actions.disable_keys_of(&person).await?;
            match actions.gateway.backoffice.remove_member(&person).await {
                Ok(()) => {}
                Err(error @ BackofficeError::LastOwner) => {
                    // Another owner was removed at the same time, so this one stays.
                    actions.set_states(&disabled, KeyState::Active).await?;
                    return Err(error.into());
                }
                // The person may be removed or not, so the keys stay disabled.
                Err(error) => return Err(error.into()),
            }
            let deleted = actions.delete_keys_of(&person).await;
            let ledger = &actions.gateway.ledger;
            let (account_id, scope) = (&person.account_id, BudgetScope::Member);
            ledger
                .remove_budgets_of(account_id, scope, &person_id)
                .await;
            let after = json!({ "deleted_keys": deleted });
            actions
                .record(
                    "member.remove",
                    &person_id,
                    Some(person_json(&person)),
                    Some(after),
                )
                .await;
            Ok(person)
        })
        .await
    }

    /// Spares the keys of a last owner from being disabled. The store checks it again when it removes the person.
    async fn check_is_not_last_owner(&self, person: &Person) -> Result<(), ActionError> {
        let is_owner = |member: &Person| member.team_role == TeamRole::Owner;
        let people = self.gateway.backoffice.people_of(&person.account_id);
        let mut people = people.await?.into_iter();
        if is_owner(person) && !people.any(|other| is_owner(&other) && other.id != person.id) {
            return Err(BackofficeError::LastOwner.into());
        }
        Ok(())
    }

    /// Disables the active keys that a person made, and returns them.
    async fn disable_keys_of(&self, person: &Person) -> Result<Vec<Key>, ActionError> {
        let mut keys = self.live_keys_of(person).await?;
        keys.retain(|key| key.state == KeyState::Active);
        self.set_states(&keys, KeyState::Disabled).await?;
        Ok(keys)
    }

    /// Deletes the keys that a removed person made, and returns their IDs. Keys that cannot be deleted now stay disabled.
    async fn delete_keys_of(&self, person: &Person) -> Vec<String> {
        let deleting = async {
            let keys = self.live_keys_of(person).await?;
            self.set_states(&keys, KeyState::Deleted).await?;
            Ok::<_, LedgerError>(keys.into_iter().map(|key| key.id).collect())
        };
        deleting.await.unwrap_or_else(|error| {
            tracing::error!(
                %error,
                member = person.id,
                account.id = person.account_id,
                "a member was removed, and deleting their keys failed; the keys are disabled",
            );
            Vec::new()
        })
    }

    async fn live_keys_of(&self, person: &Person) -> Result<Vec<Key>, LedgerError> {
        let mut keys = match self.gateway.ledger.keys(&person.account_id).await {
            // A person is stored before the account.
            Err(LedgerError::NotFound { .. }) => Vec::new(),
            keys => keys?,
        };
        keys.retain(|key| key.payer.member_id.as_ref() == Some(&person.id));
        Ok(keys)
    }

    async fn set_states(&self, keys: &[Key], state: KeyState) -> Result<(), LedgerError> {
        for key in keys {
            match self.gateway.ledger.set_key_state(&key.id, state).await {
                // Deleted meanwhile, which is for good.
                Ok(_) | Err(LedgerError::KeyDeleted) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn missing(id: &str) -> ActionError {
    let (what, id) = ("member", id.to_owned());
    LedgerError::NotFound { what, id }.into()
}
