//! Translates a chat completion request into a body for `POST /messages`.
//!
//! Parameters that the API does not have (`seed`, penalties, `logit_bias`, log probabilities, `n`) are dropped, as are
//! those that it refuses in combination with others.

use serde::Serialize;

use super::{
    conversation::{Turn, system_prompt, turns},
    schema::supported,
    thinking::Thinking,
    tools::{self, ToolChoice, ToolDefinition},
};
use crate::{
    prompt::ChatCall,
    wire::{
        chat::{ResponseFormat, Schema, Settings},
        json_text::JsonText,
        messages::Naming,
    },
};

/// Instruction added to the system prompt for JSON without a schema, which the API has no format for.
const JSON_INSTRUCTION: &str = "Answer with one JSON object and nothing else.";

/// The body sent upstream. No other field of the caller's is sent.
#[derive(Serialize)]
struct Request<'a> {
    #[serde(flatten)]
    naming: Naming<'a>,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<JsonText>,
    messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<ToolDefinition<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_choice: Option<ToolChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<&'a Schema>,
    #[serde(flatten)]
    sampling: Sampling<'a>,
    metadata: Metadata<'a>,
}

#[derive(Serialize)]
struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    JsonSchema { schema: Schema },
}

#[derive(Default, Serialize)]
struct Sampling<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_sequences: Vec<&'a str>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    user_id: &'a str,
}

pub(crate) fn write(call: &ChatCall, naming: Naming<'_>, stream: bool) -> Vec<u8> {
    let thinking = Thinking::of(call);
    let format = call.response_format.as_ref().and_then(schema_format);
    let any_json = call.response_format.is_some() && format.is_none();
    let request = Request {
        naming,
        max_tokens: max_tokens(call, &thinking),
        stream,
        system: system_prompt(&call.messages, any_json.then_some(JSON_INSTRUCTION)),
        messages: turns(&call.messages),
        tools: tools::definitions(&call.tools),
        tool_choice: tools::choice(call.tool_choice.as_ref(), call.parallel_tool_calls),
        output_config: output_config(format, call.reasoning_effort),
        thinking: thinking.config,
        sampling: sampling(&call.settings, &thinking),
        metadata: Metadata {
            user_id: &call.user,
        },
    };
    serde_json::to_vec(&request).expect("strings, numbers and JSON serialise")
}

/// The token limit, which the API requires. By default it is the output that was reserved plus the thinking budget,
/// because thinking counts against it.
fn max_tokens(call: &ChatCall, thinking: &Thinking) -> u32 {
    let default = call.budget.reserved.saturating_add(thinking.budget);
    let tokens = call.budget.max_tokens.unwrap_or(default);
    tokens.min(call.route.target.max_output)
}

/// The output format, if there is a schema: the API has no format without one.
fn schema_format(format: &ResponseFormat) -> Option<Format> {
    match format {
        ResponseFormat::Text | ResponseFormat::JsonObject => None,
        ResponseFormat::JsonSchema { json_schema } => {
            let schema = supported(json_schema.schema.as_ref()?);
            Some(Format::JsonSchema { schema })
        }
    }
}

fn output_config(format: Option<Format>, effort: Option<&'static str>) -> Option<OutputConfig> {
    let is_set = format.is_some() || effort.is_some();
    is_set.then_some(OutputConfig { format, effort })
}

/// The sampling parameters within the API's ranges. The API accepts a temperature or a `top_p` but not both, and
/// neither together with thinking.
fn sampling<'a>(settings: &'a Settings, thinking: &Thinking) -> Sampling<'a> {
    let stop = settings.stop.iter().map(String::as_str);
    let stop_sequences = stop.filter(|text| !text.trim().is_empty()).collect();
    if thinking.is_on {
        return Sampling {
            stop_sequences,
            ..Sampling::default()
        };
    }
    Sampling {
        temperature: settings.temperature.map(|temperature| temperature.min(1.0)),
        top_p: settings.top_p.filter(|_| settings.temperature.is_none()),
        top_k: settings.top_k.filter(|k| *k > 0),
        stop_sequences,
    }
}
