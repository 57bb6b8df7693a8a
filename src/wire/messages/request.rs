//! Parses the body of `POST /v1/messages` and `POST /v1/messages/count_tokens`, and converts it to a chat request.

use serde::{
    Deserialize,
    de::{Deserializer, IgnoredAny},
};

use super::{
    blocks::{Notes, wrong},
    conversation::{RawMessage, conversation, system_prompt},
    fields::Content,
    native::Extras,
    settings::{self, RawFormat, RawOutput, RawThinking},
    tools::{self, RawChoice, RawTool},
};
use crate::wire::{
    body,
    chat::{ChatRequest, MAX_STOPS, ToolExecution},
    error::GatewayError,
    integer::Whole,
    json_text::JsonText,
};

/// A request whose fields have the right types; their values are checked by [`MessagesRequest::into_chat`], once the
/// model is known.
pub(crate) struct MessagesRequest {
    /// The model and the sampling fields; the rest follows.
    pub chat: Box<ChatRequest>,
    raw: RawRequest,
    purpose: Purpose,
    /// Bytes of the stop sequences beyond those that a chat can have; `None` if there are no more.
    further_stops: Option<usize>,
}

/// A request as a chat request.
#[derive(Debug)]
pub(crate) struct Converted {
    pub chat: Box<ChatRequest>,
    /// Whether the caller asked for edits of the context. None is made, and the response says so.
    pub wants_edits: bool,
    /// What only a provider of this API can read.
    pub extras: Extras,
}

/// What a body is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A message is to be written, of at most `max_tokens`.
    Answer,
    /// Its tokens are to be counted.
    Count,
}

/// The body as the caller sent it. `null` is treated as absent; other fields are dropped.
#[derive(Deserialize)]
struct RawRequest {
    model: Option<String>,
    max_tokens: Option<Whole>,
    #[serde(default, deserialize_with = "or_default")]
    messages: Vec<RawMessage>,
    system: Option<Content>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    top_k: Option<Whole>,
    stop_sequences: Option<Vec<String>>,
    stream: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    tools: Vec<RawTool>,
    tool_choice: Option<RawChoice>,
    thinking: Option<RawThinking>,
    output_config: Option<RawOutput>,
    output_format: Option<RawFormat>,
    #[serde(rename = "metadata")]
    _metadata: Option<Metadata>,
    context_management: Option<ContextManagement>,
    speed: Option<String>,
    // Fields that change the meaning and are not served.
    thread: Option<IgnoredAny>,
    safeguards: Option<IgnoredAny>,
    mcp_servers: Option<Vec<IgnoredAny>>,
    container: Option<IgnoredAny>,
    inference_geo: Option<IgnoredAny>,
    fallbacks: Option<IgnoredAny>,
    compaction: Option<IgnoredAny>,
}

/// The value, or the default for `null`.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Only its type is checked: the account's ID is sent to providers in place of the user's.
#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "user_id")]
    _user_id: Option<JsonText>,
}

#[derive(Deserialize)]
struct ContextManagement {
    #[serde(rename = "edits")]
    _edits: Option<Vec<IgnoredAny>>,
}

impl MessagesRequest {
    /// Parses a body. The error names the field that is wrong and why.
    pub(crate) fn parse(body: &[u8], purpose: Purpose) -> Result<Self, GatewayError> {
        let mut raw: RawRequest = body::parse_dotted(body)?;
        let model = raw.model.take().filter(|model| !model.is_empty());
        let model = model.ok_or_else(|| wrong("model", "it is missing; send a model ID."))?;
        if raw.max_tokens.is_none() && purpose == Purpose::Answer {
            let reason = "it is missing; send the most tokens that the answer may have.";
            return Err(wrong("max_tokens", reason));
        }
        if raw.messages.is_empty() {
            let reason = "it is missing or empty; send at least one message.";
            return Err(wrong("messages", reason));
        }
        let stop = raw.stop_sequences.take().unwrap_or_default();
        let further_stops = stop.get(MAX_STOPS..).filter(|more| !more.is_empty());
        let further_stops = further_stops.map(|more| more.iter().map(String::len).sum());
        let chat = Box::new(ChatRequest {
            model,
            sampling: settings::sampling(raw.temperature, raw.top_p, raw.top_k, stop)?,
            ..ChatRequest::default()
        });
        Ok(Self {
            chat,
            raw,
            purpose,
            further_stops,
        })
    }

    /// Checks the values and converts the request.
    ///
    /// With `takes_native`, a provider of this API can get the request as it is, so content that a chat cannot have is
    /// not refused.
    pub(crate) fn into_chat(self, takes_native: bool) -> Result<Converted, GatewayError> {
        let Self {
            mut chat,
            raw,
            purpose,
            further_stops,
        } = self;
        raw.check_unsupported()?;
        settings::check_ranges(raw.temperature, raw.top_p)?;
        let max_tokens = raw.max_tokens.map(|Whole(tokens)| tokens);
        let system = raw.system.map(system_prompt).transpose()?;
        let mut notes = Notes {
            takes_native,
            ..Notes::default()
        };
        if let Some(bytes) = further_stops {
            notes.note_native(bytes);
        }
        // Such a request only fills the provider's cache.
        if takes_native && max_tokens == Some(0) {
            notes.extras.needs_native = true;
            notes.extras.is_warming = true;
        }
        chat.messages = conversation(system, raw.messages, &mut notes)?;
        chat.keeps_system_messages = true;
        // A caller with tools of its own gets no built-in ones, even if all of them are deferred.
        let has_tools = !raw.tools.is_empty();
        let offer = tools::offer(raw.tools, raw.tool_choice, &mut notes)?;
        chat.tools = offer.tools;
        chat.tool_choice = offer.choice;
        chat.parallel_tool_calls = offer.parallel;
        let (thinking, output) = (raw.thinking, raw.output_config);
        let output = settings::output(thinking, output, raw.output_format, max_tokens)?;
        chat.response_format = output.format;
        chat.reasoning_effort = output.effort;
        if has_tools || notes.extras.needs_native {
            chat.tool_execution = ToolExecution::Passthrough;
        }
        if purpose == Purpose::Answer {
            chat.max_tokens = max_tokens;
            chat.stream = raw.stream.unwrap_or(false);
        }
        Ok(Converted {
            chat,
            wants_edits: raw.context_management.is_some(),
            extras: notes.extras,
        })
    }
}

impl RawRequest {
    /// Refuses fields that are not served and whose meaning would be lost if they were dropped.
    fn check_unsupported(&self) -> Result<(), GatewayError> {
        if self.thread.is_some() {
            return Err(GatewayError::ThreadUnsupported);
        }
        let servers = self.mcp_servers.as_ref();
        let is_fast = self.speed.as_ref().is_some_and(|speed| speed != "standard");
        let unsupported = [
            ("safeguards", self.safeguards.is_some()),
            ("mcp_servers", servers.is_some_and(|all| !all.is_empty())),
            ("container", self.container.is_some()),
            ("speed", is_fast),
            ("inference_geo", self.inference_geo.is_some()),
            ("fallbacks", self.fallbacks.is_some()),
            ("compaction", self.compaction.is_some()),
        ];
        match unsupported.into_iter().find(|(_, is_sent)| *is_sent) {
            Some(("speed", _)) => Err(wrong("speed", "only `standard` is served.")),
            Some((name, _)) => Err(wrong(name, "it is not supported here; leave it out.")),
            None => Ok(()),
        }
    }
}
