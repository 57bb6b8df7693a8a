//! The body of a request: these fields and no others, whatever the caller sent.

use serde::Serialize;

use super::{
    calls::Calls,
    contents::{self, Content},
    generation::{self, GenerationConfig},
    thinking,
};
use crate::{
    prompt::ChatCall,
    wire::chat::{Schema, Tool, ToolChoice},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[Tools<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_config: Option<ToolConfig<'a>>,
    generation_config: GenerationConfig<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    /// Not `parameters`, which knows a part of JSON Schema only.
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

pub fn write(call: &ChatCall, model: &str, calls: &Calls) -> Vec<u8> {
    let sign = thinking::wants_signatures(model);
    // Gemini refuses functions beside a JSON answer. The caller's own are theirs to be refused; ours
    // are not worth that.
    let ours_in_the_way = call.tools.are_built_in() && call.response_format.is_some();
    let offers = !call.tools.is_empty() && !ours_in_the_way;
    let tools = offers.then(|| Tools {
        function_declarations: call.tools.iter().map(declaration).collect(),
    });
    let request = Request {
        system_instruction: contents::system(&call.messages),
        contents: contents::contents(&call.messages, calls, sign),
        tools: tools.map(|tools| [tools]),
        tool_config: call
            .tool_choice
            .as_ref()
            .filter(|_| offers)
            .map(|choice| ToolConfig {
                function_calling_config: calling_config(choice),
            }),
        generation_config: generation::config(call, model),
    };
    serde_json::to_vec(&request).expect("strings, numbers and JSON serialise")
}

fn declaration(tool: &Tool) -> Declaration<'_> {
    Declaration {
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
