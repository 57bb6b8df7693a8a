//! The `tool_choice` field: which tools the model may or must call.

use serde_json::Value;

use super::{
    tool_names::{CallerTool, ToolKind, ToolNames},
    tools::is_left_out,
};
use crate::wire::{
    chat::{AllowedTools, ToolChoice},
    error::GatewayError,
};

/// A choice that names tools as the caller does.
#[derive(Debug)]
pub(super) enum RawChoice {
    None,
    Auto,
    Required,
    Named(CallerTool),
    /// A subset of the tools, without those that are left out.
    Allowed {
        required: bool,
        tools: Vec<CallerTool>,
    },
}

/// Parses `tool_choice`: `auto`, `none`, `required`, one tool, or a subset of them.
pub(super) fn read(written: &Value) -> Result<RawChoice, GatewayError> {
    if let Some(kind) = written["type"].as_str().filter(|kind| is_left_out(kind)) {
        let message = format!("Send another `tool_choice`: `{kind}` is not served here.");
        return Err(GatewayError::invalid("tool_choice", message));
    }
    parse(written).ok_or_else(|| {
        let message = "`tool_choice` must be `auto`, `none`, `required`, {\"type\": \"function\", \
                       \"name\": ...}, {\"type\": \"custom\", \"name\": ...} or \
                       {\"type\": \"allowed_tools\", ...}.";
        GatewayError::invalid("tool_choice", message)
    })
}

fn parse(written: &Value) -> Option<RawChoice> {
    if let Some(mode) = written.as_str() {
        return match mode {
            "auto" => Some(RawChoice::Auto),
            "none" => Some(RawChoice::None),
            "required" => Some(RawChoice::Required),
            _ => None,
        };
    }
    match written["type"].as_str()? {
        "function" | "custom" => tool(written).map(RawChoice::Named),
        "allowed_tools" => {
            let required = match written["mode"].as_str()? {
                "auto" => false,
                "required" => true,
                _ => return None,
            };
            let is_kept = |tool: &&Value| !tool["type"].as_str().is_some_and(is_left_out);
            let tools = written["tools"].as_array()?.iter().filter(is_kept);
            let tools = tools.map(tool).collect::<Option<_>>()?;
            Some(RawChoice::Allowed { required, tools })
        }
        _ => None,
    }
}

fn tool(written: &Value) -> Option<CallerTool> {
    let kind = match written.get("type").and_then(Value::as_str) {
        None | Some("function") => ToolKind::Function,
        Some("custom") => ToolKind::Custom,
        Some(_) => return None,
    };
    Some(CallerTool {
        kind,
        namespace: written["namespace"].as_str().map(str::to_owned),
        name: written["name"].as_str()?.to_owned(),
    })
}

impl RawChoice {
    /// The choice with the names of the tools for the provider.
    ///
    /// `none_left` says that tools were sent and none of them is offered: then none can be forced.
    pub(super) fn resolve(
        self,
        names: &ToolNames,
        none_left: bool,
    ) -> Result<ToolChoice, GatewayError> {
        let is_forced = !matches!(self, Self::None | Self::Auto);
        if none_left && is_forced {
            let message = "Send `tool_choice: \"auto\"`, or offer a function: none of the tools in this request is \
                           served here.";
            return Err(GatewayError::invalid("tool_choice", message));
        }
        Ok(match self {
            Self::None => ToolChoice::None,
            Self::Auto => ToolChoice::Auto,
            Self::Required => ToolChoice::Required,
            Self::Named(tool) => ToolChoice::Named(name(tool, names)?),
            Self::Allowed { required, tools } => {
                let chosen = tools.into_iter().map(|tool| name(tool, names));
                let names = chosen.collect::<Result<_, _>>()?;
                ToolChoice::Allowed(AllowedTools { required, names })
            }
        })
    }
}

/// The name of the tool for the provider. Whether a plain function is offered is checked later, as in chat.
fn name(tool: CallerTool, names: &ToolNames) -> Result<String, GatewayError> {
    if let Some(name) = names.name_of(&tool) {
        return Ok(name.to_owned());
    }
    if tool.is_plain() && names.tool(&tool.name) == tool {
        return Ok(tool.name);
    }
    let message = format!(
        "Name a tool of this request in `tool_choice`: `{}` is not among them.",
        tool.name
    );
    Err(GatewayError::invalid("tool_choice", message))
}
