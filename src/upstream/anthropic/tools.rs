//! Translates tool definitions and the tool choice.

use std::borrow::Cow;

use serde::{Deserialize, Serialize, de::IgnoredAny};
use serde_json::{Map, Value};

use crate::wire::chat::{self, Schema, Tool};

#[derive(Serialize)]
pub(crate) struct ToolDefinition<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: Cow<'a, Schema>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum ToolChoice<'a> {
    None,
    Auto {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        disable_parallel_tool_use: bool,
    },
    Any {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        disable_parallel_tool_use: bool,
    },
    Tool {
        name: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        disable_parallel_tool_use: bool,
    },
}

pub(crate) fn definitions(tools: &[Tool]) -> Vec<ToolDefinition<'_>> {
    let tools = tools.iter().map(|tool| ToolDefinition {
        name: &tool.function.name,
        description: tool.function.description.as_deref().filter(is_not_blank),
        input_schema: input_schema(tool.function.parameters.as_ref()),
    });
    tools.collect()
}

/// The tool choice, which in this API also says whether parallel calls are allowed.
pub(crate) fn choice(
    choice: Option<&chat::ToolChoice>,
    parallel: Option<bool>,
) -> Option<ToolChoice<'_>> {
    let disable_parallel_tool_use = parallel == Some(false);
    Some(match choice {
        None if !disable_parallel_tool_use => return None,
        Some(chat::ToolChoice::None) => ToolChoice::None,
        None | Some(chat::ToolChoice::Auto | chat::ToolChoice::Allowed(_)) => ToolChoice::Auto {
            disable_parallel_tool_use,
        },
        Some(chat::ToolChoice::Required) => ToolChoice::Any {
            disable_parallel_tool_use,
        },
        Some(chat::ToolChoice::Named(name)) => ToolChoice::Tool {
            name,
            disable_parallel_tool_use,
        },
    })
}

fn is_not_blank(text: &&str) -> bool {
    !text.trim().is_empty()
}

/// The parameters' schema, with `type: object` added if it has no type: the API requires one.
fn input_schema(parameters: Option<&Schema>) -> Cow<'_, Schema> {
    #[derive(Deserialize)]
    struct Typed {
        #[serde(rename = "type")]
        kind: Option<IgnoredAny>,
    }
    let json = parameters.map_or("{}", Schema::as_json);
    let typed = serde_json::from_str::<Typed>(json).is_ok_and(|schema| schema.kind.is_some());
    match parameters {
        Some(schema) if typed => Cow::Borrowed(schema),
        _ => Cow::Owned(with_object_type(json)),
    }
}

fn with_object_type(json: &str) -> Schema {
    let mut schema: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
    schema.insert("type".into(), "object".into());
    Schema::new(&schema)
}
