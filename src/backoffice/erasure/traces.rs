//! Who the people of an account are and were, with the addresses under which they are found in what is stored of it.
//!
//! Former addresses and former people are known from the recorded actions that changed or removed them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::text;
use crate::backoffice::{Action, Person, email_key};

/// Replaces a name or an address where there is no ID of a person.
const ERASED: &str = "deleted";
const PERSON: &str = "person_";
/// A request that runs while an address changes is recorded with the former one, a little later.
const GRACE_MS: i64 = 60_000;

pub(crate) struct Traces {
    /// What recorded actions of the account are about.
    subjects: BTreeSet<String>,
    known: Vec<Known>,
    /// Addresses in recorded actions on people; they count if they are not known otherwise.
    mentioned: Vec<Known>,
}

/// An address of a person.
#[derive(Clone)]
struct Known {
    email: String,
    key: String,
    person_id: String,
    /// When it was given up.
    until_ms: i64,
}

impl Known {
    fn new(email: &str, person_id: &str, until_ms: i64) -> Self {
        Self {
            email: email.to_owned(),
            key: email_key(email),
            person_id: person_id.to_owned(),
            until_ms,
        }
    }

    fn is_of(&self, other: &Self) -> bool {
        self.key == other.key && self.person_id == other.person_id
    }
}

impl Traces {
    pub(super) fn new(account_id: &str, people: &[Person]) -> Self {
        let mut subjects = BTreeSet::from([account_id.to_owned()]);
        subjects.extend(people.iter().map(|person| person.id.clone()));
        let known = people
            .iter()
            .map(|person| Known::new(&person.email, &person.id, i64::MAX));
        Self {
            subjects,
            known: known.collect(),
            mentioned: Vec::new(),
        }
    }

    pub(super) fn add_subject(&mut self, subject: String) {
        self.subjects.insert(subject);
    }

    pub(super) fn subjects(&self) -> Vec<String> {
        self.subjects.iter().cloned().collect()
    }

    /// The IDs of people and former people.
    pub(super) fn people(&self) -> Vec<String> {
        let people = self
            .subjects
            .iter()
            .filter(|subject| subject.starts_with(PERSON));
        people.cloned().collect()
    }

    /// Learns the addresses in an action on a person.
    pub(super) fn learn(&mut self, action: &Action) {
        let person_id = action.subject.as_str();
        let [before, after] = [&action.before, &action.after].map(|text| email_in(text.as_deref()));
        let is_end = before.is_some() && before != after;
        if let Some(email) = before.as_deref().filter(|_| is_end) {
            let until_ms = action.at_ms.saturating_add(GRACE_MS);
            self.known.push(Known::new(email, person_id, until_ms));
        }
        for email in [before, after].into_iter().flatten() {
            self.mentioned.push(Known::new(&email, person_id, i64::MAX));
        }
    }

    /// Adds the addresses that are only mentioned, because recording the action that ended them failed. Addresses that
    /// were replaced by IDs before are none.
    pub(super) fn finish(&mut self) {
        for mentioned in std::mem::take(&mut self.mentioned) {
            if !self.known.iter().any(|known| known.is_of(&mentioned)) {
                self.known.push(mentioned);
            }
        }
        self.known.retain(|known| known.key.contains('@'));
    }

