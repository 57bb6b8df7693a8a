//! The body of `POST /v1/responses`: its shape, and the chat request it is.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, json};

use super::{
    echo::Echo,
    input::{Input, Item},
    tools::{self, FlatTool, TextSettings},
};
use crate::wire::{
    body,
    chat::{ChatRequest, Message, Role, Sampling, Schema, ToolExecution},
    error::GatewayError,
    integer::Whole,
    json_text::JsonText,
    words::{Modalities, StopSequences},
};

/// A request of the right shape; whether its values are allowed is asked later.
#[derive(Debug)]
pub struct ResponsesRequest {
    /// All of it but the conversation.
    pub chat: Box<ChatRequest>,
    /// Said before anything else, and not inherited by the responses that follow.
    pub instructions: Option<JsonText>,
    pub items: Vec<Item>,
    pub previous_response_id: Option<String>,
    pub echo: Echo,
}

/// As it is written. `null` is the same as absent; what is not named here is passed over.
#[derive(Deserialize)]
struct Written {
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
    tools: Option<Vec<FlatTool>>,
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
    /// Reads a body, or says which field is wrong and why.
    pub fn parse(body: &[u8]) -> Result<Self, GatewayError> {
        let written: Written = body::parse(body)?;
        let Some(model) = written.model.clone().filter(|model| !model.is_empty()) else {
            let message = "`model` is missing; send a model ID.";
            return Err(GatewayError::invalid("model", message));
        };
        written.refuse_what_is_not_served()?;
        written.refuse_what_is_too_long()?;
        let items = written.input.map(Input::into_items).transpose()?;
        let items = items.unwrap_or_default();
        let is_silent = items.iter().all(Item::says_nothing);
        if is_silent && written.previous_response_id.is_none() {
            let message = "`input` is missing or empty; send a text or at least one item.";
            return Err(GatewayError::invalid("input", message));
        }
        let choice = written
            .tool_choice
            .as_ref()
            .map(tools::choice)
            .transpose()?;
        let offered = written.tools.unwrap_or_default().into_iter().enumerate();
        let offered = offered.map(|(at, tool)| tool.into_tool(at));
        let offered: Vec<_> = offered.collect::<Result<_, _>>()?;
        let (effort, summary) = match written.reasoning {
            Some(reasoning) => (reasoning.effort, reasoning.summary),
            None => (None, None),
        };
        let default = Echo::default();
        let echo = Echo {
            model: model.clone(),
            instructions: written.instructions.clone(),
            max_output_tokens: number_of(written.max_output_tokens),
            max_tool_calls: number_of(written.max_tool_calls),
            parallel_tool_calls: written.parallel_tool_calls.unwrap_or(true),
            previous_response_id: written.previous_response_id.clone(),
            prompt_cache_key: written.prompt_cache_key.clone(),
            reasoning: json!({ "effort": effort, "summary": summary }),
            safety_identifier: written.safety_identifier,
            store: written.store.unwrap_or(true),
            temperature: number(written.temperature.as_ref()).unwrap_or(default.temperature),
            text: match &written.text {
                Some(text) => text.shown()?,
                None => default.text,
            },
            tool_choice: written.tool_choice.unwrap_or(default.tool_choice),
            tools: tools::shown(&offered)?,
            top_logprobs: number_of(written.top_logprobs).unwrap_or(0),
            top_p: number(written.top_p.as_ref()).unwrap_or(default.top_p),
            truncation: written.truncation.unwrap_or(default.truncation),
            user: written.user,
            metadata: match &written.metadata {
                Some(metadata) => tools::repeated("metadata", metadata)?,
                None => default.metadata,
            },
        };
        let chat = Box::new(ChatRequest {
            model,
            stream: written.stream.unwrap_or(false),
            max_output_tokens: number_of(written.max_output_tokens),
            max_completion_tokens: number_of(written.max_completion_tokens),
            max_tokens: number_of(written.max_tokens),
            sampling: Sampling {
                temperature: written.temperature,
                top_p: written.top_p,
                ..Sampling::default()
            },
            tools: offered,
            tool_choice: choice,
            parallel_tool_calls: written.parallel_tool_calls,
            response_format: written
                .text
                .map(TextSettings::into_format)
                .transpose()?
                .flatten(),
            reasoning_effort: effort,
            tool_execution: written.tool_execution.unwrap_or_default(),
            prompt_cache_key: written.prompt_cache_key,
            ..ChatRequest::default()
        });
        Ok(Self {
            chat,
            instructions: written.instructions,
            items,
            previous_response_id: written.previous_response_id,
            echo,
        })
    }

    /// The chat request, with this conversation behind the instructions.
    pub fn into_chat(self, conversation: Vec<Message>) -> Box<ChatRequest> {
        let instructions = self.instructions.into_iter();
        let instructions = instructions.map(|text| Message::saying(Role::System, text));
        let mut chat = self.chat;
        chat.messages = instructions.chain(conversation).collect();
        chat
    }
}

fn number_of(whole: Option<Whole>) -> Option<u64> {
    whole.map(|Whole(number)| number)
}

/// A model that drops a setting never looks at its value, which may then be anything.
fn number(value: Option<&Value>) -> Option<Value> {
    value.filter(|value| value.is_number()).cloned()
}

impl Written {
    /// What is repeated in each event though no model reads it has a bound, or it would cost us and
    /// nobody else.
    fn refuse_what_is_too_long(&self) -> Result<(), GatewayError> {
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
                let message = format!("`{field}` has {bytes} bytes; at most {most} are taken.");
                Err(GatewayError::invalid(field, message))
            }
            None => Ok(()),
        }
    }

    /// What would mean something else if it were dropped.
    fn refuse_what_is_not_served(&self) -> Result<(), GatewayError> {
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
