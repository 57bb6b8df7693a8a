//! Tools and `tool_choice`.

use std::collections::HashSet;

use serde::Deserialize;

use super::blocks::{Notes, wrong};
use crate::wire::{
    chat::{Schema, Tool, ToolChoice},
    error::GatewayError,
};

/// Estimated tokens of a tool that this API defines.
const CLIENT_TOOL_TOKENS: u64 = 1_500;
/// The longest name of a tool.
const MAX_NAME: usize = 128;

/// A tool as the caller sent it. Other fields, such as `cache_control`, have no effect.
#[derive(Debug, Deserialize)]
pub(super) struct RawTool {
    #[serde(rename = "type")]
    kind: Option<String>,
    name: Option<String>,
    description: Option<String>,
    input_schema: Option<Schema>,
    strict: Option<bool>,
    defer_loading: Option<bool>,
    allowed_callers: Option<Vec<String>>,
    input_examples: Option<Vec<Schema>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RawChoice {
    #[serde(rename = "type")]
    kind: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

/// The tools that are offered to the model, and how it may use them.
#[derive(Debug, Default)]
pub(super) struct Offer {
    pub tools: Vec<Tool>,
    pub choice: Option<ToolChoice>,
    pub parallel: Option<bool>,
}

/// Checks the tools. A deferred one is offered only if a reference has loaded it, or if the choice names it.
pub(super) fn offer(
    tools: Vec<RawTool>,
    choice: Option<RawChoice>,
    notes: &mut Notes,
) -> Result<Offer, GatewayError> {
    let parallel = choice
        .as_ref()
        .and_then(|choice| choice.disable_parallel_tool_use);
    let choice = choice.map(RawChoice::read).transpose()?;
    let loaded = std::mem::take(&mut notes.loaded);
    let mut loaded: HashSet<&str> = loaded.iter().map(String::as_str).collect();
    if let Some(ToolChoice::Named(name)) = &choice {
        loaded.insert(name);
    }
    let mut names = HashSet::new();
    let mut offered = Vec::with_capacity(tools.len());
    for (at, tool) in tools.into_iter().enumerate() {
        if tool.is_run_by_client() {
            notes.native_only(CLIENT_TOOL_TOKENS, || tool.wrong_type(at))?;
            names.insert(tool.name.unwrap_or_default());
            continue;
        }
        let is_deferred = tool.defer_loading.unwrap_or(false);
        let tool = tool.read(at)?;
        let name = &tool.function.name;
        if !names.insert(name.clone()) {
            let path = format!("tools.{at}.name");
            return Err(wrong(path, format!("there is another tool `{name}`.")));
        }
        if !is_deferred || loaded.contains(name.as_str()) {
            offered.push(tool);
        }
    }
    match &choice {
        // Without tools a choice has no effect.
        Some(ToolChoice::Named(name)) if !names.is_empty() && !names.contains(name) => {
            let reason = format!("there is no tool `{name}` in `tools`.");
            Err(wrong("tool_choice.name", reason))
        }
        _ => Ok(Offer {
            choice: choice.filter(|choice| match choice {
                ToolChoice::Named(name) => offered.iter().any(|tool| tool.function.name == *name),
                _ => true,
            }),
            tools: offered,
            parallel: parallel.filter(|disabled| *disabled).map(|_| false),
        }),
    }
}

impl RawTool {
    /// Whether it is a tool that this API defines and the client runs.
    fn is_run_by_client(&self) -> bool {
        let kind = self.kind.as_deref().unwrap_or_default();
        let kinds = ["bash_", "text_editor_", "memory_", "computer_"];
        kinds.iter().any(|known| kind.starts_with(known))
    }

    fn wrong_type(&self, at: usize) -> GatewayError {
        let kind = self.kind.as_deref().unwrap_or_default();
        let reason = format!("tools of type `{kind}` are not served here; only `custom` ones are.");
        wrong(format!("tools.{at}.type"), reason)
    }

    /// `at` is its index in the list.
    fn read(self, at: usize) -> Result<Tool, GatewayError> {
        let path = |field: &str| format!("tools.{at}.{field}");
        if self.kind.as_ref().is_some_and(|kind| kind != "custom") {
            return Err(self.wrong_type(at));
        }
        let name = self.name.unwrap_or_default();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_plain) {
            let reason = format!("a name has 1 to {MAX_NAME} letters, digits, `_` or `-`.");
            return Err(wrong(path("name"), reason));
        }
        let callers = self.allowed_callers.unwrap_or_default();
        if !callers.is_empty() && !callers.iter().any(|caller| caller == "direct") {
            let reason =
                "only `direct` calls are served; a tool for other callers alone cannot be.";
            return Err(wrong(path("allowed_callers"), reason));
        }
        let schema = self.input_schema;
        let schema = schema.ok_or_else(|| wrong(path("input_schema"), "it is missing."))?;
        let examples = self.input_examples.unwrap_or_default();
        let description = with_examples(self.description, &examples);
        Ok(Tool::function(name, description, Some(schema), self.strict))
    }
}

/// The description with examples of the input, for which a chat has no field.
fn with_examples(description: Option<String>, examples: &[Schema]) -> Option<String> {
    if examples.is_empty() {
        return description;
    }
    let mut text = description.unwrap_or_default();
    text.push_str("\n\nExamples of input:");
    for example in examples {
        text.push('\n');
        text.push_str(example.as_json());
    }
    Some(text.trim_start().to_owned())
}

impl RawChoice {
    fn read(self) -> Result<ToolChoice, GatewayError> {
        match self.kind.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "any" => Ok(ToolChoice::Required),
            "none" => Ok(ToolChoice::None),
            "tool" => {
                let name = self.name;
                let name = name.ok_or_else(|| wrong("tool_choice.name", "it is missing."))?;
                Ok(ToolChoice::Named(name))
            }
            other => {
                let reason =
                    format!("it is `{other}`; it must be `auto`, `any`, `tool` or `none`.");
                Err(wrong("tool_choice.type", reason))
            }
        }
    }
}