    /// All addresses as they were written, each with the ID of its person.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (&str, &str)> {
        let known = self.known.iter();
        known.map(|known| (known.email.as_str(), known.person_id.as_str()))
    }

    /// The action without the people, except for addresses in an action on one of them.
    pub(super) fn without_people(&self, action: &Action) -> Action {
        let actor = self.actor(&action.actor, action.at_ms);
        let mut erased = Action {
            actor: actor.unwrap_or(&action.actor).to_owned(),
            ..action.clone()
        };
        if !action.subject.starts_with(PERSON) {
            erased.before = self.erased(action.before.as_deref(), None);
            erased.after = self.erased(action.after.as_deref(), None);
        }
        erased
    }

    /// An action on one of the people, without names and addresses.
    pub(super) fn without_addresses(&self, action: &Action) -> Action {
        let person = Some(action.subject.as_str());
        Action {
            before: self.erased(action.before.as_deref(), person),
            after: self.erased(action.after.as_deref(), person),
            ..action.clone()
        }
    }

    /// A text with IDs in place of the people's addresses; `None` if it has none of them.
    pub(crate) fn replaced(&self, text: &str) -> Option<String> {
        let pairs = self.known.iter();
        let pairs = pairs.map(|known| (known.key.as_str(), known.person_id.as_str()));
        text::replaced(text, pairs, ERASED)
    }

    /// The ID of the person who had this address at this time.
    fn actor(&self, email: &str, at_ms: i64) -> Option<&str> {
        let key = email_key(email);
        let had = self
            .known
            .iter()
            .filter(|known| known.key == key && at_ms <= known.until_ms);
        let first = had.min_by_key(|known| known.until_ms)?;
        Some(&first.person_id)
    }

    /// A recorded state without names and addresses. A text that is not JSON, which we do not write, is dropped.
    fn erased(&self, text: Option<&str>, person: Option<&str>) -> Option<String> {
        let Ok(mut value) = serde_json::from_str(text?) else {
            return Some("null".into());
        };
        self.erase(&mut value, person);
        Some(value.to_string())
    }

    fn erase(&self, value: &mut Value, person: Option<&str>) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    match (name.as_str(), field) {
                        ("email", Value::String(text)) if person.is_some() => {
                            text.clear();
                            text.push_str(person.unwrap_or(ERASED));
                        }
                        (
                            "email" | "name" | "person" | "consent_by" | "bill_to",
                            Value::String(text),
                        ) => *text = self.neutral(text),
                        (_, field) => self.erase(field, person),
                    }
                }
            }
            Value::Array(values) => {
                for value in values {
                    self.erase(value, person);
                }
            }
            Value::String(text) => {
                if let Some(replaced) = self.replaced(text) {
                    *text = replaced;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// What stands for a name or an address; an ID that stands for one already stays, and so does an empty text.
    fn neutral(&self, text: &str) -> String {
        if text.is_empty() || self.subjects.contains(text) {
            return text.to_owned();
        }
        let key = email_key(text);
        let known = self.known.iter().find(|known| known.key == key);
        known.map_or(ERASED, |known| &known.person_id).to_owned()
    }
}

/// The address in a recorded state of a person.
fn email_in(text: Option<&str>) -> Option<String> {
    let value: Value = serde_json::from_str(text?).ok()?;
    Some(value.get("email")?.as_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a deletion that is interrupted could not find the addresses again.
    #[test]
    fn addresses_in_actions_on_people_are_replaced_last() {
        let changed = Action {
            at_ms: 0,
            actor: "ada@first.example".into(),
            what: "person.email".into(),
            subject: "person_1".into(),
            before: Some(r#"{"email":"ada@first.example"}"#.into()),
            after: Some(r#"{"email":"ada@second.example"}"#.into()),
        };
        let mut traces = Traces::new("acct_1", &[]);
        traces.learn(&changed);
        traces.finish();
        let first = traces.without_people(&changed);
        let expected = Action {
            actor: "person_1".into(),
            ..changed.clone()
        };
        assert_eq!(first, expected);
        let erased = traces.without_addresses(&first);
        let id = Some(r#"{"email":"person_1"}"#.to_owned());
        assert_eq!((&erased.before, &erased.after), (&id, &id));
        // The second time there is nothing left to learn.
        let mut again = Traces::new("acct_1", &[]);
        again.learn(&erased);
        again.finish();
        assert_eq!(again.addresses().count(), 0);
        assert_eq!(again.without_addresses(&erased), erased);
    }
}
