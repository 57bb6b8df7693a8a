//! A finished answer (SPEC §2.5).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{catalog::Prices, money::NanoUsd, wire::json_text::JsonText};

/// Why a choice ended. A closed set: a provider's other words are translated or are failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    Stop,
    Length,
    ToolCalls,
    ContentFilter,
}

impl FinishReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::ToolCalls => "tool_calls",
            Self::ContentFilter => "content_filter",
        }
    }
}

/// A call of a function, in a caller's history and in a model's answer.
#[derive(Clone, Debug, Serialize)]
pub struct ToolCall {
    pub id: String,
    #[serde(rename = "type")]
    kind: &'static str,
    pub function: CalledFunction,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CalledFunction {
    pub name: String,
    /// JSON in a string, never an object.
    pub arguments: JsonText,
}

impl ToolCall {
    pub fn new(id: String, name: String, arguments: JsonText) -> Self {
        Self {
            id,
            kind: "function",
            function: CalledFunction { name, arguments },
        }
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

/// Tokens as the provider counted them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt: u32,
    /// Those of the prompt that came from a cache.
    pub cached: u32,
    pub completion: u32,
    /// Those of the completion that the caller does not see.
    pub reasoning: u32,
}

impl Usage {
    pub fn total(self) -> u64 {
        u64::from(self.prompt) + u64::from(self.completion)
    }

    /// Of two answers together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            cached: self.cached.saturating_add(other.cached),
            completion: self.completion.saturating_add(other.completion),
            reasoning: self.reasoning.saturating_add(other.reasoning),
        }
    }

    /// What these counts cost. Reasoning is part of the completion and costs what it costs.
    pub fn cost(self, prices: &Prices) -> NanoUsd {
        let fresh = self.prompt.saturating_sub(self.cached);
        prices.cost(fresh.into(), self.cached.into(), self.completion.into())
    }

    /// The `usage` object. `show_cached` where the model advertises prompt caching.
    pub fn to_json(self, show_cached: bool) -> String {
        #[derive(Serialize)]
        struct Wire {
            prompt_tokens: u32,
            completion_tokens: u32,
            total_tokens: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            prompt_tokens_details: Option<PromptDetails>,
            #[serde(skip_serializing_if = "Option::is_none")]
            completion_tokens_details: Option<CompletionDetails>,
        }
        #[derive(Serialize)]
        struct PromptDetails {
            cached_tokens: u32,
        }
        #[derive(Serialize)]
        struct CompletionDetails {
            reasoning_tokens: u32,
        }
        let wire = Wire {
            prompt_tokens: self.prompt,
            completion_tokens: self.completion,
            total_tokens: self.total(),
            prompt_tokens_details: show_cached.then_some(PromptDetails {
                cached_tokens: self.cached,
            }),
            completion_tokens_details: (self.reasoning > 0).then_some(CompletionDetails {
                reasoning_tokens: self.reasoning,
            }),
        };
        serde_json::to_string(&wire).expect("numbers serialise")
    }
}

/// What a provider answered, before it is dressed for the caller.
#[derive(Clone, Debug)]
pub struct Answer {
    pub choices: Vec<Choice>,
    pub usage: Option<Usage>,
}

#[derive(Clone, Debug)]
pub struct Choice {
    pub index: u32,
    pub content: Option<JsonText>,
    pub tool_calls: Vec<ToolCall>,
    pub finish: FinishReason,
    pub logprobs: Option<Box<RawValue>>,
}

impl Answer {
    /// The body of a non-streaming answer, with an ID of ours and the requested model's.
    pub fn to_json(
        &self,
        id: &str,
        created: u64,
        model: &str,
        usage: Usage,
        show_cached: bool,
    ) -> Vec<u8> {
        #[derive(Serialize)]
        struct Wire<'a> {
            id: &'a str,
            object: &'static str,
            created: u64,
            model: &'a str,
            choices: Vec<WireChoice<'a>>,
            usage: Box<RawValue>,
        }
        #[derive(Serialize)]
        struct WireChoice<'a> {
            index: u32,
            message: WireMessage<'a>,
            #[serde(skip_serializing_if = "Option::is_none")]
            logprobs: Option<&'a RawValue>,
            finish_reason: FinishReason,
        }
        #[derive(Serialize)]
        struct WireMessage<'a> {
            role: &'static str,
            content: Option<&'a JsonText>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            tool_calls: &'a [ToolCall],
        }
        let choices = self.choices.iter().map(|choice| WireChoice {
            index: choice.index,
            message: WireMessage {
                role: "assistant",
                content: choice.content.as_ref(),
                tool_calls: &choice.tool_calls,
            },
            logprobs: choice.logprobs.as_deref(),
            finish_reason: choice.finish,
        });
        let wire = Wire {
            id,
            object: "chat.completion",
            created,
            model,
            choices: choices.collect(),
            usage: RawValue::from_string(usage.to_json(show_cached)).expect("an object of numbers"),
        };
        serde_json::to_vec(&wire).expect("strings and numbers serialise")
    }
}
