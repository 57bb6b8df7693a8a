//! Identities of people with OpenID Connect issuers, by which they can sign in.

use super::{
    Backoffice, BackofficeError, NewPerson, Person,
    people::{email_key, first_person, person_columns},
    sql::{Row, Statement, statement},
};
use crate::base::keys::random_id;

/// An issuer's stable identifier of a person (the `sub` claim), which does not depend on their email address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity<'a> {
    pub issuer: &'a str,
    pub subject: &'a str,
}

impl Identity<'_> {
    fn select(self) -> Statement {
        statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_identities i JOIN backoffice_people p ON p.id = i.person_id
                 WHERE i.issuer = $1 AND i.subject = $2"
            ),
            [self.issuer.into(), self.subject.into()],
        )
    }
}

impl Backoffice {
    pub(crate) async fn person_by_identity(
        &self,
        identity: Identity<'_>,
    ) -> Result<Option<Person>, BackofficeError> {
        first_person(self.run(vec![identity.select()]).await?)
    }

    /// Adds a person together with their identity, in one transaction: a person without the identity would occupy the
    /// address and have no way to sign in. If the identity is connected already, returns the person that it belongs to.
    pub(crate) async fn add_person_with_identity(
        &self,
        new: NewPerson,
        identity: Identity<'_>,
    ) -> Result<Person, BackofficeError> {
        let id = random_id("person_");
        let add = statement(
            "INSERT INTO backoffice_people
                 (id, email, email_key, name, password, password_at, role, account_id, team_role, created_at)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
             WHERE NOT EXISTS
                 (SELECT 1 FROM backoffice_identities i JOIN backoffice_people p ON p.id = i.person_id
                  WHERE i.issuer = $11 AND i.subject = $12)
             ON CONFLICT (email_key) DO NOTHING",
            [
                id.as_str().into(),
                new.email.trim().into(),
                email_key(&new.email).as_str().into(),
                new.name.as_deref().into(),
                new.password.as_deref().into(),
                new.now.into(),
                new.role.as_str().into(),
                new.account_id.as_str().into(),
                new.team_role.as_str().into(),
                new.now.into(),
                identity.issuer.into(),
                identity.subject.into(),
            ],
        );
        let statements = vec![
            add,
            insert_identity(&id, identity, new.now),
            identity.select(),
        ];
        let person = first_person(self.run(statements).await?)?;
        person.ok_or(BackofficeError::EmailTaken)
    }

    /// Connects an identity to a person; `false` if it belongs to another person.
    pub(crate) async fn connect(
        &self,
        person_id: &str,
        identity: Identity<'_>,
        now: i64,
    ) -> Result<bool, BackofficeError> {
        let statements = vec![insert_identity(person_id, identity, now), identity.select()];
        let person = first_person(self.run(statements).await?)?;
        Ok(person.is_some_and(|person| person.id == person_id))
    }

    pub(crate) async fn is_connected(
        &self,
        person_id: &str,
        issuer: &str,
    ) -> Result<bool, BackofficeError> {
        let select = statement(
            "SELECT subject FROM backoffice_identities WHERE person_id = $1 AND issuer = $2",
            [person_id.into(), issuer.into()],
        );
        Ok(!self.run(vec![select]).await?.is_empty())
    }

    /// Issuer and subject of each identity of a person.
    pub(super) async fn identities_of(
        &self,
        person_id: &str,
    ) -> Result<Vec<(String, String)>, BackofficeError> {
        let select = statement(
            "SELECT issuer, subject FROM backoffice_identities WHERE person_id = $1",
            [person_id.into()],
        );
        let rows = self.run(vec![select]).await?;
        let read = |mut row: Row| Ok((row.text()?, row.text()?));
        rows.into_iter().map(read).collect()
    }

    /// Deletes a person's identities with an issuer, unless the person has no password and could not sign in any more.
    pub(crate) async fn disconnect(
        &self,
        person_id: &str,
        issuer: &str,
    ) -> Result<(), BackofficeError> {
        let delete = statement(
            "DELETE FROM backoffice_identities WHERE person_id = $1 AND issuer = $2 AND EXISTS
                 (SELECT 1 FROM backoffice_people WHERE id = $1 AND password IS NOT NULL)",
            [person_id.into(), issuer.into()],
        );
        self.run(vec![delete]).await?;
        Ok(())
    }
}

/// Connects an identity to a person. Inserts nothing if the person does not exist or already has an identity with the
/// issuer; takes over an identity that was left behind by a deleted person.
fn insert_identity(person_id: &str, identity: Identity<'_>, now: i64) -> Statement {
    statement(
        "INSERT INTO backoffice_identities (issuer, subject, person_id, connected_at)
         SELECT $1, $2, p.id, $3 FROM backoffice_people p WHERE p.id = $4
             AND NOT EXISTS (SELECT 1 FROM backoffice_identities i
                             WHERE i.person_id = p.id AND i.issuer = $1)
         ON CONFLICT (issuer, subject) DO UPDATE
         SET person_id = excluded.person_id, connected_at = excluded.connected_at
         WHERE NOT EXISTS (SELECT 1 FROM backoffice_people q WHERE q.id = backoffice_identities.person_id)",
        [
            identity.issuer.into(),
            identity.subject.into(),
            now.into(),
            person_id.into(),
        ],
    )
}

/// Deletes all identities of a person.
pub(crate) fn delete_identities(person_id: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_identities WHERE person_id = $1",
        [person_id.into()],
    )
}
