//! What an operator has typed into the form of an entry: read once, shown again, and turned into changes.

use std::collections::BTreeMap;

use toml::Table;

use super::{
    fields::{Field, fields},
    shown::Shown,
};
use crate::{
    base::checked_toml,
    config::changes::{Change, Changes, Entry, Kind, deployment_name, unique, write_entry},
};

/// The fields of a form by their names.
pub(super) type Typed = BTreeMap<String, String>;

pub(super) struct Draft {
    pub kind: Kind,
    /// Empty for a new deployment, which is named by what it connects.
    pub name: String,
    pub is_new: bool,
    /// What is done with the entry.
    pub intent: Intent,
    /// The version that the form was made from.
    pub based_on: i64,
    pub note: String,
    /// What was typed into each field.
    pub values: Vec<(Field, String)>,
    /// The settings without a field, as TOML.
    pub rest: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    Set,
    Remove,
    /// Back to what the file or the built-in catalog says.
    Revert,
}

impl Intent {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Remove => "remove",
            Self::Revert => "revert",
        }
    }
}

impl Draft {
    /// The form of an entry as it is now, or of a new one.
    pub(super) fn of_entry(kind: Kind, entry: Option<&Entry>, shown: &Shown) -> Self {
        let mut table = entry.and_then(Entry::current).unwrap_or_default();
        if let Some(original) = entry
            .and_then(|entry| entry.original.as_ref())
            .filter(|_| table.is_empty())
        {
            table = original.1.clone(); // It was removed, and is put back.
        }
        let fields = fields(kind, &table, &shown.routes).into_iter();
        let values = fields.map(|field| {
            let value = field.take(&mut table).unwrap_or_default();
            (field, value)
        });
        let values = values.collect();
        Self {
            kind,
            name: entry.map(|entry| entry.name.clone()).unwrap_or_default(),
            is_new: entry.is_none(),
            intent: Intent::Set,
            based_on: shown.newest.number,
            note: String::new(),
            values,
            rest: write_entry(&table),
        }
    }

    /// What was submitted.
    pub(super) fn submitted(kind: Kind, typed: &Typed, shown: &Shown) -> Self {
        let text = |name: &str| {
            typed
                .get(name)
                .map(|text| text.trim().to_owned())
                .unwrap_or_default()
        };
        let rest = text("rest").replace("\r\n", "\n");
        let shape: Table = rest.parse().unwrap_or_default();
        let fields = fields(kind, &shape, &shown.routes).into_iter();
        let values = fields.map(|field| {
            let value = text(&format!("f.{}", field.key));
            (field, value)
        });
        Self {
            kind,
            name: text("name"),
            is_new: typed.contains_key("new"),
            intent: match text("intent").as_str() {
                "remove" => Intent::Remove,
                "revert" => Intent::Revert,
                _ => Intent::Set,
            },
            based_on: text("based_on").parse().unwrap_or(-1),
            note: text("note"),
            values: values.collect(),
            rest,
        }
    }

    /// The entry that was typed, or what cannot be read of it.
    pub(super) fn entry(&self) -> Result<Table, Vec<String>> {
        checked_toml::parse(&self.rest).map_err(|mistakes| {
            let mistakes = mistakes.iter();
            mistakes
                .map(|mistake| format!("Other settings, {mistake}"))
                .collect::<Vec<_>>()
        })?;
        let parsed: Result<Table, _> = self.rest.parse();
        let mut entry = parsed.map_err(|error| {
            let reason = error.message();
            vec![format!("Other settings cannot be read: {reason}")]
        })?;
        let put = self
            .values
            .iter()
            .map(|(field, typed)| field.put(typed, &mut entry));
        let mistakes: Vec<_> = put.filter_map(Result::err).collect();
        if mistakes.is_empty() {
            Ok(entry)
        } else {
            Err(mistakes)
        }
    }

    /// The changes with this one, and the name of the entry.
    pub(super) fn changes(&self, shown: &Shown) -> Result<(Changes, String), Vec<String>> {
        let before = &shown.newest.changes;
        let mut changes = Changes::clone(before);
        let entries = shown.entries(self.kind);
        let known = |name: &str| entries.iter().find(|entry| entry.name == name);
        let set = match self.intent {
            Intent::Set => Some(self.entry()?),
            Intent::Remove | Intent::Revert => None,
        };
        let name = match (&set, self.kind) {
            (Some(entry), Kind::Deployment) if self.is_new => {
                unique(deployment_name(entry), |name| known(name).is_some())
            }
            _ => self.name.clone(),
        };
        if name.is_empty() {
            return Err(vec![format!(
                "Enter a name for the {}.",
                self.kind.as_str()
            )]);
        }
        let found = known(&name);
        let is_there = found.is_some_and(|entry| entry.current().is_some());
        if self.is_new && is_there {
            return Err(vec![format!(
                "There is a {} `{name}` already. Choose another name.",
                self.kind.as_str()
            )]);
        }
        if !self.is_new && found.is_none() {
            return Err(vec![format!(
                "There is no {} `{name}` any more.",
                self.kind.as_str()
            )]);
        }
        if found.is_some_and(Entry::is_hidden) && self.intent == Intent::Set {
            return Err(vec![
                "This provider’s URL has a password in it. Change it in the file.".into(),
            ]);
        }
        let of_kind = changes.of_mut(self.kind);
        if self.intent == Intent::Revert {
            of_kind.remove(&name);
        } else {
            let change = Change {
                set: set.as_ref().map(write_entry),
                replaces: None,
            };
            of_kind.insert(name.clone(), change);
        }
        let changes = shown.routes.base.with_replaced(changes, before);
        Ok((changes, name))
    }

    /// All fields as they were submitted, for a form that submits them again.
    pub(super) fn hidden_fields(&self) -> Vec<(String, String)> {
        let mut fields: Vec<_> = self
            .values
            .iter()
            .map(|(field, value)| (format!("f.{}", field.key), value.clone()))
            .collect();
        for (name, value) in [
            ("name", self.name.clone()),
            ("rest", self.rest.clone()),
            ("note", self.note.clone()),
            ("intent", self.intent.as_str().to_owned()),
            ("based_on", self.based_on.to_string()),
        ] {
            fields.push((name.to_owned(), value));
        }
        if self.is_new {
            fields.push(("new".into(), "yes".into()));
        }
        fields
    }
}
