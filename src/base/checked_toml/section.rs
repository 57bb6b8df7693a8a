//! Reads one table of a document, setting by setting.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use super::{Mistake, Node, Origin, Value};

/// Reads `document` with `reader`; returns its result if there were no mistakes, otherwise all of them.
pub(crate) fn read<T>(
    document: Node,
    reader: impl FnOnce(&mut Section) -> T,
) -> Result<T, Vec<Mistake>> {
    let mistakes = Rc::new(RefCell::new(Vec::new()));
    let mut root = Section::new(String::new(), document, mistakes.clone());
    let result = reader(&mut root);
    root.finish();
    let mistakes = mistakes.take();
    if mistakes.is_empty() {
        Ok(result)
    } else {
        Err(mistakes)
    }
}

/// A table that is being read.
///
/// Every getter removes its key. [`Self::finish`] reports the keys that are left as unknown.
pub(crate) struct Section {
    path: String,
    origin: Origin,
    entries: BTreeMap<String, Node>,
    /// The keys that were read, for hints in messages about unknown keys.
    known: BTreeSet<String>,
    mistakes: Rc<RefCell<Vec<Mistake>>>,
}

impl Section {
    fn new(path: String, node: Node, mistakes: Rc<RefCell<Vec<Mistake>>>) -> Self {
        let mut entries = BTreeMap::new();
        match node.value {
            Value::Table(table) => entries = table,
            other => mistakes.borrow_mut().push(Mistake {
                origin: node.origin.clone(),
                message: format!("`{path}` is {}; expected a table", other.shown()),
            }),
        }
        Self {
            path,
            origin: node.origin,
            entries,
            known: BTreeSet::new(),
            mistakes,
        }
    }

