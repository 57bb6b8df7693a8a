//! The trait of a built-in tool, and parsing of its arguments.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use super::{failure::Failure, sources::Sources};

pub(crate) trait Tool {
    const NAME: &'static str;
    /// Read by models to decide whether to call the tool.
    const DESCRIPTION: &'static str;
    /// Unknown fields are ignored, because models sometimes add some.
    type Arguments: DeserializeOwned + JsonSchema + Send;
    type Output: Serialize;

    fn run(
        sources: &Sources,
        arguments: Self::Arguments,
    ) -> impl Future<Output = Result<Self::Output, Failure>> + Send;
}

/// Parses the arguments that a model wrote. An empty text counts as `{}`: some models write nothing for no arguments.
pub(crate) fn arguments<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    let text = match text.trim() {
        "" => "{}",
        text => text,
    };
    // serde would also accept a list as a struct, field by field.
    if !text.starts_with('{') {
        return Err(Failure::arguments("the arguments must be a JSON object"));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        let why = without_position(&error.into_inner());
        match path.as_str() {
            "." => format!("the arguments cannot be used: {why}"),
            path => format!("the argument `{path}` cannot be used: {why}"),
        }
    });
    let read = read.map_err(Failure::Arguments)?;
    reader
        .end()
        .map_err(|_| Failure::arguments("the arguments are more than one JSON object"))?;
    Ok(read)
}

/// serde's message without ` at line 1 column 7`, which is of no use to a model.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    match message.rfind(" at line ") {
        Some(at) => message[..at].to_owned(),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::tools::decimal::Decimal;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only deserialised")]
    struct Example {
        symbols: Vec<String>,
        days: Option<u32>,
        amount: Option<Decimal>,
    }

    #[test]
    fn a_mistake_names_its_field() {
        for (text, expected) in [
            ("", "the arguments cannot be used: missing field `symbols`"),
            (" \n ", "missing field `symbols`"),
            (
                r#"{"symbols":"btc"}"#,
                "`symbols` cannot be used: invalid type: string",
            ),
            (
                r#"{"symbols":["a",1]}"#,
                "`symbols[1]` cannot be used: invalid type: integer",
            ),
            (r#"{"symbols":[],"days":-1}"#, "`days` cannot be used"),
            (
                r#"{"symbols":[],"amount":"x"}"#,
                "`amount` cannot be used: expected a decimal",
            ),
            ("[[\"btc\"]]", "must be a JSON object"),
            ("null", "must be a JSON object"),
            (r#"{"symbols":[]} {}"#, "more than one JSON object"),
            ("{", "EOF while parsing"),
        ] {
            let failure = arguments::<Example>(text).unwrap_err();
            let shown = failure.to_string();
            assert!(matches!(failure, Failure::Arguments(_)), "{text}");
            assert!(
                shown.contains(expected) && !shown.contains("line"),
                "{text}: {shown}"
            );
        }
    }

    #[test]
    fn unknown_arguments_are_ignored() {
        assert!(arguments::<Example>(r#"{"symbols":[],"why":"because"}"#).is_ok());
    }
}
