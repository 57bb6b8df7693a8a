//! A finished response (§2.5), its usage and its bill.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    base::{money::NanoUsd, tokens::TokenCount},
    catalog::{Billable, Prices},
    wire::{json_text::JsonText, json_writer::JsonWriter, messages::NativeMessage},
};

/// Approximate sizes of the parts of a response without their texts, for allocating the buffer.
const HEAD_BYTES: usize = 160;
const CHOICE_BYTES: usize = 128;
const USAGE_BYTES: usize = 200;

/// Why a choice ended. A closed set: adapters translate other reasons of a provider or treat them as failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FinishReason {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
}

impl FinishReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// A call of a function, in a caller's history or in a model's response.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ToolCall {
    pub id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    pub function: CalledFunction,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CalledFunction {
    pub name: String,
    /// JSON text in a string, never an object.
    pub arguments: JsonText,
}

impl ToolCall {
    pub(crate) fn new(id: String, name: String, arguments: JsonText) -> Self {
        Self {
            id,
            kind: "function",
            function: CalledFunction { name, arguments },
        }
    }

    pub(crate) fn count(&self, count: &mut TokenCount) {
        let Self {
            id,
            kind: _,
            function: CalledFunction { name, arguments },
        } = self;
        count.text(id);
        count.text(name);
        count.text(&arguments.text());
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Written {
            id: String,
            #[serde(rename = "type")]
            kind: Option<String>,
            function: CalledFunction,
        }
        let Written { id, kind, function } = Written::deserialize(deserializer)?;
        match kind.as_deref() {
            None | Some("function") => Ok(Self {
                id,
                kind: "function",
                function,
            }),
            Some(_) => Err(serde::de::Error::custom("`type` must be `function`")),
        }
    }
}

/// Token counts that the provider reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: u32,
    /// Part of `prompt`: read from a cache.
    pub cached: u32,
    /// Part of `prompt`: written to a cache.
    pub cache_write: u32,
    /// Part of `cache_write`: kept in the cache for an hour.
    pub cache_write_1h: u32,
    pub completion: u32,
    /// Part of `completion`: reasoning that the caller does not see.
    pub reasoning: u32,
}

impl Usage {
    pub fn total(self) -> u64 {
        u64::from(self.prompt) + u64::from(self.completion)
    }

    /// The sum of two usages; counts saturate.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            cached: self.cached.saturating_add(other.cached),
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cache_write_1h: self.cache_write_1h.saturating_add(other.cache_write_1h),
            completion: self.completion.saturating_add(other.completion),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    /// The tokens by kind of price. Reasoning is part of the completion and has its price.
    pub(crate) fn billable(self) -> Billable {
        let fresh = self.prompt.saturating_sub(self.cached);
        Billable {
            input: fresh.saturating_sub(self.cache_write).into(),
            cached_input: self.cached.into(),
            cache_write: self.cache_write.saturating_sub(self.cache_write_1h).into(),
            cache_write_1h: self.cache_write_1h.into(),
            output: self.completion.into(),
        }
    }

    /// The cost of a response with this usage.
    pub(crate) fn cost(self, prices: &Prices) -> NanoUsd {
        prices.cost(self.billable())
    }
}

/// What is charged for a response: its usage and the cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bill {
    pub usage: Usage,
    pub cost: NanoUsd,
}

impl Bill {
    /// The `usage` object. `show_cached` is for models that advertise prompt caching.
    pub(crate) fn to_json(self, show_cached: bool) -> String {
        let mut json = JsonWriter::with_capacity(USAGE_BYTES);
        self.write(show_cached, &mut json);
        json.into_string()
    }

    fn write(self, show_cached: bool, json: &mut JsonWriter) {
        let Self { usage, cost } = self;
        json.raw("{\"prompt_tokens\":").number(usage.prompt);
        json.raw(",\"completion_tokens\":").number(usage.completion);
        json.raw(",\"total_tokens\":").number(usage.total());
        json.raw(",\"cost\":\"").raw(&cost.to_string()).raw("\"");
        if show_cached || usage.cache_write > 0 {
            json.raw(",\"prompt_tokens_details\":{\"cached_tokens\":");
            json.number(usage.cached);
            json.raw(",\"cache_write_tokens\":");
            json.number(usage.cache_write).raw("}");
        }
        if usage.reasoning > 0 {
            json.raw(",\"completion_tokens_details\":{\"reasoning_tokens\":");
            json.number(usage.reasoning).raw("}");
        }
        json.raw("}");
    }
}

/// A provider's response in the gateway's own form.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub choices: Vec<Choice>,
    pub usage: Option<Usage>,
    /// The message as it came, if the caller speaks the provider's API.
    pub native: Option<NativeMessage>,
}

#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub index: u32,
    pub content: Option<JsonText>,
    pub tool_calls: Vec<ToolCall>,
    pub finish: FinishReason,
    pub logprobs: Option<Box<RawValue>>,
}

impl Answer {
    /// The body of a response that is not streamed, with the gateway's ID and the ID of the requested model. `bill` is
    /// `None` if the provider reported no usage.
    pub(crate) fn to_json(
        &self,
        id: &str,
        created: u64,
        model: &str,
        bill: Option<Bill>,
        show_cached: bool,
    ) -> Vec<u8> {
        let choices = self
            .choices
            .iter()
            .map(Choice::estimated_bytes)
            .sum::<usize>();
        let mut json = JsonWriter::with_capacity(HEAD_BYTES + choices + USAGE_BYTES);
        json.raw("{\"id\":").string(id);
        json.raw(",\"object\":\"chat.completion\",\"created\":")
            .number(created);
        json.raw(",\"model\":").string(model);
        json.raw(",\"choices\":");
        json.list(&self.choices, Choice::write);
        if let Some(bill) = bill {
            json.raw(",\"usage\":");
            bill.write(show_cached, &mut json);
        }
        json.raw("}");
        json.into_bytes()
    }
}

impl Choice {
    fn estimated_bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |text| text.as_json().len());
        let logprobs = self.logprobs.as_ref().map_or(0, |json| json.get().len());
        content + logprobs + CHOICE_BYTES
    }

    fn write(&self, json: &mut JsonWriter) {
        json.raw("{\"index\":").number(self.index);
        let content = self.content.as_ref().map_or("null", JsonText::as_json);
        json.raw(",\"message\":{\"role\":\"assistant\",\"content\":")
            .raw(content);
        if !self.tool_calls.is_empty() {
            json.raw(",\"tool_calls\":").value(&self.tool_calls);
        }
        json.raw("}");
        if let Some(logprobs) = &self.logprobs {
            json.raw(",\"logprobs\":").raw(logprobs.get());
        }
        json.raw(",\"finish_reason\":\"")
            .raw(self.finish.as_str())
            .raw("\"}");
    }
}
