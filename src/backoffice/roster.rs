//! Who there is: on one account, and in all. And who leaves.

use super::{
    Backoffice, BackofficeError, Person,
    identities::identities_of,
    links::{resets_of, unused_for, unused_of_maker},
    people::{email_key, person_columns},
    sessions::all_but,
    sql::{Row, statement},
};

impl Backoffice {
    /// Those of an account, in the order in which they came.
    pub async fn people_of(&self, account_id: &str) -> Result<Vec<Person>, BackofficeError> {
        let look = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p WHERE p.account_id = $1 ORDER BY p.created_at, p.id"
            ),
            [account_id.into()],
        );
        people(self.run(vec![look]).await?)
    }

    /// The latest first: those with this in their address. `before` is the last of the page before.
    pub async fn people_page(
        &self,
        text: &str,
        before: Option<(i64, String)>,
        limit: usize,
    ) -> Result<Vec<Person>, BackofficeError> {
        let (created_at, id) = before.unwrap_or((i64::MAX, String::new()));
        let look = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p
                 WHERE p.email_key LIKE $1 ESCAPE '!' AND (p.created_at, p.id) < ($2, $3)
                 ORDER BY p.created_at DESC, p.id DESC LIMIT $4"
            ),
            [
                anywhere(&email_key(text)).as_str().into(),
                created_at.into(),
                id.as_str().into(),
                i64::try_from(limit).unwrap_or(i64::MAX).into(),
            ],
        );
        people(self.run(vec![look]).await?)
    }

    /// Removes somebody with their sessions, what issuers know them by, the links for their address and
    /// those they have made. Of somebody unknown it changes nothing.
    pub async fn remove_person(&self, id: &str) -> Result<(), BackofficeError> {
        let remove = statement("DELETE FROM backoffice_people WHERE id = $1", [id.into()]);
        let steps = vec![
            all_but(id, None),
            identities_of(id),
            resets_of(id),
            unused_of_maker(id),
            unused_for(id),
            remove,
        ];
        self.run(steps).await?;
        Ok(())
    }
}

/// As `LIKE` reads it: this text in the midst of any other, and no sign in it that stands for others.
fn anywhere(text: &str) -> String {
    let escaped = ['!', '%', '_']
        .into_iter()
        .fold(text.to_owned(), |text, sign| {
            text.replace(sign, &format!("!{sign}"))
        });
    format!("%{escaped}%")
}

fn people(rows: Vec<Row>) -> Result<Vec<Person>, BackofficeError> {
    let read = |mut row: Row| Person::read(&mut row).transpose();
    rows.into_iter().filter_map(read).collect()
}
