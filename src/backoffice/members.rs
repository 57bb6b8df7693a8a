//! Members: the people of an account, each with a role in it. An account that has members has an owner: its last one
//! cannot be removed or get another role.

use super::{
    Backoffice, BackofficeError, Person,
    people::{email_key, first_person, person_columns},
    second_factor::delete_second_factor_left_behind,
    sql::{Row, Statement, statement, unexpected},
    top_ups::pause_top_up_left_behind,
};

/// What a person may do in their account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TeamRole {
    /// Everything.
    Owner,
    /// Credit, budgets, payments and usage.
    Billing,
    /// Keys of their own, with their usage and requests.
    Developer,
    /// Sees usage and models.
    Viewer,
}

impl TeamRole {
    pub const ALL: [Self; 4] = [Self::Owner, Self::Billing, Self::Developer, Self::Viewer];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Billing => "billing",
            Self::Developer => "developer",
            Self::Viewer => "viewer",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    pub(super) fn read(row: &mut Row) -> Result<Self, BackofficeError> {
        Self::parse(&row.text()?).ok_or_else(|| unexpected("a role in an account"))
    }
}

impl Backoffice {
    /// Sets the role in the account, which takes effect at once, in existing sessions too; `None` if the person is
    /// unknown. Fails with `LastOwner`, and changes nothing, if the account would have no owner. When an owner gets
    /// another role, unused invitations to the account that they made are deleted.
    pub async fn set_team_role(
        &self,
        person_id: &str,
        role: TeamRole,
    ) -> Result<Option<Person>, BackofficeError> {
        let set = statement(
            "UPDATE backoffice_people SET team_role = $1
             WHERE id = $2 AND ($1 = 'owner' OR team_role <> 'owner' OR EXISTS
                 (SELECT 1 FROM backoffice_people o
                  WHERE o.account_id = backoffice_people.account_id AND o.team_role = 'owner' AND o.id <> $2))",
            [role.as_str().into(), person_id.into()],
        );
        let withdraw = statement(
            "DELETE FROM backoffice_links
             WHERE kind = 'invitation' AND used_at = 0 AND EXISTS
                 (SELECT 1 FROM backoffice_people p
                  WHERE p.id = $1 AND p.team_role <> 'owner' AND p.email = backoffice_links.made_by
                    AND p.account_id = backoffice_links.account_id)",
            [person_id.into()],
        );
        let steps = vec![lock_owners(person_id), set, withdraw, by_id(person_id)];
        match first_person(self.run(steps).await?)? {
            Some(person) if person.team_role != role => Err(BackofficeError::LastOwner),
            person => Ok(person),
        }
    }

    /// Removes a member together with their sessions, identities, second factor, the unused links to their address and the
    /// unused links that they made. Auto top-up that they turned on is paused, and forgets their card. Fails with
    /// `LastOwner`, and changes nothing, if the account would have no owner. Changes nothing if the person was removed
    /// before.
    pub async fn remove_member(&self, person: &Person) -> Result<(), BackofficeError> {
        let id = person.id.as_str();
        let remove = statement(
            "DELETE FROM backoffice_people
             WHERE id = $1 AND (team_role <> 'owner' OR EXISTS
                 (SELECT 1 FROM backoffice_people o
                  WHERE o.account_id = backoffice_people.account_id AND o.team_role = 'owner' AND o.id <> $1))",
            [id.into()],
        );
        let sessions = statement(
            "DELETE FROM backoffice_sessions WHERE person_id = $1
                 AND NOT EXISTS (SELECT 1 FROM backoffice_people WHERE id = $1)",
            [id.into()],
        );
        let identities = statement(
            "DELETE FROM backoffice_identities WHERE person_id = $1
                 AND NOT EXISTS (SELECT 1 FROM backoffice_people WHERE id = $1)",
            [id.into()],
        );
        let links = statement(
            "DELETE FROM backoffice_links WHERE used_at = 0
                 AND (person_id = $1 OR email_key = $2 OR made_by = $3)
                 AND NOT EXISTS (SELECT 1 FROM backoffice_people WHERE id = $1)",
            [
                id.into(),
                email_key(&person.email).as_str().into(),
                person.email.as_str().into(),
            ],
        );
        let mut steps = vec![lock_owners(id), remove, sessions, identities, links];
        steps.push(pause_top_up_left_behind(person));
        steps.extend(delete_second_factor_left_behind(id));
        steps.push(by_id(id));
        match first_person(self.run(steps).await?)? {
            Some(_) => Err(BackofficeError::LastOwner),
            None => Ok(()),
        }
    }
}

/// Locks the owners of a person's account until the transaction ends. Of two owners who remove each other, the later
/// transaction waits here, and its next statement sees that it would remove the last one.
fn lock_owners(person_id: &str) -> Statement {
    statement(
        "UPDATE backoffice_people SET team_role = team_role
         WHERE team_role = 'owner'
           AND account_id = (SELECT p.account_id FROM backoffice_people p WHERE p.id = $1)",
        [person_id.into()],
    )
}

fn by_id(person_id: &str) -> Statement {
    statement(
        concat!(
            "SELECT ",
            person_columns!(),
            " FROM backoffice_people p WHERE p.id = $1"
        ),
        [person_id.into()],
    )
}
