//! Tools in the form in which a response repeats them.

use serde::Serialize;

use super::tools::{InputFormat, RawTool};
use crate::wire::chat::Schema;

/// A tool that is repeated. Every field in it is sent to the model, too, so the caller pays for its bytes.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Echoed<'a> {
    /// With every field: clients rely on them.
    Function {
        r#type: &'static str,
        name: &'a str,
        description: Option<&'a str>,
        parameters: Option<&'a Schema>,
        strict: Option<bool>,
    },
    /// A custom tool, a namespace or a function in one, with the fields that were sent.
    AsSent {
        r#type: &'a str,
        name: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parameters: Option<&'a Schema>,
        #[serde(skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
        #[serde(skip_serializing_if = "Option::is_none")]
        format: Option<&'a InputFormat>,
        #[serde(skip_serializing_if = "Option::is_none")]
        tools: Option<Vec<Echoed<'a>>>,
    },
}

/// `None` for a tool without type or name, which is refused, and for a namespace without tools, which the model does not
/// see.
pub(super) fn echo(tool: &RawTool) -> Option<Echoed<'_>> {
    if tool.kind.as_deref() == Some("function") {
        return Some(Echoed::Function {
            r#type: "function",
            name: tool.name.as_deref()?,
            description: tool.description.as_deref(),
            parameters: tool.parameters.as_ref(),
            strict: tool.strict,
        });
    }
    let inner = tool.tools.as_deref().unwrap_or_default();
    if tool.kind.as_deref() == Some("namespace") && inner.is_empty() {
        return None;
    }
    as_sent(tool)
}

fn as_sent(tool: &RawTool) -> Option<Echoed<'_>> {
    let kind = tool.kind.as_deref()?;
    let (is_function, is_custom) = (kind == "function", kind == "custom");
    let inner = tool.tools.as_ref().filter(|_| kind == "namespace");
    Some(Echoed::AsSent {
        r#type: kind,
        name: tool.name.as_deref()?,
        description: tool.description.as_deref(),
        parameters: tool.parameters.as_ref().filter(|_| is_function),
        strict: tool.strict.filter(|_| is_function),
        format: tool.format.as_ref().filter(|_| is_custom),
        tools: inner.map(|inner| inner.iter().filter_map(as_sent).collect()),
    })
}
