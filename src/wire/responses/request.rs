//! Parses the body of `POST /v1/responses` and converts it to a chat request.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
    echo::{Echo, echo_value},
    input::{Input, Item},
    text_format::TextSettings,
    tool_choice,
    tool_names::ToolNames,
    tools::{RawTool, ToolSet},
};
use crate::wire::{
    body,
    chat::{ChatRequest, Message, Role, Sampling, Schema, ToolExecution},
    error::GatewayError,
    integer::Whole,
    json_text::JsonText,
    string_list::{Modalities, StopSequences},
};

/// A request whose fields have the right types; their values are checked later.
#[derive(Debug)]
pub(crate) struct ResponsesRequest {
    /// All fields but the conversation.
    pub chat: Box<ChatRequest>,
    /// The first system message. Responses that continue this one do not inherit it.
    pub instructions: Option<JsonText>,
    pub items: Vec<Item>,
    pub previous_response_id: Option<String>,
    pub echo: Echo,
    pub names: ToolNames,
}

/// The body as the caller sent it. `null` is treated as absent; other fields are ignored.
#[derive(Deserialize)]
struct RawRequest {
    model: Option<String>,
    input: Option<Input>,
    instructions: Option<JsonText>,
    max_output_tokens: Option<Whole>,
    max_completion_tokens: Option<Whole>,
    max_tokens: Option<Whole>,
    max_tool_calls: Option<Whole>,
    temperature: Option<Value>,
    top_p: Option<Value>,
    top_logprobs: Option<Whole>,
    tools: Option<Vec<RawTool>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    text: Option<TextSettings>,
    reasoning: Option<Reasoning>,
    metadata: Option<Schema>,
    user: Option<JsonText>,
    safety_identifier: Option<JsonText>,
    prompt_cache_key: Option<JsonText>,
    store: Option<bool>,
    previous_response_id: Option<String>,
    stream: Option<bool>,
    truncation: Option<String>,
    tool_execution: Option<ToolExecution>,
    background: Option<bool>,
    conversation: Option<IgnoredAny>,
    prompt: Option<IgnoredAny>,
    web_search_options: Option<IgnoredAny>,
    n: Option<Whole>,
    stop: Option<StopSequences>,
    modalities: Option<Modalities>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
    summary: Option<Value>,
}

impl ResponsesRequest {
    /// Parses a body. The error names the field that is wrong and why.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, GatewayError> {
        let raw: RawRequest = body::parse(body)?;
        let Some(model) = raw.model.clone().filter(|model| !model.is_empty()) else {
            let message = "`model` is missing; send a model ID.";
            return Err(GatewayError::invalid("model", message));
        };
        raw.check_unsupported()?;
        raw.check_echo_sizes()?;
        let items = raw.input.map(Input::into_items).transpose()?;
        let mut items = items.unwrap_or_default();
        let is_empty = items.iter().all(Item::is_ignored);
        if is_empty && raw.previous_response_id.is_none() {
            let message = "`input` is missing or empty; send a text or at least one item.";
            return Err(GatewayError::invalid("input", message));
        }
        let mut tools = ToolSet::default();
        let echoed_tools = tools.read(raw.tools.unwrap_or_default())?;
        for (at, item) in items.iter_mut().enumerate() {
            if let Some(additional) = item.take_tools() {
                tools.read_additional(at, additional)?;
            }
        }
        let (none_left, mut names) = (tools.all_left_out(), ToolNames::default());
        let offered = tools.into_functions(&mut names);
        let choice = raw.tool_choice.as_ref().map(tool_choice::read);
        let choice = choice.transpose()?;
        let choice = choice.map(|choice| choice.resolve(&names, none_left));
        let choice = choice.transpose()?;
        let (effort, summary) = match raw.reasoning {
            Some(reasoning) => (reasoning.effort, reasoning.summary),
            None => (None, None),
        };
        let default = Echo::default();
        let echo = Echo {
            model: model.clone(),
            instructions: raw.instructions.clone(),
            max_output_tokens: integer(raw.max_output_tokens),
            max_tool_calls: integer(raw.max_tool_calls),
            parallel_tool_calls: raw.parallel_tool_calls.unwrap_or(true),
            previous_response_id: raw.previous_response_id.clone(),
            prompt_cache_key: raw.prompt_cache_key.clone(),
            reasoning: json!({ "effort": effort, "summary": summary }),
            safety_identifier: raw.safety_identifier,
            store: raw.store.unwrap_or(true),
            temperature: if_number(raw.temperature.as_ref()).unwrap_or(default.temperature),
            text: match &raw.text {
                Some(text) => text.echo()?,
                None => default.text,
            },
            tool_choice: raw.tool_choice.unwrap_or(default.tool_choice),
            tools: echoed_tools,
            top_logprobs: integer(raw.top_logprobs).unwrap_or(0),
            top_p: if_number(raw.top_p.as_ref()).unwrap_or(default.top_p),
            truncation: raw.truncation.unwrap_or(default.truncation),
            user: raw.user,
            metadata: match &raw.metadata {
                Some(metadata) => echo_value("metadata", metadata)?,
                None => default.metadata,
            },
        };
        let chat = Box::new(ChatRequest {
            model,
            stream: raw.stream.unwrap_or(false),
            max_output_tokens: integer(raw.max_output_tokens),
            max_completion_tokens: integer(raw.max_completion_tokens),
            max_tokens: integer(raw.max_tokens),
            sampling: Sampling {
                temperature: raw.temperature,
                top_p: raw.top_p,
                ..Sampling::default()
            },
            tools: offered,
            tool_choice: choice,
            parallel_tool_calls: raw.parallel_tool_calls,
            response_format: raw
                .text
                .map(TextSettings::into_format)
                .transpose()?
                .flatten(),
            reasoning_effort: effort,
            // A caller whose tools were left out did not ask for the built-in ones.
            tool_execution: if none_left {
                ToolExecution::Passthrough
            } else {
                raw.tool_execution.unwrap_or_default()
            },
            prompt_cache_key: raw.prompt_cache_key,
            ..ChatRequest::default()
        });
        Ok(Self {
            chat,
            instructions: raw.instructions,
            items,
            previous_response_id: raw.previous_response_id,
            echo,
            names,
        })
    }

    /// The chat request, with `conversation` after the instructions.
    pub(crate) fn into_chat(self, conversation: Vec<Message>) -> Box<ChatRequest> {
        let instructions = self.instructions.into_iter();
        let instructions = instructions.map(|text| Message::text(Role::System, text));
        let mut chat = self.chat;
        chat.messages = instructions.chain(conversation).collect();
        chat
    }
}

