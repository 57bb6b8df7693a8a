//! Statements that both databases understand, and rows of their answers.

use super::BackofficeError;

/// A statement and its values.
///
/// Its placeholders are `$1`, `$2` and so on in the order in which they first appear: PostgreSQL goes
/// by their numbers, SQLite by that order.
pub struct Statement {
    pub sql: &'static str,
    pub values: Vec<Value>,
}

pub fn statement<const N: usize>(sql: &'static str, values: [Value; N]) -> Statement {
    Statement {
        sql,
        values: values.into(),
    }
}

pub enum Value {
    Text(String),
    Int(i64),
    /// In the place of a text.
    Null,
}

impl From<&str> for Value {
    /// PostgreSQL keeps no zero byte in a text, so it is another character in both: what was written
    /// is found again by the same text.
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

/// What is left of a row, which is read from left to right.
pub struct Row(std::vec::IntoIter<Value>);

impl Row {
    pub fn new(values: Vec<Value>) -> Self {
        Self(values.into_iter())
    }

    pub fn text(&mut self) -> Result<String, BackofficeError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(text),
            _ => Err(unexpected("a text")),
        }
    }

    pub fn text_or_null(&mut self) -> Result<Option<String>, BackofficeError> {
        match self.0.next() {
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(Value::Null) => Ok(None),
            _ => Err(unexpected("a text or none")),
        }
    }

    pub fn int_or_null(&mut self) -> Result<Option<i64>, BackofficeError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(Some(number)),
            Some(Value::Null) => Ok(None),
            _ => Err(unexpected("a number or none")),
        }
    }

    pub fn int(&mut self) -> Result<i64, BackofficeError> {
        match self.0.next() {
            Some(Value::Int(number)) => Ok(number),
            _ => Err(unexpected("a number")),
        }
    }
}

/// Somebody else has written to the tables.
pub fn unexpected(wanted: &str) -> BackofficeError {
    BackofficeError::Unavailable(format!("{wanted} was expected, and something else is kept"))
}
