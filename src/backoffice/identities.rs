//! By what an issuer of OpenID Connect calls them, people are known as well.

use super::{
    Backoffice, BackofficeError, NewPerson, Person,
    people::{email_key, first_person, person_columns},
    sql::{Statement, statement},
};
use crate::base::keys::random_id;

/// Somebody, as an issuer tells them from all others, whatever their address is.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    pub issuer: &'a str,
    pub subject: &'a str,
}

impl Identity<'_> {
    fn look(self) -> Statement {
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
    pub async fn person_by_identity(
        &self,
        identity: Identity<'_>,
    ) -> Result<Option<Person>, BackofficeError> {
        first_person(self.run(vec![identity.look()]).await?)
    }

    /// Adds somebody together with their identity, so that nobody is left with an address taken and no
    /// way in; whose identity is known already is that person.
    pub async fn add_person_known_as(
        &self,
        new: NewPerson,
        identity: Identity<'_>,
    ) -> Result<Person, BackofficeError> {
        let id = random_id("person_");
        let add = statement(
            "INSERT INTO backoffice_people
                 (id, email, email_key, name, password, password_at, role, account_id, created_at)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9
             WHERE NOT EXISTS
                 (SELECT 1 FROM backoffice_identities i JOIN backoffice_people p ON p.id = i.person_id
                  WHERE i.issuer = $10 AND i.subject = $11)
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
                new.now.into(),
                identity.issuer.into(),
                identity.subject.into(),
            ],
        );
        let statements = vec![add, connected(&id, identity, new.now), identity.look()];
        let person = first_person(self.run(statements).await?)?;
        person.ok_or(BackofficeError::EmailTaken)
    }

    /// Has a person known by an identity too; false where it is somebody else's.
    pub async fn connect(
        &self,
        person_id: &str,
        identity: Identity<'_>,
        now: i64,
    ) -> Result<bool, BackofficeError> {
        let statements = vec![connected(person_id, identity, now), identity.look()];
        let person = first_person(self.run(statements).await?)?;
        Ok(person.is_some_and(|person| person.id == person_id))
    }

    pub async fn is_connected(
        &self,
        person_id: &str,
        issuer: &str,
    ) -> Result<bool, BackofficeError> {
        let look = statement(
            "SELECT subject FROM backoffice_identities WHERE person_id = $1 AND issuer = $2",
            [person_id.into(), issuer.into()],
        );
        Ok(!self.run(vec![look]).await?.is_empty())
    }

    /// Forgets a person's identities with an issuer, unless they have no password to come in with.
    pub async fn disconnect(&self, person_id: &str, issuer: &str) -> Result<(), BackofficeError> {
        let forget = statement(
            "DELETE FROM backoffice_identities WHERE person_id = $1 AND issuer = $2 AND EXISTS
                 (SELECT 1 FROM backoffice_people WHERE id = $1 AND password IS NOT NULL)",
            [person_id.into(), issuer.into()],
        );
        self.run(vec![forget]).await?;
        Ok(())
    }
}

/// Of somebody who is not there it writes nothing down, nor a second identity of theirs with an issuer. What
/// somebody who is gone has left behind is nobody's.
fn connected(person_id: &str, identity: Identity<'_>, now: i64) -> Statement {
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

/// Forgets what issuers call somebody.
pub fn identities_of(person_id: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_identities WHERE person_id = $1",
        [person_id.into()],
    )
}
