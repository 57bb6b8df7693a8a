//! Parses the body of `POST /v1/chat/completions` (§2.1).

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny, MapAccess, Visitor},
};

use super::{Message, ResponseFormat, Sampling, Schema, Tool, ToolChoice};
use crate::wire::{
    body, error::GatewayError, integer::Whole, json_text::JsonText, string_list::Modalities,
};

/// A request whose fields have the right types; their values are checked later.
///
/// All other fields of a body (operators' fields, other vendors' extensions) are dropped, so they cannot reach a
/// provider. `null` is treated as absent.
#[derive(Debug, Default)]
pub(crate) struct ChatRequest {
    pub model: String,
    pub messages: Vec<Message>,
    /// Whether system messages stay where they are in the conversation. In chats they are moved to the front.
    pub keeps_system_messages: bool,
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
    /// Distinguishes conversations that begin alike, for hybrids. It is not sent to providers.
    pub prompt_cache_key: Option<JsonText>,
    /// Fields in the body that are not supported and cannot be ignored without changing the meaning; the request is
    /// refused.
    pub refused: Vec<&'static str>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

impl StreamOptions {
    pub(crate) fn include_usage(self) -> bool {
        self.include_usage.unwrap_or(false)
    }
}

/// Whether the gateway offers and runs its built-in tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ToolExecution {
    #[default]
    Execute,
    Passthrough,
}

impl ChatRequest {
    /// Parses a body. The error names the field that is wrong and why.
    pub(crate) fn parse(body: &[u8]) -> Result<Box<Self>, GatewayError> {
        let Parsed(request) = body::parse(body)?;
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
            if let Some((field, reason)) = message.wrong_field() {
                let param = format!("messages[{at}].{field}");
                let message = format!("`messages[{at}]` is not complete: {reason}.");
                return Err(GatewayError::invalid(param, message));
            }
        }
        Ok(request)
    }
}

impl ChatRequest {
    /// Records or clears an unsupported field; of duplicate keys the last one counts.
    fn refuse(&mut self, name: &'static str, is_sent: bool) {
        self.refused.retain(|earlier| *earlier != name);
        if is_sent {
            self.refused.push(name);
        }
    }
}

/// A parsed request. Boxed before it is filled, because it is large and the deserializer would copy it several times.
struct Parsed(Box<ChatRequest>);

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

/// Visitor written by hand, because of duplicate keys the last one must count, as in most JSON parsers: the cost check
/// must see the value that the provider will see.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `model` and `messages`")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Parsed, M::Error> {
        let mut request = Box::<ChatRequest>::default();
        while let Some(Name(name)) = map.next_key()? {
            let sampling = &mut request.sampling;
            match name.as_ref() {
                "model" => request.model = value_or_default(&mut map)?,
                "messages" => request.messages = value_or_default(&mut map)?,
                "stream" => request.stream = value_or_default(&mut map)?,
                "stream_options" => request.stream_options = value_or_default(&mut map)?,
                "max_tokens" => request.max_tokens = integer(&mut map)?,
                "max_completion_tokens" => request.max_completion_tokens = integer(&mut map)?,
                "max_output_tokens" => request.max_output_tokens = integer(&mut map)?,
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
                "tools" => request.tools = value_or_default(&mut map)?,
                "tool_choice" => request.tool_choice = map.next_value()?,
                "parallel_tool_calls" => request.parallel_tool_calls = map.next_value()?,
                "response_format" => request.response_format = map.next_value()?,
                "n" => request.n = integer(&mut map)?,
                // Replaced by the account's ID later; only its type is checked.
                "user" => drop(map.next_value::<Option<JsonText>>()?),
                "reasoning_effort" => request.reasoning_effort = map.next_value()?,
                "thinking" => request.thinking = map.next_value()?,
                "tool_execution" => request.tool_execution = value_or_default(&mut map)?,
                // Dropped if it is not a string, like unknown fields.
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
        Ok(Parsed(request))
    }
}

/// The name of a field; copied only if it contains an escape.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

fn value_or_default<'de, T: Deserialize<'de> + Default, M: MapAccess<'de>>(
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

fn integer<'de, M: MapAccess<'de>>(map: &mut M) -> Result<Option<u64>, M::Error> {
    let number = map.next_value::<Option<Whole>>()?;
    Ok(number.map(|Whole(number)| number))
}
