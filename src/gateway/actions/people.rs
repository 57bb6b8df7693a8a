//! Who signs in: invited, given a role, let in again, removed. The secrets of links are in no record.

use serde_json::{Value, json};

use super::{ActError, Acts, error::check_email};
use crate::{
    backoffice::{BackofficeError, NewLink, Person, Purpose, Role, mail::templates},
    base::{keys::Secret, timestamp},
    ledger::LedgerError,
};

/// A link for somebody, and the one chance to see it.
#[derive(Debug)]
pub struct HandedLink {
    pub email: String,
    pub url: Secret,
    pub expires_at: i64,
    /// Whether a mail server has taken a letter with it.
    pub mailed: bool,
}

impl Acts {
    /// Lets somebody become a person on an account.
    pub async fn invite(
        &self,
        account_id: String,
        email: &str,
        role: Role,
    ) -> Result<HandedLink, ActError> {
        let email = email.trim().to_owned();
        check_email(&email)?;
        let acts = self.clone();
        self.whole(async move {
            let gateway = &acts.gateway;
            gateway.ledger.account(&account_id).await?;
            if gateway.backoffice.person_by_email(&email).await?.is_some() {
                return Err(BackofficeError::EmailTaken.into());
            }
            let purpose = Purpose::Invitation {
                account_id: account_id.clone(),
                role,
            };
            let mut handed = acts.make_link(&email, purpose).await?;
            let after = json!({
                "email": email,
                "role": role.as_str(),
                "expires_at": timestamp::shown(handed.expires_at),
            });
            acts.record("person.invite", &account_id, None, Some(after))
                .await;
            let message = templates::invitation(&email, &gateway.portal.url, &handed.url);
            handed.mailed = gateway.send(message).await;
            Ok(handed)
        })
        .await
    }

    /// Makes an invitation good for nothing, if nobody has used it yet.
    pub async fn withdraw_invitation(
        &self,
        account_id: String,
        email: String,
    ) -> Result<(), ActError> {
        let acts = self.clone();
        self.whole(async move {
            let backoffice = &acts.gateway.backoffice;
            let open = backoffice
                .invitations_of(&account_id, timestamp::now())
                .await?;
            let asked = email.trim().to_lowercase();
            let mut open = open.into_iter();
            let Some(invitation) = open.find(|one| one.email.to_lowercase() == asked) else {
                let (what, id) = ("invitation", email);
                return Err(LedgerError::NotFound { what, id }.into());
            };
            backoffice.withdraw_invitation(&account_id, &email).await?;
            let before = json!({
                "email": invitation.email,
                "expires_at": timestamp::shown(invitation.expires_at),
            });
            acts.record("person.uninvite", &account_id, Some(before), None)
                .await;
            Ok(())
        })
        .await
    }

    /// Counts at once. Nobody takes the role from themselves.
    pub async fn set_role(&self, person_id: String, role: Role) -> Result<Person, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let person = acts.person(&person_id).await?;
            if person.role == role {
                return Ok(person);
            }
            acts.check_is_another(&person)?;
            acts.gateway.backoffice.set_role(&person_id, role).await?;
            let told =
                |role: Role| json!({ "account": person.account_id, "email": person.email, "role": role.as_str() });
            let (before, after) = (told(person.role), told(role));
            acts.record("person.change", &person_id, Some(before), Some(after))
                .await;
            Ok(Person { role, ..person })
        })
        .await
    }

    /// Removes somebody and signs them out everywhere. The account stays. Nobody removes themselves.
    pub async fn remove_person(&self, person_id: String) -> Result<Person, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let person = acts.person(&person_id).await?;
            acts.check_is_another(&person)?;
            acts.gateway.backoffice.remove_person(&person_id).await?;
            acts.record("person.remove", &person_id, Some(shown(&person)), None)
                .await;
            Ok(person)
        })
        .await
    }

    /// Makes a link by which somebody sets another password. Until then the one they have counts.
    pub async fn reset_password(&self, person_id: String) -> Result<HandedLink, ActError> {
        let acts = self.clone();
        self.whole(async move {
            let person = acts.person(&person_id).await?;
            let purpose = Purpose::Reset {
                person_id: person_id.clone(),
            };
            let mut handed = acts.make_link(&person.email, purpose).await?;
            let after = json!({
                "account": person.account_id,
                "email": person.email,
                "expires_at": timestamp::shown(handed.expires_at),
            });
            acts.record("person.reset", &person_id, None, Some(after))
                .await;
            let portal = &acts.gateway.portal.url;
            let message = templates::reset_by_operator(&person.email, portal, &handed.url);
            handed.mailed = acts.gateway.send(message).await;
            Ok(handed)
        })
        .await
    }

    async fn make_link(&self, email: &str, purpose: Purpose) -> Result<HandedLink, ActError> {
        let new = NewLink {
            email: email.to_owned(),
            purpose,
            made_by: Some(self.who.to_string()),
            now: timestamp::now(),
        };
        let made = self.gateway.backoffice.make_link(new).await?;
        Ok(HandedLink {
            email: email.to_owned(),
            url: self.gateway.portal.welcome_url(&made.secret),
            expires_at: made.expires_at,
            mailed: false,
        })
    }

    async fn person(&self, id: &str) -> Result<Person, ActError> {
        let person = self.gateway.backoffice.person(id).await?;
        person.ok_or_else(|| {
            let (what, id) = ("person", id.to_owned());
            LedgerError::NotFound { what, id }.into()
        })
    }

    /// Whoever is operator must not end with nobody who is, by a slip.
    fn check_is_another(&self, person: &Person) -> Result<(), ActError> {
        let is_another = person.email != *self.who;
        is_another.then_some(()).ok_or(ActError::Oneself)
    }
}

fn shown(person: &Person) -> Value {
    json!({
        "account": person.account_id,
        "email": person.email,
        "name": person.name,
        "role": person.role.as_str(),
    })
}