    /// The value of `key`, converted by `read`; `None` if it is absent or invalid. An invalid value is a mistake.
    pub(crate) fn optional<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let node = self.take(key)?;
        let value = read(&node.value);
        if value.is_none() {
            let found = node.value.shown();
            self.report(
                node.origin,
                key,
                &format!("is {found}; expected {expected}"),
            );
        }
        value
    }

    /// Like [`Self::optional`], for a value that may be a secret: the mistake does not quote it.
    pub(crate) fn optional_secret<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let node = self.take(key)?;
        let value = read(&node.value);
        if value.is_none() {
            let message = format!("cannot be used; expected {expected}");
            self.report(node.origin, key, &message);
        }
        value
    }

    /// Like [`Self::optional`], but an absent key is a mistake.
    pub(crate) fn required<T>(
        &mut self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        if !self.entries.contains_key(key) {
            self.known.insert(key.to_owned());
            self.report(
                self.origin.clone(),
                key,
                &format!("is missing; expected {expected}"),
            );
        }
        self.optional(key, expected, read)
    }

    /// Reports a mistake if the key is present. Does not quote its value, which may be a secret.
    pub(crate) fn refuse(&mut self, key: &str, message: &str) {
        if let Some(node) = self.entries.remove(key) {
            self.report(node.origin, key, message);
        }
    }

    pub(crate) fn text(&mut self, key: &str, expected: &str) -> Option<String> {
        self.optional(key, expected, as_text)
    }

    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        self.optional(key, "true or false", |value| match value {
            Value::Flag(flag) => Some(*flag),
            Value::Text(text) => text.parse().ok(), // from the environment
            _ => None,
        })
    }

    pub(crate) fn integer<T: TryFrom<i64>>(&mut self, key: &str, expected: &str) -> Option<T> {
        self.optional(key, expected, as_integer)
    }

    pub(crate) fn texts(&mut self, key: &str, expected: &str) -> Option<Vec<String>> {
        self.optional(key, expected, |value| match value {
            Value::List(items) => items.iter().map(|item| as_text(&item.value)).collect(),
            _ => None,
        })
    }

    /// The table under `key`, or an empty one if it is absent. Call [`Self::finish`] on it after reading.
    #[must_use]
    pub(crate) fn section(&mut self, key: &str) -> Section {
        let absent = Node {
            origin: Origin::Absent,
            value: Value::Table(BTreeMap::new()),
        };
        let node = self.take(key).unwrap_or(absent);
        Section::new(self.path_of(key), node, self.mistakes.clone())
    }

    /// All tables under `key` with their names: `[providers.a]`, `[providers.b]`.
    pub(crate) fn named_sections(&mut self, key: &str) -> Vec<(String, Section)> {
        let mut parent = self.section(key);
        std::mem::take(&mut parent.entries)
            .into_iter()
            .map(|(name, node)| {
                let path = format!("{}.{name}", parent.path);
                (name, Section::new(path, node, self.mistakes.clone()))
            })
            .collect()
    }

    /// All tables of the list under `key`: `[[deployments]]`.
    pub(crate) fn list_of_sections(&mut self, key: &str) -> Vec<Section> {
        let Some(node) = self.take(key) else {
            return Vec::new();
        };
        let Value::List(items) = node.value else {
            self.report(node.origin, key, &format!("must be written as `[[{key}]]`"));
            return Vec::new();
        };
        let path = self.path_of(key);
        let numbered = items.into_iter().enumerate();
        numbered
            .map(|(at, item)| Section::new(format!("{path}[{at}]"), item, self.mistakes.clone()))
            .collect()
    }

    /// Reports a mistake that involves several values.
    pub(crate) fn mistake(&self, key: &str, message: &str) {
        self.report(self.origin.clone(), key, message);
    }

    /// Reports mistakes that were found elsewhere.
    pub(crate) fn report_all(&self, mistakes: Vec<Mistake>) {
        self.mistakes.borrow_mut().extend(mistakes);
    }

    pub(crate) fn is_list(&self, key: &str) -> bool {
        let value = self.entries.get(key).map(|node| &node.value);
        matches!(value, Some(Value::List(_)))
    }

    /// The keys that were not read yet, for tables whose keys are names that the operator chose.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    /// The text under `key`, which stays to be read.
    pub(crate) fn text_of(&self, key: &str) -> Option<&str> {
        match &self.entries.get(key)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Reports the keys that were not read as unknown.
    pub(crate) fn finish(self) {
        for (key, node) in &self.entries {
            let near = self.known.iter().min_by_key(|known| distance(known, key));
            let hint = match near {
                Some(near) if distance(near, key) <= 2 => format!("; did you mean `{near}`?"),
                _ if self.known.is_empty() => String::new(),
                _ => {
                    let known: Vec<_> = self.known.iter().map(|key| format!("`{key}`")).collect();
                    format!("; expected one of {}", known.join(", "))
                }
            };
            self.report(node.origin.clone(), key, &format!("is not a setting{hint}"));
        }
    }

    fn take(&mut self, key: &str) -> Option<Node> {
        self.known.insert(key.to_owned());
        self.entries.remove(key)
    }

    fn path_of(&self, key: &str) -> String {
        match (self.path.as_str(), key) {
            ("", key) => key.to_owned(),
            (path, "") => path.to_owned(),
            (path, key) => format!("{path}.{key}"),
        }
    }

    fn report(&self, origin: Origin, key: &str, message: &str) {
        let message = format!("`{}` {message}", self.path_of(key));
        self.mistakes.borrow_mut().push(Mistake { origin, message });
    }
}

pub(crate) fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

pub(crate) fn as_integer<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    let number = match value {
        Value::Integer(number) => *number,
        Value::Text(text) => text.parse().ok()?, // from the environment
        _ => return None,
    };
    T::try_from(number).ok()
}

/// A number from 0 to 1.
pub(crate) fn as_fraction(value: &Value) -> Option<f32> {
    let number: f32 = match value {
        Value::Integer(0) => 0.0,
        Value::Integer(1) => 1.0,
        Value::Text(text) | Value::Other(text) => text.parse().ok()?,
        _ => return None,
    };
    (0.0..=1.0).contains(&number).then_some(number)
}

/// The edit distance of two words (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}
