//! One-time links: with invitations, address proofs and password resets their holder sets a password, and with others
//! a person proves a new address.
//!
//! The secret is only in the link; its digest is stored. A link is marked as used in the transaction in which it takes
//! effect, so a failure never leaves a used link without its effect. Each use has a random ID: if the connection breaks
//! and the transaction is executed again, it recognises its own use.

use sha2::{Digest as _, Sha256};

use super::{
    Backoffice, BackofficeError, Digest, Person, Role,
    members::TeamRole,
    people::{email_key, first_person, person_columns},
    sql::{Row, Statement, statement, unexpected},
};
use crate::base::{
    hex::hex,
    keys::{Secret, random_id, random_text},
};

const HOUR: i64 = 3_600;
/// The length of 32 bytes in base64.
const SECRET_CHARS: usize = 43;

/// What a link's holder may do, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Join an existing account.
    Invitation {
        account_id: String,
        role: Role,
        /// The first person of an account becomes its owner instead.
        team_role: TeamRole,
    },
    /// Create an account of their own. Having received the email proves that the address is theirs.
    Proof {
        account_id: String,
        name: Option<String>,
    },
    /// Set a new password.
    Reset { person_id: String },
    /// Change the address of this person to that of the link.
    Email { person_id: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The address of the person that the link is for.
    pub email: String,
    pub purpose: Purpose,
    pub expires_at: i64,
}

pub struct NewLink {
    pub email: String,
    pub purpose: Purpose,
    /// Email address of the operator or member who makes the link; `None` if a visitor requested it.
    pub made_by: Option<String>,
    pub now: i64,
}

/// A new link. Its secret is returned here only and cannot be read again.
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
            Self::Email { .. } => "email",
        }
    }

    /// How long a link is valid, in seconds.
    pub(crate) fn lasts(&self) -> i64 {
        match self {
            Self::Invitation { .. } => 7 * 24 * HOUR,
            Self::Proof { .. } => 24 * HOUR,
            Self::Reset { .. } | Self::Email { .. } => HOUR,
        }
    }
}

impl MadeLink {
    /// The digest under which a link is stored; `None` if the text cannot be the secret of one.
    pub fn digest(secret: &str) -> Option<Digest> {
        (secret.len() == SECRET_CHARS).then(|| Sha256::digest(secret.as_bytes()).into())
    }
}

/// The condition that a link was sent to the address that its person still has: otherwise the owner of a former mailbox
/// could set the password.
macro_rules! is_of_the_same_address {
    () => {
        "EXISTS (SELECT 1 FROM backoffice_people p
                 WHERE p.id = backoffice_links.person_id AND p.email_key = backoffice_links.email_key)"
    };
}

/// The condition that no deletion of the link's account has begun: see `erasure`.
macro_rules! account_is_not_deleted {
    () => {
        "NOT EXISTS (SELECT 1 FROM backoffice_actions a
                     WHERE a.id = 'action_delete_' || backoffice_links.account_id)"
    };
}