fn integer(whole: Option<Whole>) -> Option<u64> {
    whole.map(|Whole(number)| number)
}

/// The value if it is a number. It may be anything, because a model that drops the setting ignores its value.
fn if_number(value: Option<&Value>) -> Option<Value> {
    value.filter(|value| value.is_number()).cloned()
}

impl RawRequest {
    /// Limits the size of fields that no model reads but events repeat: their bytes are not billed to the caller.
    fn check_echo_sizes(&self) -> Result<(), GatewayError> {
        let text = |text: &Option<JsonText>| text.as_ref().map_or(0, |text| text.as_json().len());
        let json = |value: Option<&Value>| value.map_or(0, |value| value.to_string().len());
        let metadata = self.metadata.as_ref().map_or(0, |map| map.as_json().len());
        let summary = self.reasoning.as_ref().and_then(|r| r.summary.as_ref());
        let truncation = self.truncation.as_ref().map_or(0, String::len);
        let sent = [
            ("metadata", metadata, 16_384),
            ("user", text(&self.user), 1_024),
            ("safety_identifier", text(&self.safety_identifier), 1_024),
            ("prompt_cache_key", text(&self.prompt_cache_key), 1_024),
            ("tool_choice", json(self.tool_choice.as_ref()), 65_536),
            ("reasoning.summary", json(summary), 1_024),
            ("truncation", truncation, 1_024),
        ];
        match sent.into_iter().find(|(_, bytes, most)| bytes > most) {
            Some((field, bytes, most)) => {
                let message = format!("`{field}` has {bytes} bytes; at most {most} are accepted.");
                Err(GatewayError::invalid(field, message))
            }
            None => Ok(()),
        }
    }

    /// Refuses unsupported fields that cannot be ignored without changing the meaning.
    fn check_unsupported(&self) -> Result<(), GatewayError> {
        let refused = [
            (
                "background",
                self.background == Some(true),
                "responses are made while the client waits; use `stream`",
            ),
            (
                "conversation",
                self.conversation.is_some(),
                "use `previous_response_id` to go on from a response",
            ),
            (
                "prompt",
                self.prompt.is_some(),
                "stored prompts are not kept here; send `instructions` and `input`",
            ),
            (
                "web_search_options",
                self.web_search_options.is_some(),
                "there is no web search",
            ),
            (
                "n",
                self.n.is_some_and(|Whole(n)| n != 1),
                "a response has one answer; send the request again, or use chat completions",
            ),
            (
                "stop",
                self.stop.is_some_and(StopSequences::is_any),
                "responses take no stop sequences; use chat completions",
            ),
            (
                "modalities",
                self.modalities.is_some_and(Modalities::is_more_than_text),
                "responses are text",
            ),
        ];
        match refused.into_iter().find(|(_, is_sent, _)| *is_sent) {
            Some((field, _, instead)) => {
                let message = format!("`{field}` is not served: {instead}.");
                Err(GatewayError::invalid(field, message))
            }
            None => Ok(()),
        }
    }
}
