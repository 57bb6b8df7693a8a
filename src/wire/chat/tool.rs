//! Tools, `tool_choice` and structured output (§2.1, §2.4).
//!
//! Schemas are forwarded without being parsed, so their text stays unchanged.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::{Map, Value, value::RawValue};

use crate::{base::tokens::TokenCount, wire::json_text::unescape_unicode};

/// A JSON object that is forwarded without being parsed.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Schema(Box<RawValue>);

impl Schema {
    pub(crate) fn new(object: &Map<String, Value>) -> Self {
        Self(serde_json::value::to_raw_value(object).expect("JSON serialises"))
    }

    pub fn as_json(&self) -> &str {
        self.0.get()
    }

    pub(crate) fn count(&self, count: &mut TokenCount) {
        count.text(&unescape_unicode(self.as_json()));
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        if !raw.get().starts_with('{') {
            return Err(D::Error::custom("expected an object"));
        }
        Ok(Self(raw))
    }
}

/// The only supported kind of tool; parsing refuses any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Function,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tool {
    #[serde(rename = "type")]
    kind: Kind,
    pub function: ToolFunction,
}

impl Tool {
    pub(crate) fn function(
        name: String,
        description: Option<String>,
        parameters: Option<Schema>,
        strict: Option<bool>,
    ) -> Self {
        Self {
            kind: Kind::Function,
            function: ToolFunction {
                name,
                description,
                parameters,
                strict,
            },
        }
    }

    /// Counts what the definitions of all tools add to a prompt.
    pub(crate) fn count_all(tools: &[Self], count: &mut TokenCount) {
        if !tools.is_empty() {
            count.instructions();
        }
        for tool in tools {
            tool.count(count);
        }
    }

    fn count(&self, count: &mut TokenCount) {
        let Self { kind: _, function } = self;
        let ToolFunction {
            name,
            description,
            parameters,
            strict: _,
        } = function;
        count.tool();
        count.text(name);
        count.text(description.as_deref().unwrap_or_default());
        if let Some(parameters) = parameters {
            parameters.count(count);
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolFunction {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Schema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    None,
    Auto,
    Required,
    Named(String),
    /// A subset of the tools; resolved before the request is sent upstream.
    Allowed(AllowedTools),
}

impl ToolChoice {
    pub(crate) fn count(&self, count: &mut TokenCount) {
        match self {
            Self::None | Self::Auto | Self::Required => {}
            Self::Named(name) => count.text(name),
            Self::Allowed(AllowedTools { required: _, names }) => {
                for name in names {
                    count.text(name);
                }
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AllowedTools {
    pub required: bool,
    pub names: Vec<String>,
}

impl<'de> Deserialize<'de> for ToolChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Mode(ChoiceMode),
            Choice(Choice),
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum ChoiceMode {
            None,
            Auto,
            Required,
        }
        #[derive(Deserialize)]
        #[serde(tag = "type", rename_all = "snake_case")]
        enum Choice {
            Function { function: Name },
            AllowedTools { allowed_tools: Allowed },
        }
        #[derive(Deserialize)]
        struct Name {
            name: String,
        }
        #[derive(Deserialize)]
        struct Allowed {
            mode: Mode,
            tools: Vec<AllowedTool>,
        }
        #[derive(Deserialize)]
        struct AllowedTool {
            function: Name,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Mode {
            Auto,
            Required,
        }
        let written = Written::deserialize(deserializer).map_err(|_| {
            D::Error::custom(
                "expected `none`, `auto`, `required` or \
                 {\"type\": \"function\", \"function\": {\"name\": ...}}",
            )
        })?;
        Ok(match written {
            Written::Mode(ChoiceMode::None) => Self::None,
            Written::Mode(ChoiceMode::Auto) => Self::Auto,
            Written::Mode(ChoiceMode::Required) => Self::Required,
            Written::Choice(Choice::Function { function }) => Self::Named(function.name),
            Written::Choice(Choice::AllowedTools { allowed_tools }) => {
                Self::Allowed(AllowedTools {
                    required: matches!(allowed_tools.mode, Mode::Required),
                    names: allowed_tools
                        .tools
                        .into_iter()
                        .map(|tool| tool.function.name)
                        .collect(),
                })
            }
        })
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
}

impl ResponseFormat {
    pub(crate) fn count(&self, count: &mut TokenCount) {
        match self {
            Self::Text => {}
            Self::JsonObject => count.instructions(),
            Self::JsonSchema { json_schema } => {
                let NamedSchema {
                    name,
                    description,
                    strict: _,
                    schema,
                } = json_schema;
                count.instructions();
                count.text(name);
                count.text(description.as_deref().unwrap_or_default());
                if let Some(schema) = schema {
                    schema.count(count);
                }
            }
        }
    }
}

/// Written by hand, because serde reads tagged enums through a buffer, and a `RawValue` cannot be read from one.
impl<'de> Deserialize<'de> for ResponseFormat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            #[serde(rename = "type")]
            kind: FormatKind,
            json_schema: Option<NamedSchema>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "snake_case")]
        enum FormatKind {
            Text,
            JsonObject,
            JsonSchema,
        }
        let Written { kind, json_schema } = Written::deserialize(deserializer)?;
        match (kind, json_schema) {
            (FormatKind::Text, _) => Ok(Self::Text),
            (FormatKind::JsonObject, _) => Ok(Self::JsonObject),
            (FormatKind::JsonSchema, Some(json_schema)) => Ok(Self::JsonSchema { json_schema }),
            (FormatKind::JsonSchema, None) => Err(D::Error::missing_field("json_schema")),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NamedSchema {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<Schema>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_format_is_written_as_it_was_read() {
        for json in [
            r#"{"type":"text"}"#,
            r#"{"type":"json_object"}"#,
            r#"{"type":"json_schema","json_schema":{"name":"p","strict":true,"schema":{"type": "object"}}}"#,
            r#"{"type":"json_schema","json_schema":{"name":"p"}}"#,
        ] {
            let format: ResponseFormat = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&format).unwrap(), json);
        }
        for json in [r#"{"type":"json_schema"}"#, r#"{"type":"xml"}"#, "{}"] {
            assert!(serde_json::from_str::<ResponseFormat>(json).is_err());
        }
    }
}
