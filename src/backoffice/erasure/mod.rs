//! Deleting an account: its people go, with everything that lets them sign in, and names and addresses are replaced in
//! what stays, which are payments and recorded actions. A person is replaced by their ID, so that it can still be told
//! who of them did what.
//!
//! A deletion begins with its recorded action and ends with the removal of the people, so one that was interrupted is
//! found, and each step can be repeated.

use super::{
    Action, Backoffice, BackofficeError, RecordedAction,
    sql::{Statement, statement},
};

mod text;
mod traces;

pub(crate) use self::traces::Traces;

/// How many recorded actions are read at a time.
const PAGE: usize = 200;
/// Through how many recorded actions a search goes in one statement, so that it takes less than a deadline.
const SEARCHED: i64 = 20_000;
/// How many unfinished deletions are returned at most.
const MOST_UNFINISHED: i64 = 100;

/// The ID of the recorded action with which the deletion of an account begins. Statements in this room compare it too.
pub(crate) fn deletion_id(account_id: &str) -> String {
    format!("action_delete_{account_id}")
}

impl Backoffice {
    /// Accounts whose deletion has begun and not ended: they have people.
    pub(crate) async fn unfinished_deletions(&self) -> Result<Vec<String>, BackofficeError> {
        let select = statement(
            "SELECT DISTINCT p.account_id FROM backoffice_people p
             WHERE EXISTS (SELECT 1 FROM backoffice_actions a WHERE a.id = 'action_delete_' || p.account_id)
             LIMIT $1",
            [MOST_UNFINISHED.into()],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(|mut row| row.text()).collect()
    }

    /// Finds who the people of an account are and were, and what recorded actions of it are about: the account, its
    /// people and former people, and keys, projects and budgets, also those that are gone.
    pub(crate) async fn traces_of(&self, account_id: &str) -> Result<Traces, BackofficeError> {
        let people = self.people_of(account_id).await?;
        let mut traces = Traces::new(account_id, &people);
        let last = statement("SELECT coalesce(max(seq), 0) FROM backoffice_actions", []);
        let mut rows = self.run(vec![last]).await?;
        let last = rows.first_mut().map_or(Ok(0), super::sql::Row::int)?;
        let field = format!("\"account\":\"{account_id}\"");
        let pattern = super::roster::contains_pattern(&field);
        let mut from = 0;
        while from < last {
            let select = statement(
                "SELECT DISTINCT subject FROM backoffice_actions
                 WHERE seq > $1 AND seq <= $2 AND (value_before LIKE $3 ESCAPE '!' OR value_after LIKE $3 ESCAPE '!')",
                [
                    from.into(),
                    (from + SEARCHED).into(),
                    pattern.as_str().into(),
                ],
            );
            for mut row in self.run(vec![select]).await? {
                traces.add_subject(row.text()?);
            }
            from += SEARCHED;
        }
        for person in traces.people() {
            let mut pages = Pages::of(self, &person);
            while let Some(page) = pages.next().await? {
                for recorded in page {
                    traces.learn(&recorded.action);
                }
            }
        }
        traces.finish();
        Ok(traces)
    }

    /// Replaces the account's people in recorded actions on what is the account's own: as actors, and names and addresses
    /// in the states before and after. Actions on other accounts stay as they are.
    pub(crate) async fn erase_from_actions(&self, traces: &Traces) -> Result<(), BackofficeError> {
        for subject in traces.subjects() {
            self.erase_actions_on(&subject, |action| traces.without_people(action))
                .await?;
        }
        // Last, because they tell the addresses that are looked for: a deletion that is interrupted before this one finds
        // them again.
        for person in traces.people() {
            self.erase_actions_on(&person, |action| traces.without_addresses(action))
                .await?;
        }
        Ok(())
    }

    async fn erase_actions_on(
        &self,
        subject: &str,
        erased: impl Fn(&Action) -> Action,
    ) -> Result<(), BackofficeError> {
        let mut pages = Pages::of(self, subject);
        while let Some(page) = pages.next().await? {
            let changes = page.iter().filter_map(|recorded| {
                let erased = erased(&recorded.action);
                (erased != recorded.action).then(|| replace(recorded.seq, &erased))
            });
            let changes: Vec<_> = changes.collect();
            if !changes.is_empty() {
                self.run(changes).await?;
            }
        }
        Ok(())
    }

    /// Removes all people of an account with their sessions, identities, second factors and links, and the account's
    /// invitations, and replaces who ordered its payments.
    pub(crate) async fn erase_people_of(
        &self,
        account_id: &str,
        traces: &Traces,
    ) -> Result<(), BackofficeError> {
        let orders = traces.addresses();
        let mut steps: Vec<_> = orders
            .map(|(email, person_id)| order(account_id, email, person_id))
            .collect();
        let of_account = [
            "UPDATE backoffice_checkouts SET person = 'deleted'
             WHERE account_id = $1 AND person LIKE '%@%'",
            "UPDATE backoffice_top_ups SET consent_by = 'deleted' WHERE account_id = $1",
            // The reply of a mail server can have an address.
            "UPDATE backoffice_deliveries SET last_error = NULL
             WHERE recipient = $1 AND last_error IS NOT NULL",
            "DELETE FROM backoffice_sessions
             WHERE person_id IN (SELECT p.id FROM backoffice_people p WHERE p.account_id = $1)",
            "DELETE FROM backoffice_identities
             WHERE person_id IN (SELECT p.id FROM backoffice_people p WHERE p.account_id = $1)",
            "DELETE FROM backoffice_factors
             WHERE person_id IN (SELECT p.id FROM backoffice_people p WHERE p.account_id = $1)",
            "DELETE FROM backoffice_recovery_codes
             WHERE person_id IN (SELECT p.id FROM backoffice_people p WHERE p.account_id = $1)",
            "DELETE FROM backoffice_links WHERE account_id = $1 OR EXISTS
                 (SELECT 1 FROM backoffice_people p
                  WHERE p.account_id = $1 AND (p.id = backoffice_links.person_id
                      OR p.email_key = backoffice_links.email_key OR p.email = backoffice_links.made_by))",
            "DELETE FROM backoffice_people WHERE account_id = $1",
        ];
        steps.extend(of_account.map(|sql| statement(sql, [account_id.into()])));
        self.run(steps).await?;
        Ok(())
    }
}

/// The recorded actions on a subject, page by page.
struct Pages<'a> {
    backoffice: &'a Backoffice,
    subject: &'a str,
    before: Option<i64>,
}

impl<'a> Pages<'a> {
    fn of(backoffice: &'a Backoffice, subject: &'a str) -> Self {
        Self {
            backoffice,
            subject,
            before: None,
        }
    }

    /// The next page; `None` after the last one.
    async fn next(&mut self) -> Result<Option<Vec<RecordedAction>>, BackofficeError> {
        let page = self
            .backoffice
            .actions_page(Some(self.subject), self.before, PAGE);
        let page = page.await?;
        self.before = page.last().map(|recorded| recorded.seq);
        Ok(self.before.is_some().then_some(page))
    }
}

/// Replaces the address of a person who ordered by their ID.
fn order(account_id: &str, email: &str, person_id: &str) -> Statement {
    statement(
        "UPDATE backoffice_checkouts SET person = $1 WHERE account_id = $2 AND person = $3",
        [person_id.into(), account_id.into(), email.into()],
    )
}

fn replace(seq: i64, erased: &Action) -> Statement {
    statement(
        "UPDATE backoffice_actions SET actor = $1, value_before = $2, value_after = $3 WHERE seq = $4",
        [
            erased.actor.as_str().into(),
            erased.before.as_deref().into(),
            erased.after.as_deref().into(),
            seq.into(),
        ],
    )
}
