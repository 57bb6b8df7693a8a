//! Writes the request body.

use serde::Serialize;

use super::{
    call_cache::CallCache,
    contents::{self, Content},
    generation::{self, GenerationConfig},
    thinking,
};
use crate::{
    prompt::ChatCall,
    wire::chat::{Schema, Tool, ToolChoice},
};

/// The body sent upstream. No other field of the caller's is sent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[ToolDeclarations<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    generation_config: GenerationConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolDeclarations<'a> {
    function_declarations: Vec<FunctionDeclaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FunctionDeclaration<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    /// Used instead of `parameters`, which supports only a part of JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<&'a Schema>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolConfig<'a> {
    function_calling_config: CallingConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CallingConfig<'a> {
    mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed_function_names: Option<[&'a str; 1]>,
}

pub(crate) fn write(call: &ChatCall, model: &str, calls: &CallCache) -> Vec<u8> {
    let needs_signatures = thinking::needs_signatures(model);
    // Gemini refuses functions together with a JSON response format. The caller's own functions are sent anyway,
    // and the caller gets the refusal; built-in tools are dropped.
    let built_in_tools_conflict = call.tools.are_built_in() && call.response_format.is_some();
    let sends_tools = !call.tools.is_empty() && !built_in_tools_conflict;
    let tools = sends_tools.then(|| ToolDeclarations {
        function_declarations: call.tools.iter().map(declaration).collect(),
    });
    let request = Request {
        system_instruction: contents::system(&call.messages),
        contents: contents::contents(&call.messages, calls, needs_signatures),
        tools: tools.map(|tools| [tools]),
        tool_config: call
            .tool_choice
            .as_ref()
            .filter(|_| sends_tools)
            .map(|choice| ToolConfig {
                function_calling_config: calling_config(choice),
            }),
        generation_config: generation::config(call, model),
    };
    serde_json::to_vec(&request).expect("strings, numbers and JSON serialise")
}

fn declaration(tool: &Tool) -> FunctionDeclaration<'_> {
    FunctionDeclaration {
        name: &tool.function.name,
        description: tool.function.description.as_deref(),
        parameters_json_schema: tool.function.parameters.as_ref(),
    }
}

fn calling_config(choice: &ToolChoice) -> CallingConfig<'_> {
    let (mode, allowed) = match choice {
        ToolChoice::None => ("NONE", None),
        ToolChoice::Auto | ToolChoice::Allowed(_) => ("AUTO", None),
        ToolChoice::Required => ("ANY", None),
        ToolChoice::Named(name) => ("ANY", Some([name.as_str()])),
    };
    CallingConfig {
        mode,
        allowed_function_names: allowed,
    }
}
