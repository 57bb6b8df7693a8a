//! Deleting an account: its people go, with everything that lets them sign in, and names and addresses are replaced in
//! what stays, which are payments and recorded actions. A person is replaced by their ID, so that it can still be told
//! who of them did what.

use serde_json::Value;

use super::{
    Backoffice, BackofficeError, Person,
    people::email_key,
    sql::{Statement, statement},
};

/// Replaces a name or an address where there is no ID of a person.
const ERASED: &str = "deleted";
/// How many recorded actions are read at a time.
const PAGE: usize = 200;

impl Backoffice {
    /// Replaces names and addresses in the recorded actions on these subjects, and these people as actors of any.
    /// Repeating it is harmless.
    pub(crate) async fn erase_from_actions(
        &self,
        subjects: &[String],
        people: &[Person],
    ) -> Result<(), BackofficeError> {
        for subject in subjects {
            let mut before = None;
            loop {
                let page = self.actions_page(Some(subject), before, PAGE).await?;
                let Some(last) = page.last() else { break };
                before = Some(last.seq);
                let changes = page.iter().filter_map(|recorded| {
                    let action = &recorded.action;
                    let old = [&action.before, &action.after];
                    let new = old.map(|text| text.as_deref().map(|text| erased(text, people)));
                    let is_same = new.iter().zip(old).all(|(new, old)| new == old);
                    (!is_same).then(|| replace(recorded.seq, new))
                });
                let changes: Vec<_> = changes.collect();
                if !changes.is_empty() {
                    self.run(changes).await?;
                }
            }
        }
        for person in people {
            let actor = statement(
                "UPDATE backoffice_actions SET actor = $1 WHERE actor = $2",
                [person.id.as_str().into(), person.email.as_str().into()],
            );
            self.run(vec![actor]).await?;
        }
        Ok(())
    }

    /// Removes all people of an account with their sessions, identities, second factors and links, and the account's
    /// invitations, and replaces who ordered its payments.
    pub(crate) async fn erase_people_of(
        &self,
        account_id: &str,
        people: &[Person],
    ) -> Result<(), BackofficeError> {
        let mut steps: Vec<_> = people
            .iter()
            .map(|person| order(account_id, person))
            .collect();
        let of_account = [
            "UPDATE backoffice_checkouts SET person = 'deleted'
             WHERE account_id = $1 AND person LIKE '%@%'",
            "UPDATE backoffice_top_ups SET consent_by = 'deleted' WHERE account_id = $1",
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

/// Replaces the address of a person who ordered by their ID.
fn order(account_id: &str, person: &Person) -> Statement {
    statement(
        "UPDATE backoffice_checkouts SET person = $1 WHERE account_id = $2 AND person = $3",
        [
            person.id.as_str().into(),
            account_id.into(),
            person.email.as_str().into(),
        ],
    )
}

fn replace(seq: i64, [before, after]: [Option<String>; 2]) -> Statement {
    statement(
        "UPDATE backoffice_actions SET value_before = $1, value_after = $2 WHERE seq = $3",
        [
            before.as_deref().into(),
            after.as_deref().into(),
            seq.into(),
        ],
    )
}

/// A recorded state without names and addresses. A text that is not JSON, which we do not write, is dropped.
fn erased(text: &str, people: &[Person]) -> String {
    let Ok(mut value) = serde_json::from_str(text) else {
        return "null".into();
    };
    erase(&mut value, people);
    value.to_string()
}

fn erase(value: &mut Value, people: &[Person]) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("email" | "name" | "person", Value::String(text)) => {
                        *text = neutral(text, people);
                    }
                    (_, field) => erase(field, people),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                erase(value, people);
            }
        }
        Value::String(text) => {
            if let Some(id) = id_of(text, people) {
                *text = id;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What stands for a name or an address; an ID that stands for one already stays.
fn neutral(text: &str, people: &[Person]) -> String {
    let is_id = people.iter().any(|person| person.id == text);
    let id = is_id.then(|| text.to_owned());
    let id = id.or_else(|| id_of(text, people));
    id.unwrap_or_else(|| ERASED.to_owned())
}

/// The ID of the person with this address.
fn id_of(text: &str, people: &[Person]) -> Option<String> {
    let mut people = people.iter();
    let person = people.find(|person| email_key(&person.email) == email_key(text))?;
    Some(person.id.clone())
}
