//! A TOML document as a tree with line numbers.

use std::collections::BTreeMap;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{Mistake, Origin};

#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub origin: Origin,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Flag(bool),
    List(Vec<Node>),
    Table(BTreeMap<String, Node>),
    /// The text of a float, a date or an integer that does not fit.
    Other(String),
}

impl Node {
    /// Gives this value, and every value in it, the same origin.
    #[must_use]
    pub(crate) fn with_origin(self, origin: &Origin) -> Self {
        let value = match self.value {
            Value::List(items) => {
                let items = items.into_iter();
                Value::List(items.map(|item| item.with_origin(origin)).collect())
            }
            Value::Table(entries) => {
                let entries = entries.into_iter();
                let moved = entries.map(|(key, node)| (key, node.with_origin(origin)));
                Value::Table(moved.collect())
            }
            other => other,
        };
        Self {
            origin: origin.clone(),
            value,
        }
    }
}

impl Value {
    /// Formats the value for an error message.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Integer(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::List(_) => "a list".into(),
            Self::Table(_) => "a table".into(),
            Self::Other(text) => text.clone(),
        }
    }
}

/// Parses a document; the errors are all mistakes in its syntax.
pub(crate) fn parse(text: &str) -> Result<Node, Vec<Mistake>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(errors
            .iter()
            .map(|error| Mistake {
                origin: error
                    .span()
                    .map_or(Origin::Absent, |span| line(text, span.start)),
                message: format!("this is not TOML: {}", error.message().trim()),
            })
            .collect());
    }
    Ok(Node {
        origin: Origin::Absent,
        value: table(text, document.get_ref()),
    })
}

fn table(text: &str, table: &DeTable<'_>) -> Value {
    let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let key: &std::borrow::Cow<'_, str> = key.get_ref();
        (key.to_string(), node(text, value))
    };
    Value::Table(table.iter().map(entry).collect())
}

fn node(text: &str, written: &Spanned<DeValue<'_>>) -> Node {
    let value = match written.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(integer) => {
            let digits = integer.as_str().replace('_', "");
            i64::from_str_radix(&digits, integer.radix())
                .map_or_else(|_| Value::Other(integer.to_string()), Value::Integer)
        }
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Array(items) => Value::List(items.iter().map(|item| node(text, item)).collect()),
        DeValue::Table(inner) => table(text, inner),
        DeValue::Float(float) => Value::Other(float.to_string()),
        DeValue::Datetime(datetime) => Value::Other(datetime.to_string()),
    };
    Node {
        origin: line(text, written.span().start),
        value,
    }
}

fn line(text: &str, offset: usize) -> Origin {
    Origin::Line(text[..offset.min(text.len())].matches('\n').count() + 1)
}
