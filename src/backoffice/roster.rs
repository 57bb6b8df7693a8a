//! Lists people, and removes them.

use super::{
    Backoffice, BackofficeError, Person,
    identities::delete_identities,
    links::{delete_reset_links, delete_unused_links_for, delete_unused_links_made_by},
    people::{email_key, person_columns},
    second_factor::delete_second_factor,
    sessions::delete_sessions,
    sql::{Row, statement},
    top_ups::pause_top_up_of,
};

impl Backoffice {
    /// The people of an account, oldest first.
    pub(crate) async fn people_of(&self, account_id: &str) -> Result<Vec<Person>, BackofficeError> {
        let select = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p WHERE p.account_id = $1 ORDER BY p.created_at, p.id"
            ),
            [account_id.into()],
        );
        people(self.run(vec![select]).await?)
    }

    /// A page of the people with `text` in their address, newest first. `before` is `created_at` and `id` of the last
    /// person on the previous page.
    pub(crate) async fn people_page(
        &self,
        text: &str,
        before: Option<(i64, String)>,
        limit: usize,
    ) -> Result<Vec<Person>, BackofficeError> {
        let (created_at, id) = before.unwrap_or((i64::MAX, String::new()));
        let select = statement(
            concat!(
                "SELECT ",
                person_columns!(),
                " FROM backoffice_people p
                 WHERE p.email_key LIKE $1 ESCAPE '!' AND (p.created_at, p.id) < ($2, $3)
                 ORDER BY p.created_at DESC, p.id DESC LIMIT $4"
            ),
            [
                contains_pattern(&email_key(text)).as_str().into(),
                created_at.into(),
                id.as_str().into(),
                i64::try_from(limit).unwrap_or(i64::MAX).into(),
            ],
        );
        people(self.run(vec![select]).await?)
    }

    /// Removes a person together with their sessions, identities, second factor, the unused links to their address and the
    /// unused links that they made. Auto top-up that they turned on is paused, and forgets their card. Changes nothing if
    /// the person is unknown.
    pub(crate) async fn remove_person(&self, id: &str) -> Result<(), BackofficeError> {
        let remove = statement("DELETE FROM backoffice_people WHERE id = $1", [id.into()]);
        let mut steps = vec![
            pause_top_up_of(id),
            delete_sessions(id, None),
            delete_identities(id),
            delete_reset_links(id),
            delete_unused_links_made_by(id),
            delete_unused_links_for(id),
        ];
        steps.extend(delete_second_factor(id));
        steps.push(remove);
        self.run(steps).await?;
        Ok(())
    }
}

/// A `LIKE` pattern for values that contain `text`, with `!` as the escape character.
pub(super) fn contains_pattern(text: &str) -> String {
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
