//! The body of `POST /v1/chat/completions` (SPEC §2.1): its shape, field by field.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, Visitor},
};

use super::{Message, ResponseFormat, Sampling, Schema, Tool, ToolChoice};
use crate::wire::{
    body, error::GatewayError, integer::Whole, json_text::JsonText, words::Modalities,
};

/// A request of the right shape; whether its values are allowed is asked later.
///
/// These are all the fields there are: what else a body holds (operators' fields, other vendors'
/// extensions) is not kept, so it cannot reach a provider. `null` is the same as absent.
#[derive(Debug, Default)]
pub struct ChatRequest {
    pub model: String,
    pub messages: Vec<Message>,
    pub stream: bool,
    pub stream_options: StreamOptions,
    pub max_tokens: Option<u64>,
    pub max_completion_tokens: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub sampling: Sampling,
    pub tools: Vec<Tool>,
    pub tool_choice: Option<ToolChoice>,
    pub parallel_tool_calls: Option<bool>,
    pub response_format: Option<ResponseFormat>,
    pub n: Option<u64>,
    pub reasoning_effort: Option<String>,
    pub thinking: Option<Schema>,
    pub tool_execution: ToolExecution,
    /// Tells conversations apart that begin alike. No provider sees it.
    pub prompt_cache_key: Option<JsonText>,
    /// Fields whose meaning would be lost if they were dropped; naming one is refused.
    pub refused: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

impl StreamOptions {
    pub fn include_usage(self) -> bool {
        self.include_usage.unwrap_or(false)
    }
}

/// Who runs the tools that are not the caller's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolExecution {
    #[default]
    Execute,
    Passthrough,
}

impl ChatRequest {
    /// Reads a body, or says which field is wrong and why.
    pub fn parse(body: &[u8]) -> Result<Box<Self>, GatewayError> {
        let Read(request) = body::parse(body)?;
        if request.model.is_empty() {
            return Err(GatewayError::invalid(
                "model",
                "`model` is missing; send a model ID.",
            ));
        }
        if request.messages.is_empty() {
            let message = "`messages` is missing or empty; send at least one message.";
            return Err(GatewayError::invalid("messages", message));
        }
        for (at, message) in request.messages.iter().enumerate() {
            if let Some((field, reason)) = message.lacks() {
                let param = format!("messages[{at}].{field}");
                let message = format!("`messages[{at}]` is not complete: {reason}.");
                return Err(GatewayError::invalid(param, message));
            }
        }
        Ok(request)
    }
}

impl ChatRequest {
    /// Of two equal keys the last one counts, here too.
    fn refuse(&mut self, name: &'static str, is_sent: bool) {
        self.refused.retain(|earlier| *earlier != name);
        if is_sent {
            self.refused.push(name);
        }
    }
}

/// Filled where it stays: it is large, and would be copied from hand to hand on its way out of the reader.
struct Read(Box<ChatRequest>);

impl<'de> Deserialize<'de> for Read {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

/// Reads the fields by hand for one reason: of two equal keys the last one counts, as in most
/// JSON readers, and the price check must see what the provider will see.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Read;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `model` and `messages`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Read, M::Error> {
        let mut request = Box::<ChatRequest>::default();
        while let Some(Name(name)) = map.next_key()? {
            let sampling = &mut request.sampling;
            match name.as_ref() {
                "model" => request.model = absent_or(&mut map)?,
                "messages" => request.messages = absent_or(&mut map)?,
                "stream" => request.stream = absent_or(&mut map)?,
                "stream_options" => request.stream_options = absent_or(&mut map)?,
                "max_tokens" => request.max_tokens = whole(&mut map)?,
                "max_completion_tokens" => request.max_completion_tokens = whole(&mut map)?,
                "max_output_tokens" => request.max_output_tokens = whole(&mut map)?,
                "temperature" => sampling.temperature = map.next_value()?,
                "top_p" => sampling.top_p = map.next_value()?,
                "top_k" => sampling.top_k = map.next_value()?,
                "seed" => sampling.seed = map.next_value()?,
                "frequency_penalty" => sampling.frequency_penalty = map.next_value()?,
                "presence_penalty" => sampling.presence_penalty = map.next_value()?,
                "logit_bias" => sampling.logit_bias = map.next_value()?,
                "logprobs" => sampling.logprobs = map.next_value()?,
                "top_logprobs" => sampling.top_logprobs = map.next_value()?,
                "stop" => sampling.stop = map.next_value()?,
                "tools" => request.tools = absent_or(&mut map)?,
                "tool_choice" => request.tool_choice = map.next_value()?,
                "parallel_tool_calls" => request.parallel_tool_calls = map.next_value()?,
                "response_format" => request.response_format = map.next_value()?,
                "n" => request.n = whole(&mut map)?,
                // Overwritten with the account's ID; read only for its type.
                "user" => drop(map.next_value::<Option<JsonText>>()?),
                "reasoning_effort" => request.reasoning_effort = map.next_value()?,
                "thinking" => request.thinking = map.next_value()?,
                "tool_execution" => request.tool_execution = absent_or(&mut map)?,
                // Of another type it is dropped, as what nobody here knows is.
                "prompt_cache_key" => {
                    request.prompt_cache_key = JsonText::from_raw(map.next_value()?);
                }
                "web_search_options" => refuse(&mut request, &mut map, "web_search_options")?,
                "functions" => refuse(&mut request, &mut map, "functions")?,
                "function_call" => refuse(&mut request, &mut map, "function_call")?,
                "audio" => refuse(&mut request, &mut map, "audio")?,
                "modalities" => {
                    let wanted = map.next_value::<Option<Modalities>>()?;
                    request.refuse(
                        "modalities",
                        wanted.is_some_and(Modalities::is_more_than_text),
                    );
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Read(request))
    }
}

/// The name of a field: a copy only where it is escaped.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

fn absent_or<'de, T: Deserialize<'de> + Default, M: MapAccess<'de>>(
    map: &mut M,
) -> Result<T, M::Error> {
    Ok(map.next_value::<Option<T>>()?.unwrap_or_default())
}

fn refuse<'de, M: MapAccess<'de>>(
    request: &mut ChatRequest,
    map: &mut M,
    name: &'static str,
) -> Result<(), M::Error> {
    let is_sent = map.next_value::<Option<IgnoredAny>>()?.is_some();
    request.refuse(name, is_sent);
    Ok(())
}

fn whole<'de, M: MapAccess<'de>>(map: &mut M) -> Result<Option<u64>, M::Error> {
    let number = map.next_value::<Option<Whole>>()?;
    Ok(number.map(|Whole(number)| number))
}
