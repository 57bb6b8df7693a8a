//! People who sign in.

use std::fmt;

use super::{
    Backoffice, BackofficeError, Digest,
    links::{delete_reset_links, delete_unused_links_made_by},
    members::TeamRole,
    sessions::delete_sessions,
    sql::{Row, statement, unexpected},
};
use crate::base::keys::random_id;

/// What a person may do on this platform; [`TeamRole`] is what they may do in their account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// May see their own account.
    Customer,
    /// May see every account and use the console.
    Operator,
}

impl Role {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Operator => "operator",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Customer, Self::Operator]
            .into_iter()
            .find(|role| role.as_str() == text)
    }

    pub(super) fn read(row: &mut Row) -> Result<Self, BackofficeError> {
        Self::parse(&row.text()?).ok_or_else(|| unexpected("a role"))
    }
}

#[derive(Clone, PartialEq, Eq)]
pub struct Person {
    /// `person_…`
    pub id: String,
    /// As it was typed, trimmed.
    pub email: String,
    pub name: Option<String>,
    /// A hash with its parameters (PHC); `None` if the person cannot sign in with a password.
    pub password: Option<String>,
    pub role: Role,
    pub account_id: String,
    /// What the person may do in the account.
    pub team_role: TeamRole,
    pub created_at: i64,
    /// When the person turned on two-factor authentication.
    pub second_factor_at: Option<i64>,
}

pub struct NewPerson {
    pub email: String,
    pub name: Option<String>,
    /// A hash with its parameters (PHC).
    pub password: Option<String>,
    pub role: Role,
    pub account_id: String,
    /// The first person of an account is its owner.
    pub team_role: TeamRole,
    pub now: i64,
}

impl fmt::Debug for Person {
    /// Leaves out the password hash, which allows offline guessing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Person")
            .field("id", &self.id)
            .field("email", &self.email)
            .field("name", &self.name)
            .field("role", &self.role)
            .field("account_id", &self.account_id)
            .field("team_role", &self.team_role)
            .field("created_at", &self.created_at)
            .field("second_factor_at", &self.second_factor_at)
            .finish_non_exhaustive()
    }
}

/// The columns that `Person::read` expects.
macro_rules! person_columns {
    () => {
        "p.id, p.email, p.name, p.password, p.role, p.account_id, p.team_role, p.created_at,
         (SELECT f.confirmed_at FROM backoffice_factors f WHERE f.person_id = p.id)"
    };
}
pub(super) use person_columns;

const BY_ID: &str = concat!(
    "SELECT ",
    person_columns!(),
    " FROM backoffice_people p WHERE p.id = $1"
);
const BY_EMAIL: &str = concat!(
    "SELECT ",
    person_columns!(),
    " FROM backoffice_people p WHERE p.email_key = $1"
);

impl Backoffice {
    /// Adds a person; fails with `EmailTaken` if the address is in use, ignoring case.
    pub async fn add_person(&self, new: NewPerson) -> Result<Person, BackofficeError> {
        let id = random_id("person_");
        let key = email_key(&new.email);
        let add = statement(
            "INSERT INTO backoffice_people
                 (id, email, email_key, name, password, password_at, role, account_id, team_role, created_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
             ON CONFLICT (email_key) DO NOTHING",
            [
                id.as_str().into(),
                new.email.trim().into(),
                key.as_str().into(),
                new.name.as_deref().into(),
                new.password.as_deref().into(),
                new.now.into(),
                new.role.as_str().into(),
                new.account_id.as_str().into(),
                new.team_role.as_str().into(),
                new.now.into(),
            ],
        );
        let select = statement(BY_EMAIL, [key.as_str().into()]);
        let rows = self.run(vec![add, select]).await?;
        match first_person(rows)? {
            Some(person) if person.id == id => Ok(person),
            Some(_) => Err(BackofficeError::EmailTaken),
            None => Err(unexpected("the person that was just added")),
        }
    }

    pub(crate) async fn person(&self, id: &str) -> Result<Option<Person>, BackofficeError> {
        let select = statement(BY_ID, [id.into()]);
        first_person(self.run(vec![select]).await?)
    }

    /// Finds a person by email address, ignoring case and surrounding space.
    pub async fn person_by_email(&self, email: &str) -> Result<Option<Person>, BackofficeError> {
        let select = statement(BY_EMAIL, [email_key(email).as_str().into()]);
        first_person(self.run(vec![select]).await?)
    }

    /// Sets a new password hash, ends the person's sessions except `except`, and deletes their password reset links, in
    /// one transaction.
    ///
    /// Changes nothing if the person is unknown.
    pub(crate) async fn set_password(
        &self,
        person_id: &str,
        hash: &str,
        except: Option<&Digest>,
        now: i64,
    ) -> Result<(), BackofficeError> {
        let set = statement(
            "UPDATE backoffice_people SET password = $1, password_at = $2 WHERE id = $3",
            [hash.into(), now.into(), person_id.into()],
        );
        let steps = vec![
            set,
            delete_sessions(person_id, except),
            delete_reset_links(person_id),
        ];
        self.run(steps).await?;
        Ok(())
    }

    /// Sets the role, which takes effect at once, in existing sessions too. When an operator loses the role, unused links
    /// that they made are deleted. Changes nothing if the person is unknown.
    pub async fn set_role(&self, person_id: &str, role: Role) -> Result<(), BackofficeError> {
        let set = statement(
            "UPDATE backoffice_people SET role = $1 WHERE id = $2",
            [role.as_str().into(), person_id.into()],
        );
        let mut steps = vec![set];
        if role != Role::Operator {
            steps.push(delete_unused_links_made_by(person_id));
        }
        self.run(steps).await?;
        Ok(())
    }
}

/// The form in which addresses are compared: trimmed and in lower case.
pub(crate) fn email_key(email: &str) -> String {
    email.trim().to_lowercase()
}

pub(super) fn first_person(rows: Vec<Row>) -> Result<Option<Person>, BackofficeError> {
    let first = rows.into_iter().next();
    first.map_or(Ok(None), |mut row| Person::read(&mut row))
}

impl Person {
    /// `None` if a left join has found no person.
    pub(super) fn read(row: &mut Row) -> Result<Option<Self>, BackofficeError> {
        let Some(id) = row.text_or_null()? else {
            return Ok(None);
        };
        Ok(Some(Self {
            id,
            email: row.text()?,
            name: row.text_or_null()?,
            password: row.text_or_null()?,
            role: Role::read(row)?,
            account_id: row.text()?,
            team_role: TeamRole::read(row)?,
            created_at: row.int()?,
            second_factor_at: row.int_or_null()?,
        }))
    }
}
