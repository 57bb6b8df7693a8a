//! The request: a chat completion → a body for `POST /messages`.
//!
//! What the API has no word for (`seed`, penalties, `logit_bias`, log probabilities, `n`) stays
//! behind; what it takes only in some combinations is left out of the others.

use serde::Serialize;

use super::{
    conversation::{Turn, system_prompt, turns},
    schema::acceptable,
    thinking::Thinking,
    tools::{self, OfferedTool, ToolChoice},
};
use crate::{
    prompt::ChatCall,
    wire::{
        chat::{ResponseFormat, Schema, Settings},
        json_text::JsonText,
    },
};

/// What stands in for a format that the API does not have: JSON without a schema.
const ANY_JSON: &str = "Answer with one JSON object and nothing else.";

/// The whole body that goes upstream: these fields and no others, whatever the caller sent.
#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    max_tokens: u32,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<JsonText>,
    messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<OfferedTool<'a>>,
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

pub fn write(call: &ChatCall, model: &str, stream: bool) -> Vec<u8> {
    let thinking = Thinking::of(call);
    let format = call.response_format.as_ref().and_then(schema_format);
    let any_json = call.response_format.is_some() && format.is_none();
    let request = Request {
        model,
        max_tokens: max_tokens(call, &thinking),
        stream,
        system: system_prompt(&call.messages, any_json.then_some(ANY_JSON)),
        messages: turns(&call.messages),
        tools: tools::offered(&call.tools),
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

/// The API wants a number. Where nobody named one it is what was reserved, beside the room that
/// thinking takes out of it.
fn max_tokens(call: &ChatCall, thinking: &Thinking) -> u32 {
    let unnamed = call.budget.reserved.saturating_add(thinking.budget);
    let tokens = call.budget.max_tokens.unwrap_or(unnamed);
    tokens.min(call.route.target.max_output)
}

/// A format by its schema; one without a schema is no format to the API.
fn schema_format(format: &ResponseFormat) -> Option<Format> {
    match format {
        ResponseFormat::Text | ResponseFormat::JsonObject => None,
        ResponseFormat::JsonSchema { json_schema } => {
            let schema = acceptable(json_schema.schema.as_ref()?);
            Some(Format::JsonSchema { schema })
        }
    }
}

fn output_config(format: Option<Format>, effort: Option<&'static str>) -> Option<OutputConfig> {
    let asked = format.is_some() || effort.is_some();
    asked.then_some(OutputConfig { format, effort })
}

/// The sampling parameters in the API's ranges. It takes a temperature or a `top_p` but not both,
/// and none of them from a model that thinks.
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
        temperature: settings.temperature.map(|warmth| warmth.min(1.0)),
        top_p: settings.top_p.filter(|_| settings.temperature.is_none()),
        top_k: settings.top_k.filter(|k| *k > 0),
        stop_sequences,
    }
}