impl Backoffice {
    /// Makes a link. A new invitation replaces unused ones to the same address, and a reset link made by an operator
    /// replaces unused ones of the same person. Links that any visitor can request replace none: a stranger could
    /// otherwise invalidate a link that its owner is about to use.
    pub async fn make_link(&self, new: NewLink) -> Result<MadeLink, BackofficeError> {
        let secret = random_text(SECRET_CHARS);
        let digest = hex(&Sha256::digest(secret.as_bytes()));
        let key = email_key(&new.email);
        let expires_at = new.now + new.purpose.lasts();
        let (name, person_id, joins) = match &new.purpose {
            Purpose::Invitation {
                account_id,
                role,
                team_role,
            } => (None, None, Some((account_id, *role, *team_role))),
            Purpose::Proof { account_id, name } => (
                name.as_deref(),
                None,
                Some((account_id, Role::Customer, TeamRole::Owner)),
            ),
            Purpose::Reset { person_id } | Purpose::Email { person_id } => {
                (None, Some(person_id.as_str()), None)
            }
        };
        let make = statement(
            "INSERT INTO backoffice_links
                 (digest, kind, email, email_key, name, person_id, account_id, role, team_role, made_by,
                  expires_at, used_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0)
             ON CONFLICT (digest) DO NOTHING",
            [
                digest.as_str().into(),
                new.purpose.kind().into(),
                new.email.trim().into(),
                key.as_str().into(),
                name.into(),
                person_id.into(),
                joins.map(|(account_id, ..)| account_id.as_str()).into(),
                joins.map(|(_, role, _)| role.as_str()).into(),
                joins.map(|(.., team_role)| team_role.as_str()).into(),
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
            // A stranger may have requested it.
            Purpose::Reset { .. } if new.made_by.is_none() => None,
            Purpose::Reset { person_id } => Some(delete_reset_links(person_id)),
            Purpose::Email { person_id } => Some(statement(
                "DELETE FROM backoffice_links WHERE kind = 'email' AND person_id = $1 AND used_at = 0",
                [person_id.as_str().into()],
            )),
        };
        self.run(older.into_iter().chain([make]).collect()).await?;
        let secret = Secret::new(secret);
        Ok(MadeLink { secret, expires_at })
    }

    /// The account's unused invitations, in order of expiry.
    pub(crate) async fn invitations_of(
        &self,
        account_id: &str,
        now: i64,
    ) -> Result<Vec<Link>, BackofficeError> {
        let select = statement(
            "SELECT kind, email, name, person_id, account_id, role, team_role, expires_at FROM backoffice_links
             WHERE account_id = $1 AND kind = 'invitation' AND used_at = 0 AND expires_at > $2
             ORDER BY expires_at, digest",
            [account_id.into(), now.into()],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(Link::read).collect()
    }

    /// Deletes the unused invitation of an address to an account.
    pub(crate) async fn withdraw_invitation(
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

    /// Finds a link that can be used; `None` if it is unknown, used, replaced or expired, if its account is being deleted,
    /// or if it sets the password of a person who has another address by now.
    pub(crate) async fn link(
        &self,
        digest: &Digest,
        now: i64,
    ) -> Result<Option<Link>, BackofficeError> {
        let select = statement(
            concat!(
                "SELECT kind, email, name, person_id, account_id, role, team_role, expires_at FROM backoffice_links
                 WHERE digest = $1 AND used_at = 0 AND expires_at > $2
                   AND (kind <> 'reset' OR ",
                is_of_the_same_address!(),
                ") AND ",
                account_is_not_deleted!()
            ),
            [hex(digest).as_str().into(), now.into()],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().next().map(Link::read).transpose()
    }

    /// Uses an invitation or a proof and adds the person, in one transaction; the first person of an account is its owner.
    /// `None` if the link cannot be used. If the
    /// address is in use, fails with `EmailTaken` and leaves the link unused.
    pub(crate) async fn join_by_link(
        &self,
        digest: &Digest,
        name: Option<&str>,
        password: &str,
        now: i64,
    ) -> Result<Option<Person>, BackofficeError> {
        let (digest, id) = (hex(digest), random_id("person_"));
        let (digest, id) = (digest.as_str(), id.as_str());
        let take = statement(
            concat!(
                "UPDATE backoffice_links SET used_at = $1, used_by = $2
                 WHERE digest = $3 AND kind IN ('invitation', 'proof') AND used_at = 0 AND expires_at > $4
                   AND NOT EXISTS (SELECT 1 FROM backoffice_people p
                                   WHERE p.email_key = backoffice_links.email_key) AND ",
                account_is_not_deleted!()
            ),
            [now.into(), id.into(), digest.into(), now.into()],
        );
        let add = statement(
            "INSERT INTO backoffice_people
                 (id, email, email_key, name, password, password_at, role, account_id, team_role, created_at)
             SELECT l.used_by, l.email, l.email_key, $1, $2, l.used_at, l.role, l.account_id,
                 CASE WHEN EXISTS (SELECT 1 FROM backoffice_people p WHERE p.account_id = l.account_id)
                     THEN l.team_role ELSE 'owner' END, l.used_at
             FROM backoffice_links l WHERE l.digest = $3 AND l.used_by = $4
             ON CONFLICT DO NOTHING",
            [name.into(), password.into(), digest.into(), id.into()],
        );
        let select = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p JOIN backoffice_links l ON l.email_key = p.email_key
                 WHERE l.digest = $1 AND l.kind IN ('invitation', 'proof')"
            ),
            [digest.into()],
        );
        match first_person(self.run(vec![take, add, select]).await?)? {
            Some(person) if person.id == id => Ok(Some(person)),
            Some(_) => Err(BackofficeError::EmailTaken),
            None => Ok(None),
        }
    }

    /// Uses a reset link to set a password, and deletes the person's sessions, other unused links and identities, in one
    /// transaction; `None` if the link cannot be used.
    pub(crate) async fn reset_by_link(
        &self,
        digest: &Digest,
        password: &str,
        now: i64,
    ) -> Result<Option<Person>, BackofficeError> {
        let (digest, one_use) = (hex(digest), random_id("use_"));
        let (digest, one_use) = (digest.as_str(), one_use.as_str());
        let take = statement(
            concat!(
                "UPDATE backoffice_links SET used_at = $1, used_by = $2
                 WHERE digest = $3 AND kind = 'reset' AND used_at = 0 AND expires_at > $4 AND ",
                is_of_the_same_address!()
            ),
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
        // An intruder may have connected an identity; it must not outlive the reset.
        let delete_identities = statement(
            "DELETE FROM backoffice_identities
             WHERE person_id = (SELECT l.person_id FROM backoffice_links l
                                WHERE l.digest = $1 AND l.used_by = $2)",
            [digest.into(), one_use.into()],
        );
        let select = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p JOIN backoffice_links l ON l.person_id = p.id
                 WHERE l.digest = $1 AND l.used_by = $2"
            ),
            [digest.into(), one_use.into()],
        );
        let steps = vec![
            take,
            set,
            end_sessions,
            end_others,
            delete_identities,
            select,
        ];
        first_person(self.run(steps).await?)
    }
}

/// Deletes the unused links that change a person's password or address. Used ones remain until they expire; they have no effect.
pub(crate) fn delete_reset_links(person_id: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_links WHERE person_id = $1 AND used_at = 0",
        [person_id.into()],
    )
}

/// Deletes the unused links to a person's address, so that a removed person cannot return by an old invitation.
pub(crate) fn delete_unused_links_for(person_id: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_links WHERE used_at = 0
           AND email_key = (SELECT p.email_key FROM backoffice_people p WHERE p.id = $1)",
        [person_id.into()],
    )
}

/// Deletes the unused links that a person has made, so that a former operator cannot return by one of their own.
pub(crate) fn delete_unused_links_made_by(person_id: &str) -> Statement {
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
        let team_role = row.text_or_null()?;
        let team_role = team_role.and_then(|role| TeamRole::parse(&role));
        let roles = role.zip(team_role);
        let purpose = match (kind.as_str(), person_id, account_id, roles) {
            ("invitation", None, Some(account_id), Some((role, team_role))) => {
                Purpose::Invitation {
                    account_id,
                    role,
                    team_role,
                }
            }
            ("proof", None, Some(account_id), Some((Role::Customer, TeamRole::Owner))) => {
                Purpose::Proof { account_id, name }
            }
            ("reset", Some(person_id), None, None) => Purpose::Reset { person_id },
            ("email", Some(person_id), None, None) => Purpose::Email { person_id },
            _ => return Err(unexpected("a link")),
        };
        Ok(Self {
            email,
            purpose,
            expires_at: row.int()?,
        })
    }
}
