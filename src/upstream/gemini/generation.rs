//! Translates sampling settings, response format and thinking into `generationConfig`.

use serde::Serialize;

use super::thinking::{self, ThinkingConfig};
use crate::{
    prompt::ChatCall,
    wire::chat::{ResponseFormat, Schema},
};

/// Largest `topK` that Gemini accepts.
const MAX_TOP_K: i64 = 64;
/// Penalties are capped here, because Gemini accepts only values below 2.
const MAX_PENALTY: f64 = 1.99;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_p: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    top_k: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stop_sequences: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    presence_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frequency_penalty: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    candidate_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_logprobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logprobs: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Schema>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
}

pub(crate) fn config<'a>(call: &'a ChatCall, model: &str) -> GenerationConfig<'a> {
    let settings = &call.settings;
    let stops = settings.stop.iter().map(String::as_str);
    let logprobs = settings.logprobs.filter(|wanted| *wanted);
    GenerationConfig {
        max_output_tokens: call.budget.max_tokens,
        temperature: settings.temperature,
        top_p: settings.top_p,
        top_k: settings.top_k.filter(|k| *k > 0).map(|k| k.min(MAX_TOP_K)),
        stop_sequences: stops.filter(|stop| !stop.is_empty()).collect(),
        seed: settings.seed.map(seed),
        presence_penalty: settings.presence_penalty.map(|by| by.min(MAX_PENALTY)),
        frequency_penalty: settings.frequency_penalty.map(|by| by.min(MAX_PENALTY)),
        candidate_count: call.n,
        response_logprobs: logprobs,
        logprobs: logprobs.and(settings.top_logprobs).filter(|top| *top > 0),
        response_mime_type: call.response_format.as_ref().and_then(mime_type),
        response_json_schema: call.response_format.as_ref().and_then(schema),
        thinking_config: thinking::config(call, model),
    }
}

/// The seed as 32 bits, which Gemini accepts; a larger one is reduced deterministically.
fn seed(seed: i64) -> i32 {
    i32::try_from(seed)
        .unwrap_or_else(|_| i32::try_from(seed & i64::from(i32::MAX)).expect("31 bits fit in 32"))
}

fn mime_type(format: &ResponseFormat) -> Option<&'static str> {
    match format {
        ResponseFormat::Text => None,
        ResponseFormat::JsonObject | ResponseFormat::JsonSchema { .. } => Some("application/json"),
    }
}

fn schema(format: &ResponseFormat) -> Option<&Schema> {
    match format {
        ResponseFormat::Text | ResponseFormat::JsonObject => None,
        ResponseFormat::JsonSchema { json_schema } => json_schema.schema.as_ref(),
    }
}
