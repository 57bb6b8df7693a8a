//! One-time links: whoever holds one sets a password with it, and nobody does so again.
//!
//! The secret is in the link alone; its digest is kept. Using a link up and what it is good for are one
//! step, so that no failure leaves a link that is used and nothing that came of it. Each use has a name
//! of its own: where a connection breaks and the step is done again, it is known as the same one.

use sha2::{Digest as _, Sha256};

use super::{
    Backoffice, BackofficeError, Digest, Person, Role,
    people::{email_key, first_person, person_columns},
    sessions::hex,
    sql::{Row, Statement, statement, unexpected},
};
use crate::base::keys::{Secret, random_id, random_text};

const HOUR: i64 = 3_600;
/// As many as 32 bytes have in base64.
const SECRET_CHARS: usize = 43;

/// What its holder may do, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Become somebody on an account that is there.
    Invitation { account_id: String, role: Role },
    /// Become somebody with an account of their own: the address is theirs, as they have read the letter.
    Proof {
        account_id: String,
        name: Option<String>,
    },
    /// Set another password.
    Reset { person_id: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whose it is.
    pub email: String,
    pub purpose: Purpose,
    pub expires_at: i64,
}

pub struct NewLink {
    pub email: String,
    pub purpose: Purpose,
    /// The operator who makes it, if it is one.
    pub made_by: Option<String>,
    pub now: i64,
}

/// The one chance to see it.
#[derive(Debug)]
pub struct MadeLink {
    pub secret: Secret,
    pub expires_at: i64,
}

impl Purpose {
    fn kind(&self) -> &'static str {
        match self {
            Self::Invitation { .. } => "invitation",
            Self::Proof { .. } => "proof",
            Self::Reset { .. } => "reset",
        }
    }

    /// For how long a link is good, in seconds.
    pub fn lasts(&self) -> i64 {
        match self {
            Self::Invitation { .. } => 7 * 24 * HOUR,
            Self::Proof { .. } => 24 * HOUR,
            Self::Reset { .. } => HOUR,
        }
    }
}

impl MadeLink {
    /// What a link is kept under; none where the text cannot be the secret of one.
    pub fn digest(secret: &str) -> Option<Digest> {
        (secret.len() == SECRET_CHARS).then(|| Sha256::digest(secret.as_bytes()).into())
    }
}

impl Backoffice {
    /// Makes a link. A newer invitation of an address takes the place of an older one, and so does a newer link
    /// for somebody's password that an operator has made. (What anybody can ask for does not: a stranger
    /// would end what its owner is about to use.)
    pub async fn make_link(&self, new: NewLink) -> Result<MadeLink, BackofficeError> {
        let secret = random_text(SECRET_CHARS);
        let digest = hex(&Sha256::digest(secret.as_bytes()).into());
        let key = email_key(&new.email);
        let expires_at = new.now + new.purpose.lasts();
        let (name, person_id, account_id, role) = match &new.purpose {
            Purpose::Invitation { account_id, role } => (None, None, Some(account_id), Some(*role)),
            Purpose::Proof { account_id, name } => (
                name.as_deref(),
                None,
                Some(account_id),
                Some(Role::Customer),
            ),
            Purpose::Reset { person_id } => (None, Some(person_id.as_str()), None, None),
        };
        let make = statement(
            "INSERT INTO backoffice_links
                 (digest, kind, email, email_key, name, person_id, account_id, role, made_by,
                  expires_at, used_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 0)
             ON CONFLICT (digest) DO NOTHING",
            [
                digest.as_str().into(),
                new.purpose.kind().into(),
                new.email.trim().into(),
                key.as_str().into(),
                name.into(),
                person_id.into(),
                account_id.map(String::as_str).into(),
                role.map(Role::as_str).into(),
                new.made_by.as_deref().into(),
                expires_at.into(),
            ],
        );
        let older = match &new.purpose {
            Purpose::Invitation { .. } => Some(statement(
                "DELETE FROM backoffice_links
                 WHERE kind = 'invitation' AND email_key = $1 AND used_at = 0",
                [key.as_str().into()],
            )),
            Purpose::Proof { .. } => None,
            // Who asks for one may be a stranger.
            Purpose::Reset { .. } if new.made_by.is_none() => None,
            Purpose::Reset { person_id } => Some(resets_of(person_id)),
        };
        self.run(older.into_iter().chain([make]).collect()).await?;
        let secret = Secret::new(secret);
        Ok(MadeLink { secret, expires_at })
    }

