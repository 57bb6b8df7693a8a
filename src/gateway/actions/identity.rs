//! Changes of who a person is and how they prove it: email address, name and second factor. People change their own;
//! operators can reset the second factor of others. Codes and secrets are never recorded.

use serde_json::json;

use super::{ActionError, OperatorActions, error::check_email};
use crate::{
    backoffice::{Digest, Person, mail::templates},
    base::{keys::Secret, timestamp},
    ledger::{Account, AccountChange, Edit},
};

/// A new address: typed by a person who has confirmed their password, or proven by a link as well.
pub(crate) enum NewEmail {
    Typed(String),
    Proven(Digest),
}

impl OperatorActions {
    /// Changes a person's address and ends their sessions except `session`. The account's own address is changed with
    /// it if it was the same, and the former address is told. `None` if the link cannot be used.
    pub(crate) async fn change_email(
        &self,
        person: Person,
        new: NewEmail,
        session: Digest,
    ) -> Result<Option<Person>, ActionError> {
        if let NewEmail::Typed(email) = &new {
            check_email(email.trim())?;
        }
        let actions = self.clone();
        self.run_to_completion(async move {
            let gateway = &actions.gateway;
            let (backoffice, id) = (&gateway.backoffice, &person.id);
            let changed = match &new {
                NewEmail::Typed(email) => backoffice.change_email(id, email, &session).await?,
                NewEmail::Proven(digest) => {
                    let now = timestamp::now();
                    backoffice
                        .change_email_by_link(digest, id, &session, now)
                        .await?
                }
            };
            let Some(changed) = changed else {
                return Ok(None);
            };
            let is_own = |account: &Account| same(&account.email, &person.email);
            let change = AccountChange {
                email: Some(changed.email.clone()),
                ..AccountChange::default()
            };
            actions.change_account_of(&person, is_own, change).await;
            let (before, after) = (
                json!({ "email": person.email }),
                json!({ "email": changed.email }),
            );
            actions
                .record("person.email", id, Some(before), Some(after))
                .await;
            let message = templates::email_changed(&person.email, &gateway.portal.url);
            gateway.send_later(async { Some(message) });
            Ok(Some(changed))
        })
        .await
    }

    /// Sets or clears a person's name, and that of the account if it was the same.
    pub(crate) async fn rename_person(
        &self,
        person: Person,
        name: Option<String>,
    ) -> Result<(), ActionError> {
        if person.name == name {
            return Ok(());
        }
        let actions = self.clone();
        self.run_to_completion(async move {
            let backoffice = &actions.gateway.backoffice;
            backoffice.set_name(&person.id, name.as_deref()).await?;
            let is_own = |account: &Account| {
                account.name == person.name && same(&account.email, &person.email)
            };
            let change = AccountChange {
                name: name.clone().map_or(Edit::Clear, Edit::Set),
                ..AccountChange::default()
            };
            actions.change_account_of(&person, is_own, change).await;
            let (before, after) = (json!({ "name": person.name }), json!({ "name": name }));
            actions
                .record("person.name", &person.id, Some(before), Some(after))
                .await;
            Ok(())
        })
        .await
    }

    /// Changes what the ledger has of a person's account, if it was theirs. The account is in another store; a failure
    /// is logged, and the person is changed all the same.
    async fn change_account_of(
        &self,
        person: &Person,
        is_own: impl Fn(&Account) -> bool,
        change: AccountChange,
    ) {
        let (ledger, id) = (&self.gateway.ledger, &person.account_id);
        let changing = async {
            if is_own(&ledger.account(id).await?) {
                ledger.change_account(id, change).await?;
            }
            Ok::<_, crate::ledger::LedgerError>(())
        };
        if let Err(error) = changing.await {
            tracing::error!(
                %error,
                account.id = id,
                "a person was changed, and changing their account with them failed"
            );
        }
    }

    /// Turns on a person's second factor with the first code of their app; returns recovery codes, or `None` if the code
    /// is not right.
    pub(crate) async fn confirm_second_factor(
        &self,
        person: Person,
        session: Digest,
        code: String,
    ) -> Result<Option<Vec<Secret>>, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let (backoffice, now) = (&actions.gateway.backoffice, timestamp::now());
            let confirmed = backoffice.confirm_second_factor(&person.id, &session, &code, now);
            let codes = confirmed.await?;
            if codes.is_some() {
                actions.second_factor_changed(&person, true).await;
            }
            Ok(codes)
        })
        .await
    }

    /// Turns off the second factor of another person, who has lost it. Operators turn off their own in the settings, where
    /// it needs a proof.
    pub(crate) async fn reset_second_factor(
        &self,
        person_id: String,
    ) -> Result<Person, ActionError> {
        self.check_is_another(&self.person(&person_id).await?)?;
        self.remove_second_factor(person_id).await
    }

    /// Turns off a person's second factor.
    pub(crate) async fn remove_second_factor(
        &self,
        person_id: String,
    ) -> Result<Person, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let person = actions.person(&person_id).await?;
            let backoffice = &actions.gateway.backoffice;
            backoffice.remove_second_factor(&person_id).await?;
            if person.second_factor_at.is_some() {
                actions.second_factor_changed(&person, false).await;
            }
            Ok(Person {
                second_factor_at: None,
                ..person
            })
        })
        .await
    }

    /// Makes new recovery codes; `None` without a second factor.
    pub(crate) async fn renew_recovery_codes(
        &self,
        person: Person,
    ) -> Result<Option<Vec<Secret>>, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let backoffice = &actions.gateway.backoffice;
            let codes = backoffice.renew_recovery_codes(&person.id).await?;
            if codes.is_some() {
                actions
                    .record("person.recovery_codes", &person.id, None, None)
                    .await;
            }
            Ok(codes)
        })
        .await
    }

    async fn second_factor_changed(&self, person: &Person, is_on: bool) {
        let state = |is_on: bool| Some(json!({ "second_factor": is_on }));
        self.record(
            "person.second_factor",
            &person.id,
            state(!is_on),
            state(is_on),
        )
        .await;
        let portal = &self.gateway.portal.url;
        let message = templates::second_factor(&person.email, portal, is_on);
        self.gateway.send_later(async { Some(message) });
    }
}

/// Whether two texts are one address.
fn same(one: &str, other: &str) -> bool {
    crate::backoffice::email_key(one) == crate::backoffice::email_key(other)
}
