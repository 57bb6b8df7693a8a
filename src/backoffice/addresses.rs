//! Changes of a person's email address and name.
//!
//! A new address takes effect in one transaction with what depends on it: other sessions end, unused links that could
//! change the person are deleted, and invitations that they made stay theirs.

use super::{
    Backoffice, BackofficeError, Digest, Person,
    people::{email_key, first_person, person_columns},
    sql::{Statement, statement},
};
use crate::base::{hex::hex, keys::random_id};

/// An address that a person is to have.
struct Change<'a> {
    person_id: &'a str,
    email: &'a str,
    key: String,
    /// The digest of the link that must have been taken by this use; both are empty without a link.
    link: String,
    one_use: String,
}

impl Backoffice {
    /// Changes a person's address at once, and ends their sessions except `except`; fails with `EmailTaken` if another
    /// person has it. `None` if the person is unknown.
    pub(crate) async fn change_email(
        &self,
        person_id: &str,
        email: &str,
        except: &Digest,
    ) -> Result<Option<Person>, BackofficeError> {
        let change = Change {
            person_id,
            email: email.trim(),
            key: email_key(email),
            link: String::new(),
            one_use: String::new(),
        };
        match first_person(self.run(change.steps(except)).await?)? {
            Some(person) if person.email != change.email => Err(BackofficeError::EmailTaken),
            person => Ok(person),
        }
    }

    /// Uses a link that proves a new address of this person, and changes it as [`Self::change_email`] does; `None` if
    /// the link cannot be used. If another person has the address, fails with `EmailTaken` and leaves the link unused.
    pub(crate) async fn change_email_by_link(
        &self,
        digest: &Digest,
        person_id: &str,
        except: &Digest,
        now: i64,
    ) -> Result<Option<Person>, BackofficeError> {
        let Some(link) = self.link(digest, now).await? else {
            return Ok(None);
        };
        let change = Change {
            person_id,
            email: &link.email,
            key: email_key(&link.email),
            link: hex(digest),
            one_use: random_id("use_"),
        };
        let mut steps = vec![change.take(now)];
        steps.extend(change.steps(except));
        match first_person(self.run(steps).await?)? {
            Some(person) if person.email == change.email => Ok(Some(person)),
            _ if self.person_by_email(&link.email).await?.is_some() => {
                Err(BackofficeError::EmailTaken)
            }
            _ => Ok(None),
        }
    }

    /// Sets or clears a person's name. Changes nothing if the person is unknown.
    pub(crate) async fn set_name(
        &self,
        person_id: &str,
        name: Option<&str>,
    ) -> Result<(), BackofficeError> {
        let set = statement(
            "UPDATE backoffice_people SET name = $1 WHERE id = $2",
            [name.into(), person_id.into()],
        );
        self.run(vec![set]).await?;
        Ok(())
    }
}

impl Change<'_> {
    /// Marks the link as used, if it is one of this person and no other person has the address.
    fn take(&self, now: i64) -> Statement {
        statement(
            "UPDATE backoffice_links SET used_at = $1, used_by = $2
             WHERE digest = $3 AND kind = 'email' AND person_id = $4 AND used_at = 0 AND expires_at > $1
               AND NOT EXISTS (SELECT 1 FROM backoffice_people o
                               WHERE o.email_key = backoffice_links.email_key AND o.id <> $4)",
            [
                now.into(),
                self.one_use.as_str().into(),
                self.link.as_str().into(),
                self.person_id.into(),
            ],
        )
    }

    fn steps(&self, except: &Digest) -> Vec<Statement> {
        let text = |text: &str| text.into();
        // The first two need the earlier address.
        let made = statement(
            "UPDATE backoffice_links SET made_by = $1
             WHERE used_at = 0
               AND made_by = (SELECT p.email FROM backoffice_people p WHERE p.id = $2)
               AND NOT EXISTS (SELECT 1 FROM backoffice_people o WHERE o.email_key = $3 AND o.id <> $2)
               AND ($4 = '' OR EXISTS (SELECT 1 FROM backoffice_links l WHERE l.digest = $4 AND l.used_by = $5))",
            [self.email, self.person_id, &self.key, &self.link, &self.one_use].map(text),
        );
        let card = statement(
            "UPDATE backoffice_top_ups SET consent_by = $1
             WHERE (account_id, consent_by) = (SELECT p.account_id, p.email FROM backoffice_people p WHERE p.id = $2)
               AND NOT EXISTS (SELECT 1 FROM backoffice_people o WHERE o.email_key = $3 AND o.id <> $2)
               AND ($4 = '' OR EXISTS (SELECT 1 FROM backoffice_links l WHERE l.digest = $4 AND l.used_by = $5))",
            [self.email, self.person_id, &self.key, &self.link, &self.one_use].map(text),
        );
        let change = statement(
            "UPDATE backoffice_people SET email = $1, email_key = $2
             WHERE id = $3
               AND NOT EXISTS (SELECT 1 FROM backoffice_people o WHERE o.email_key = $2 AND o.id <> $3)
               AND ($4 = '' OR EXISTS (SELECT 1 FROM backoffice_links l WHERE l.digest = $4 AND l.used_by = $5))",
            [self.email, &self.key, self.person_id, &self.link, &self.one_use].map(text),
        );
        let except = hex(except);
        let sessions = statement(
            "DELETE FROM backoffice_sessions WHERE person_id = $1 AND digest <> $2
               AND EXISTS (SELECT 1 FROM backoffice_people p WHERE p.id = $1 AND p.email = $3)",
            [self.person_id, &except, self.email].map(text),
        );
        let links = statement(
            "DELETE FROM backoffice_links WHERE person_id = $1 AND used_at = 0
               AND EXISTS (SELECT 1 FROM backoffice_people p WHERE p.id = $1 AND p.email = $2)",
            [self.person_id, self.email].map(text),
        );
        let person = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p WHERE p.id = $1"
            ),
            [self.person_id.into()],
        );
        vec![made, card, change, sessions, links, person]
    }
}