    /// The account's invitations that nobody has used yet, the next to expire first.
    pub async fn invitations_of(
        &self,
        account_id: &str,
        now: i64,
    ) -> Result<Vec<Link>, BackofficeError> {
        let look = statement(
            "SELECT kind, email, name, person_id, account_id, role, expires_at FROM backoffice_links
             WHERE account_id = $1 AND kind = 'invitation' AND used_at = 0 AND expires_at > $2
             ORDER BY expires_at, digest",
            [account_id.into(), now.into()],
        );
        let rows = self.run(vec![look]).await?;
        rows.into_iter().map(Link::read).collect()
    }

    /// Makes an invitation good for nothing, if nobody has used it.
    pub async fn withdraw_invitation(
        &self,
        account_id: &str,
        email: &str,
    ) -> Result<(), BackofficeError> {
        let withdraw = statement(
            "DELETE FROM backoffice_links
             WHERE account_id = $1 AND kind = 'invitation' AND used_at = 0 AND email_key = $2",
            [account_id.into(), email_key(email).as_str().into()],
        );
        self.run(vec![withdraw]).await?;
        Ok(())
    }

    /// `None` for unknown, used, replaced and expired alike.
    pub async fn link(&self, digest: &Digest, now: i64) -> Result<Option<Link>, BackofficeError> {
        let look = statement(
            "SELECT kind, email, name, person_id, account_id, role, expires_at FROM backoffice_links
             WHERE digest = $1 AND used_at = 0 AND expires_at > $2",
            [hex(digest).as_str().into(), now.into()],
        );
        let rows = self.run(vec![look]).await?;
        rows.into_iter().next().map(Link::read).transpose()
    }

