//! The `text` field: structured output in the flat form of this API.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::echo::echo_value;
use crate::wire::{
    chat::{NamedSchema, ResponseFormat, Schema},
    error::GatewayError,
};

/// The `text` field.
#[derive(Debug, Deserialize)]
pub(crate) struct TextSettings {
    format: Option<FlatFormat>,
    verbosity: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FlatFormat {
    #[serde(rename = "type")]
    kind: FormatKind,
    name: Option<String>,
    description: Option<String>,
    strict: Option<bool>,
    schema: Option<Schema>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FormatKind {
    Text,
    JsonObject,
    JsonSchema,
}

impl TextSettings {
    /// The field in the form in which a response repeats it.
    pub(crate) fn echo(&self) -> Result<Value, GatewayError> {
        let format = match &self.format {
            None => json!({ "type": "text" }),
            Some(format) if format.kind == FormatKind::JsonSchema => {
                echo_value("text.format", format)?
            }
            Some(format) => json!({ "type": format.kind }),
        };
        Ok(match &self.verbosity {
            None => json!({ "format": format }),
            Some(verbosity) => json!({ "format": format, "verbosity": verbosity }),
        })
    }

    pub(crate) fn into_format(self) -> Result<Option<ResponseFormat>, GatewayError> {
        let Some(format) = self.format else {
            return Ok(None);
        };
        match format.kind {
            FormatKind::Text => Ok(None),
            FormatKind::JsonObject => Ok(Some(ResponseFormat::JsonObject)),
            FormatKind::JsonSchema => {
                let missing = |field: &str| {
                    let param = format!("text.format.{field}");
                    GatewayError::invalid(&*param, format!("`{param}` is missing."))
                };
                let json_schema = NamedSchema {
                    name: format.name.ok_or_else(|| missing("name"))?,
                    description: format.description,
                    strict: format.strict,
                    schema: Some(format.schema.ok_or_else(|| missing("schema"))?),
                };
                Ok(Some(ResponseFormat::JsonSchema { json_schema }))
            }
        }
    }
}
