//! Operator actions on people: invitations, roles, password resets and removal. The secrets of links are never
//! recorded.

use serde_json::{Value, json};

use super::{ActionError, OperatorActions, error::check_email};
use crate::{
    backoffice::{BackofficeError, NewLink, Person, Purpose, Role, TeamRole, mail::templates},
    base::{keys::Secret, timestamp},
    ledger::LedgerError,
};

/// A one-time link that was made for a person. Its URL cannot be read again.
#[derive(Debug)]
pub(crate) struct OneTimeLink {
    pub email: String,
    pub url: Secret,
    pub expires_at: i64,
    /// Whether the mail server accepted an email with the link.
    pub mailed: bool,
}

/// The roles of an invited person: on the platform, and in the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Roles {
    pub role: Role,
    pub team_role: TeamRole,
}

impl Roles {
    /// Parses the role of an invitation: one in the account, or `operator`, who is an owner too. `customer` is an earlier
    /// name of `owner`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let role = Role::parse(text);
        let team_role = role.map_or_else(|| TeamRole::parse(text), |_| Some(TeamRole::Owner));
        Some(Self {
            role: role.unwrap_or(Role::Customer),
            team_role: team_role?,
        })
    }

    pub(crate) fn of_member(team_role: TeamRole) -> Self {
        Self {
            role: Role::Customer,
            team_role,
        }
    }
}

impl OperatorActions {
    /// Invites an email address to become a person of an account.
    pub(crate) async fn invite(
        &self,
        account_id: String,
        email: &str,
        Roles { role, team_role }: Roles,
    ) -> Result<OneTimeLink, ActionError> {
        let email = email.trim().to_owned();
        check_email(&email)?;
        let actions = self.clone();
        self.run_to_completion(async move {
            let gateway = &actions.gateway;
            if gateway.ledger.account(&account_id).await?.is_deleted() {
                return Err(ActionError::AccountDeleted);
            }
            if gateway.backoffice.person_by_email(&email).await?.is_some() {
                return Err(BackofficeError::EmailTaken.into());
            }
            let purpose = Purpose::Invitation {
                account_id: account_id.clone(),
                role,
                team_role,
            };
            let mut link = actions.make_link(&email, purpose).await?;
            let after = json!({
                "email": email,
                "role": role.as_str(),
                "team_role": team_role.as_str(),
                "expires_at": timestamp::shown(link.expires_at),
            });
            actions
                .record("person.invite", &account_id, None, Some(after))
                .await;
            let message = templates::invitation(&email, &gateway.portal.url, &link.url);
            link.mailed = gateway.send(message).await;
            Ok(link)
        })
        .await
    }

    /// Withdraws an invitation that has not been used yet.
    pub(crate) async fn withdraw_invitation(
        &self,
        account_id: String,
        email: String,
    ) -> Result<(), ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let backoffice = &actions.gateway.backoffice;
            let open = backoffice
                .invitations_of(&account_id, timestamp::now())
                .await?;
            let wanted = email.trim().to_lowercase();
            let mut open = open.into_iter();
            let Some(invitation) = open.find(|one| one.email.to_lowercase() == wanted) else {
                let (what, id) = ("invitation", email);
                return Err(LedgerError::NotFound { what, id }.into());
            };
            backoffice.withdraw_invitation(&account_id, &email).await?;
            let before = json!({
                "email": invitation.email,
                "expires_at": timestamp::shown(invitation.expires_at),
            });
            actions
                .record("person.uninvite", &account_id, Some(before), None)
                .await;
            Ok(())
        })
        .await
    }

    /// Changes a person's role with immediate effect. Operators cannot change their own role.
    pub(crate) async fn set_role(
        &self,
        person_id: String,
        role: Role,
    ) -> Result<Person, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let person = actions.person(&person_id).await?;
            if person.role == role {
                return Ok(person);
            }
            actions.check_is_another(&person)?;
            actions.gateway.backoffice.set_role(&person_id, role).await?;
            let role_json =
                |role: Role| json!({ "account": person.account_id, "email": person.email, "role": role.as_str() });
            let (before, after) = (role_json(person.role), role_json(role));
            actions.record("person.change", &person_id, Some(before), Some(after))
                .await;
            Ok(Person { role, ..person })
        })
        .await
    }

    /// Removes a person and ends all their sessions. The account stays. Operators cannot remove themselves.
    pub(crate) async fn remove_person(&self, person_id: String) -> Result<Person, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let person = actions.person(&person_id).await?;
            actions.check_is_another(&person)?;
            actions.gateway.backoffice.remove_person(&person_id).await?;
            actions
                .record(
                    "person.remove",
                    &person_id,
                    Some(person_json(&person)),
                    None,
                )
                .await;
            Ok(person)
        })
        .await
    }

    /// Makes a link with which a person sets a new password. The present password stays valid until then.
    pub(crate) async fn reset_password(
        &self,
        person_id: String,
    ) -> Result<OneTimeLink, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let person = actions.person(&person_id).await?;
            let purpose = Purpose::Reset {
                person_id: person_id.clone(),
            };
            let mut link = actions.make_link(&person.email, purpose).await?;
            let after = json!({
                "account": person.account_id,
                "email": person.email,
                "expires_at": timestamp::shown(link.expires_at),
            });
            actions
                .record("person.reset", &person_id, None, Some(after))
                .await;
            let portal = &actions.gateway.portal.url;
            let message = templates::reset_by_operator(&person.email, portal, &link.url);
            link.mailed = actions.gateway.send(message).await;
            Ok(link)
        })
        .await
    }

    async fn make_link(&self, email: &str, purpose: Purpose) -> Result<OneTimeLink, ActionError> {
        let new = NewLink {
            email: email.to_owned(),
            purpose,
            made_by: Some(self.actor.to_string()),
            now: timestamp::now(),
        };
        let made = self.gateway.backoffice.make_link(new).await?;
        Ok(OneTimeLink {
            email: email.to_owned(),
            url: self.gateway.portal.welcome_url(&made.secret),
            expires_at: made.expires_at,
            mailed: false,
        })
    }

    pub(super) async fn person(&self, id: &str) -> Result<Person, ActionError> {
        let person = self.gateway.backoffice.person(id).await?;
        person.ok_or_else(|| {
            let (what, id) = ("person", id.to_owned());
            LedgerError::NotFound { what, id }.into()
        })
    }

    /// Refuses an action of operators on themselves, so that the last operator cannot be removed by mistake.
    pub(super) fn check_is_another(&self, person: &Person) -> Result<(), ActionError> {
        let is_another = person.email != *self.actor;
        is_another.then_some(()).ok_or(ActionError::Oneself)
    }
}

pub(super) fn person_json(person: &Person) -> Value {
    json!({
        "account": person.account_id,
        "email": person.email,
        "name": person.name,
        "role": person.role.as_str(),
        "team_role": person.team_role.as_str(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_of_an_invitation_is_one_in_the_account_or_operator() {
        let parsed = |text| Roles::parse(text).map(|roles| (roles.role, roles.team_role));
        for (text, role, team_role) in [
            ("owner", Role::Customer, TeamRole::Owner),
            ("customer", Role::Customer, TeamRole::Owner),
            ("billing", Role::Customer, TeamRole::Billing),
            ("developer", Role::Customer, TeamRole::Developer),
            ("viewer", Role::Customer, TeamRole::Viewer),
            ("operator", Role::Operator, TeamRole::Owner),
        ] {
            assert_eq!(parsed(text), Some((role, team_role)), "{text}");
        }
        for text in ["", "admin", "Owner", " viewer"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }
}
