//! SQL statements that both SQLite and PostgreSQL execute, and the rows that they return.

use super::BackofficeError;

/// A statement and the values of its placeholders.
///
/// The placeholders `$1`, `$2` and so on must first appear in the order of their numbers: PostgreSQL binds values by
/// number, SQLite by order of first appearance.
pub(crate) struct Statement {
    pub sql: &'static str,
    pub values: Vec<Value>,
}

pub(crate) fn statement<const N: usize>(sql: &'static str, values: [Value; N]) -> Statement {
    Statement {
        sql,
        values: values.into(),
    }
}

pub(crate) enum Value {
    Text(String),
    Int(i64),
    /// NULL of type text.
    Null,
}

impl From<&str> for Value {
    /// Replaces zero bytes, which a text of PostgreSQL cannot contain, by U+FFFD in both databases. Stored values and
    /// search values are replaced alike, so a stored text is found by the original text.
    fn from(text: &str) -> Self {
        Self::Text(text.replace('\0', "\u{fffd}"))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::from)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

/// A row, whose columns are read from left to right.
pub(crate) struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub(crate) fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    pub(crate) fn text(&mut self) -> Result<String, BackofficeError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(unexpected("a text")),
        }
    }

    pub(crate) fn text_or_null(&mut self) -> Result<Option<String>, BackofficeError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            _ => Err(unexpected("a text or NULL")),
        }
    }

    pub(crate) fn int_or_null(&mut self) -> Result<Option<i64>, BackofficeError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(Some(number)),
            Some(Value::Null) => Ok(None),
            _ => Err(unexpected("a number or NULL")),
        }
    }

    pub(crate) fn int(&mut self) -> Result<i64, BackofficeError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            _ => Err(unexpected("a number")),
        }
    }
}

/// Error for a stored value that this program cannot have written.
pub(crate) fn unexpected(expected: &str) -> BackofficeError {
    BackofficeError::Unavailable(format!("a stored value is not {expected}"))
}