    /// Uses up an invitation or a proof and adds whom it is for, in one step; `None` where the link cannot
    /// be used. Where somebody has the address already it is left as it is.
    pub async fn join_by_link(
        &self,
        digest: &Digest,
        name: Option<&str>,
        password: &str,
        now: i64,
    ) -> Result<Option<Person>, BackofficeError> {
        let (digest, id) = (hex(digest), random_id("person_"));
        let (digest, id) = (digest.as_str(), id.as_str());
        let take = statement(
            "UPDATE backoffice_links SET used_at = $1, used_by = $2
             WHERE digest = $3 AND kind <> 'reset' AND used_at = 0 AND expires_at > $4
               AND NOT EXISTS (SELECT 1 FROM backoffice_people p
                               WHERE p.email_key = backoffice_links.email_key)",
            [now.into(), id.into(), digest.into(), now.into()],
        );
        let add = statement(
            "INSERT INTO backoffice_people
                 (id, email, email_key, name, password, password_at, role, account_id, created_at)
             SELECT l.used_by, l.email, l.email_key, $1, $2, l.used_at, l.role, l.account_id, l.used_at
             FROM backoffice_links l WHERE l.digest = $3 AND l.used_by = $4
             ON CONFLICT DO NOTHING",
            [name.into(), password.into(), digest.into(), id.into()],
        );
        let look = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p JOIN backoffice_links l ON l.email_key = p.email_key
                 WHERE l.digest = $1 AND l.kind <> 'reset'"
            ),
            [digest.into()],
        );
        match first_person(self.run(vec![take, add, look]).await?)? {
            Some(person) if person.id == id => Ok(Some(person)),
            Some(_) => Err(BackofficeError::EmailTaken),
            None => Ok(None),
        }
    }

    /// Uses up a link for a password and sets it, and ends the person's sessions, other links and ways in by
    /// issuers, in one step; `None` where the link cannot be used.
    pub async fn reset_by_link(
        &self,
        digest: &Digest,
        password: &str,
        now: i64,
    ) -> Result<Option<Person>, BackofficeError> {
        let (digest, one_use) = (hex(digest), random_id("use_"));
        let (digest, one_use) = (digest.as_str(), one_use.as_str());
        let take = statement(
            "UPDATE backoffice_links SET used_at = $1, used_by = $2
             WHERE digest = $3 AND kind = 'reset' AND used_at = 0 AND expires_at > $4",
            [now.into(), one_use.into(), digest.into(), now.into()],
        );
        let set = statement(
            "UPDATE backoffice_people SET password = $1, password_at = $2
             WHERE id = (SELECT l.person_id FROM backoffice_links l
                         WHERE l.digest = $3 AND l.used_by = $4)",
            [password.into(), now.into(), digest.into(), one_use.into()],
        );
        let end_sessions = statement(
            "DELETE FROM backoffice_sessions
             WHERE person_id = (SELECT l.person_id FROM backoffice_links l
                                WHERE l.digest = $1 AND l.used_by = $2)",
            [digest.into(), one_use.into()],
        );
        let end_others = statement(
            "DELETE FROM backoffice_links WHERE used_at = 0
               AND person_id = (SELECT l.person_id FROM backoffice_links l
                                WHERE l.digest = $1 AND l.used_by = $2)",
            [digest.into(), one_use.into()],
        );
        // Whoever had the account before must not come back by an issuer.
        let forget_identities = statement(
            "DELETE FROM backoffice_identities
             WHERE person_id = (SELECT l.person_id FROM backoffice_links l
                                WHERE l.digest = $1 AND l.used_by = $2)",
            [digest.into(), one_use.into()],
        );
        let look = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p JOIN backoffice_links l ON l.person_id = p.id
                 WHERE l.digest = $1 AND l.used_by = $2"
            ),
            [digest.into(), one_use.into()],
        );
        let steps = vec![take, set, end_sessions, end_others, forget_identities, look];
        first_person(self.run(steps).await?)
    }
}

/// Deletes the links that would set somebody's password. (One that was used is kept until it expires: it
/// is good for nothing.)
pub fn resets_of(person_id: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_links WHERE person_id = $1 AND used_at = 0",
        [person_id.into()],
    )
}

/// Deletes the links for somebody's address that nobody has used: whoever is removed must not come back by
/// an old invitation.
pub fn unused_for(person_id: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_links WHERE used_at = 0
           AND email_key = (SELECT p.email_key FROM backoffice_people p WHERE p.id = $1)",
        [person_id.into()],
    )
}

/// Deletes the links that somebody has made and nobody has used: an operator who is none any more must not
/// come back by one of their own.
pub fn unused_of_maker(person_id: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_links WHERE used_at = 0
           AND made_by = (SELECT p.email FROM backoffice_people p WHERE p.id = $1)",
        [person_id.into()],
    )
}

impl Link {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        let (kind, email) = (row.text()?, row.text()?);
        let (name, person_id) = (row.text_or_null()?, row.text_or_null()?);
        let (account_id, role) = (row.text_or_null()?, row.text_or_null()?);
        let role = role.and_then(|role| Role::parse(&role));
        let purpose = match (kind.as_str(), person_id, account_id, role) {
            ("invitation", None, Some(account_id), Some(role)) => {
                Purpose::Invitation { account_id, role }
            }
            ("proof", None, Some(account_id), Some(Role::Customer)) => {
                Purpose::Proof { account_id, name }
            }
            ("reset", Some(person_id), None, None) => Purpose::Reset { person_id },
            _ => return Err(unexpected("a link")),
        };
        Ok(Self {
            email,
            purpose,
            expires_at: row.int()?,
        })
    }
}
