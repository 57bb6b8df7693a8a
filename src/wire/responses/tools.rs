//! Functions, `tool_choice` and structured output in the flat form of this API.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::wire::{
    chat::{AllowedTools, NamedSchema, ResponseFormat, Schema, Tool, ToolChoice},
    error::GatewayError,
};

/// A tool of any type; only functions are supported.
#[derive(Debug, Deserialize)]
pub(crate) struct FlatTool {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    description: Option<String>,
    parameters: Option<Schema>,
    strict: Option<bool>,
}

impl FlatTool {
    /// `at` is its index in the list.
    pub(crate) fn into_tool(self, at: usize) -> Result<Tool, GatewayError> {
        if self.kind != "function" {
            let param = format!("tools[{at}].type");
            let message = format!(
                "`{param}` is `{}`; the only tools served here are functions.",
                self.kind
            );
            return Err(GatewayError::invalid(param, message));
        }
        let Some(name) = self.name else {
            let param = format!("tools[{at}].name");
            return Err(GatewayError::invalid(
                &*param,
                format!("`{param}` is missing."),
            ));
        };
        let (description, parameters) = (self.description, self.parameters);
        Ok(Tool::function(name, description, parameters, self.strict))
    }
}

/// The tools in the form in which a response repeats them.
pub(crate) fn echo_tools(tools: &[Tool]) -> Result<Value, GatewayError> {
    #[derive(Serialize)]
    struct EchoedTool<'a> {
        r#type: &'static str,
        name: &'a str,
        description: Option<&'a str>,
        parameters: Option<&'a Schema>,
        strict: Option<bool>,
    }
    let echoed = tools.iter().map(|tool| EchoedTool {
        r#type: "function",
        name: &tool.function.name,
        description: tool.function.description.as_deref(),
        parameters: tool.function.parameters.as_ref(),
        strict: tool.function.strict,
    });
    echo_value("tools", &echoed.collect::<Vec<_>>())
}

/// A value in the form in which a response repeats it. Schemas are sent upstream unparsed, but a value that cannot be
/// parsed (an unpaired surrogate, a number out of range) cannot be repeated and is refused.
pub(crate) fn echo_value(param: &str, sent: &impl Serialize) -> Result<Value, GatewayError> {
    serde_json::to_value(sent).map_err(|_| {
        let message = format!("`{param}` holds a text or a number that cannot be read.");
        GatewayError::invalid(param, message)
    })
}

/// Parses `tool_choice`: `auto`, `none`, `required`, one function, or a subset of them.
pub(crate) fn choice(written: &Value) -> Result<ToolChoice, GatewayError> {
    read_choice(written).ok_or_else(|| {
        let message = "`tool_choice` must be `auto`, `none`, `required`, {\"type\": \"function\", \
                       \"name\": ...} or {\"type\": \"allowed_tools\", ...}.";
        GatewayError::invalid("tool_choice", message)
    })
}

fn read_choice(written: &Value) -> Option<ToolChoice> {
    if let Some(mode) = written.as_str() {
        return match mode {
            "auto" => Some(ToolChoice::Auto),
            "none" => Some(ToolChoice::None),
            "required" => Some(ToolChoice::Required),
            _ => None,
        };
    }
    let name = |tool: &Value| tool["name"].as_str().map(str::to_owned);
    match written["type"].as_str()? {
        "function" => name(written).map(ToolChoice::Named),
        "allowed_tools" => {
            let required = match written["mode"].as_str()? {
                "auto" => false,
                "required" => true,
                _ => return None,
            };
            let names: Option<Vec<_>> = written["tools"].as_array()?.iter().map(name).collect();
            let names = names?;
            Some(ToolChoice::Allowed(AllowedTools { required, names }))
        }
        _ => None,
    }
}

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
