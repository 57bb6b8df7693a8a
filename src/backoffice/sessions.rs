//! Sessions: from signing in until signing out, or until they expire.

use std::fmt::Write as _;

use super::{
    Backoffice, BackofficeError, Person, Role,
    people::person_columns,
    spent::expired_spent,
    sql::{Row, Statement, statement, unexpected},
};

/// The SHA-256 of a cookie's secret, which itself is kept nowhere.
pub type Digest = [u8; 32];

pub struct NewSession {
    pub digest: Digest,
    /// None for who came with the operator token.
    pub person_id: Option<String>,
    /// Counts where there is no person.
    pub role: Role,
    /// What the browser calls itself.
    pub agent: String,
    pub now: i64,
    pub expires_at: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    pub digest: Digest,
    /// As they are now. None for who came with the operator token.
    pub person: Option<Person>,
    /// The person's, where there is one: it may have changed since the session began.
    pub role: Role,
    pub agent: String,
    pub began_at: i64,
    pub expires_at: i64,
}

/// What `Session::read` reads.
///
/// A session of somebody who is gone is none: it must not pass for one of the operator token.
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

    /// `None` for unknown, ended and expired alike.
    pub async fn session(
        &self,
        digest: &Digest,
        now: i64,
    ) -> Result<Option<Session>, BackofficeError> {
        let look = statement(
            sessions_where!("s.digest = $1 AND s.expires_at > $2"),
            [hex(digest).as_str().into(), now.into()],
        );
        let rows = self.run(vec![look]).await?;
        rows.into_iter().next().map(Session::read).transpose()
    }

    /// Those that have not expired, the latest first.
    pub async fn sessions_of(
        &self,
        person_id: &str,
        now: i64,
    ) -> Result<Vec<Session>, BackofficeError> {
        let look = statement(
            sessions_where!(
                "s.person_id = $1 AND s.expires_at > $2 ORDER BY s.began_at DESC, s.digest"
            ),
            [person_id.into(), now.into()],
        );
        let rows = self.run(vec![look]).await?;
        rows.into_iter().map(Session::read).collect()
    }

    pub async fn end_session(&self, digest: &Digest) -> Result<(), BackofficeError> {
        let end = statement(
            "DELETE FROM backoffice_sessions WHERE digest = $1",
            [hex(digest).as_str().into()],
        );
        self.run(vec![end]).await?;
        Ok(())
    }

    /// Ends all of somebody's sessions, but for one.
    pub async fn end_sessions_of(
        &self,
        person_id: &str,
        except: Option<&Digest>,
    ) -> Result<(), BackofficeError> {
        self.run(vec![all_but(person_id, except)]).await?;
        Ok(())
    }

    /// Deletes what has expired: sessions, links, and what was used once.
    pub async fn prune(&self, now: i64) -> Result<(), BackofficeError> {
        let sessions = statement(
            "DELETE FROM backoffice_sessions WHERE expires_at <= $1",
            [now.into()],
        );
        let links = statement(
            "DELETE FROM backoffice_links WHERE expires_at <= $1",
            [now.into()],
        );
        self.run(vec![sessions, links, expired_spent(now)]).await?;
        Ok(())
    }
}

/// Ends somebody's sessions.
pub fn all_but(person_id: &str, except: Option<&Digest>) -> Statement {
    // No digest is empty.
    let except = except.map(hex).unwrap_or_default();
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

pub fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn digest(hex: &str) -> Option<Digest> {
    let mut digest = Digest::default();
    if hex.len() != 2 * digest.len() {
        return None;
    }
    for (at, byte) in digest.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(digest)
}
