//! Sessions of the portal, from signing in until signing out or expiry.

use super::{
    Backoffice, BackofficeError, Person, Role,
    people::person_columns,
    spent::delete_expired_spent,
    sql::{Row, Statement, statement, unexpected},
};
use crate::base::hex::hex;

/// SHA-256 of a secret, such as that of a session cookie. The secret itself is not stored.
pub type Digest = [u8; 32];

pub struct NewSession {
    pub digest: Digest,
    /// `None` if the operator token was used to sign in.
    pub person_id: Option<String>,
    /// Used only if there is no person.
    pub role: Role,
    /// The browser's `User-Agent`.
    pub agent: String,
    pub now: i64,
    pub expires_at: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub digest: Digest,
    /// The person as of now; `None` if the operator token was used to sign in.
    pub person: Option<Person>,
    /// The current role of the person, if there is one; it may have changed since the session began.
    pub role: Role,
    pub agent: String,
    pub began_at: i64,
    pub expires_at: i64,
}

/// Selects the columns that `Session::read` expects.
///
/// Skips sessions of deleted people, which would otherwise look like sessions of the operator token.
macro_rules! sessions_where {
    ($condition:literal) => {
        concat!(
            "SELECT s.digest, s.role, s.agent, s.began_at, s.expires_at, ",
            person_columns!(),
            " FROM backoffice_sessions s LEFT JOIN backoffice_people p ON p.id = s.person_id
             WHERE (s.person_id IS NULL OR p.id IS NOT NULL) AND ",
            $condition
        )
    };
}

impl Backoffice {
    pub async fn begin_session(&self, new: NewSession) -> Result<(), BackofficeError> {
        let begin = statement(
            "INSERT INTO backoffice_sessions (digest, person_id, role, agent, began_at, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (digest) DO NOTHING",
            [
                hex(&new.digest).as_str().into(),
                new.person_id.as_deref().into(),
                new.role.as_str().into(),
                new.agent.as_str().into(),
                new.now.into(),
                new.expires_at.into(),
            ],
        );
        self.run(vec![begin]).await?;
        Ok(())
    }

    /// Finds a session; `None` if it is unknown, ended or expired.
    pub(crate) async fn session(
        &self,
        digest: &Digest,
        now: i64,
    ) -> Result<Option<Session>, BackofficeError> {
        let select = statement(
            sessions_where!("s.digest = $1 AND s.expires_at > $2"),
            [hex(digest).as_str().into(), now.into()],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().next().map(Session::read).transpose()
    }

    /// A person's sessions that have not expired, newest first.
    pub(crate) async fn sessions_of(
        &self,
        person_id: &str,
        now: i64,
    ) -> Result<Vec<Session>, BackofficeError> {
        let select = statement(
            sessions_where!(
                "s.person_id = $1 AND s.expires_at > $2 ORDER BY s.began_at DESC, s.digest"
            ),
            [person_id.into(), now.into()],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(Session::read).collect()
    }

    pub(crate) async fn end_session(&self, digest: &Digest) -> Result<(), BackofficeError> {
        let end = statement(
            "DELETE FROM backoffice_sessions WHERE digest = $1",
            [hex(digest).as_str().into()],
        );
        self.run(vec![end]).await?;
        Ok(())
    }

    /// Ends all sessions of a person except `except`.
    pub(crate) async fn end_sessions_of(
        &self,
        person_id: &str,
        except: Option<&Digest>,
    ) -> Result<(), BackofficeError> {
        self.run(vec![delete_sessions(person_id, except)]).await?;
        Ok(())
    }

    /// Deletes expired sessions, expired links, and digests of expired one-time tokens.
    pub async fn prune(&self, now: i64) -> Result<(), BackofficeError> {
        let sessions = statement(
            "DELETE FROM backoffice_sessions WHERE expires_at <= $1",
            [now.into()],
        );
        let links = statement(
            "DELETE FROM backoffice_links WHERE expires_at <= $1",
            [now.into()],
        );
        self.run(vec![sessions, links, delete_expired_spent(now)])
            .await?;
        Ok(())
    }
}

/// Deletes all sessions of a person except `except`.
pub(crate) fn delete_sessions(person_id: &str, except: Option<&Digest>) -> Statement {
    // An empty text matches no digest.
    let except = except.map(|digest| hex(digest)).unwrap_or_default();
    statement(
        "DELETE FROM backoffice_sessions WHERE person_id = $1 AND digest <> $2",
        [person_id.into(), except.as_str().into()],
    )
}

impl Session {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        let digest = digest(&row.text()?).ok_or_else(|| unexpected("a digest"))?;
        let role = Role::read(&mut row)?;
        let (agent, began_at, expires_at) = (row.text()?, row.int()?, row.int()?);
        let person = Person::read(&mut row)?;
        Ok(Self {
            digest,
            role: person.as_ref().map_or(role, |person| person.role),
            person,
            agent,
            began_at,
            expires_at,
        })
    }
}

pub(super) fn digest(hex: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    if hex.len() != 2 * digest.len() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(digest)
}
