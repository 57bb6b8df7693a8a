//! Fields that whole and streamed responses share: finish reasons, usage, arguments of tool calls.
//!
//! Servers differ in values, nulls and types, so parsing is lenient, except where money or meaning depends on a field.

use serde::{Deserialize, Deserializer};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use super::token_count::TokenCount;
use crate::wire::{
    chat::{FinishReason, Usage},
    error::UpstreamError,
    json_text::JsonText,
};

/// Maps a provider's finish reason to [`FinishReason`]; `None` if there is none yet.
///
/// A reason that names a failure is an error: a failed response must not look complete.
pub(crate) fn finish_reason(
    reason: Option<&str>,
    called_tools: bool,
) -> Result<Option<FinishReason>, UpstreamError> {
    let reason = reason.map(str::to_ascii_lowercase); // some vendors use upper case
    Ok(Some(match reason.as_deref() {
        None | Some("") => return Ok(None),
        Some("length" | "max_tokens" | "model_length" | "max_length") => FinishReason::Length,
        Some("content_filter" | "safety" | "refusal") => FinishReason::ContentFilter,
        Some("tool_calls" | "function_call" | "tool_use") if called_tools => {
            FinishReason::ToolCalls
        }
        Some(
            reason @ ("error"
            | "failed"
            | "abort"
            | "aborted"
            | "cancelled"
            | "timeout"
            | "insufficient_system_resource"),
        ) => return Err(UpstreamError::Reported(format!("finish_reason {reason}"))),
        // `stop` and its synonyms. Several servers send `stop` after tool calls too.
        Some(_) if called_tools => FinishReason::ToolCalls,
        Some(_) => FinishReason::Stop,
    }))
}

/// The `usage` object, with fields of several vendors.
#[derive(Deserialize)]
struct WireUsage<'a> {
    prompt_tokens: Option<TokenCount>,
    completion_tokens: Option<TokenCount>,
    total_tokens: Option<TokenCount>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    /// The field of `DeepSeek` for tokens read from a cache.
    prompt_cache_hit_tokens: Option<TokenCount>,
    #[serde(borrow)]
    completion_tokens_details: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PromptDetails<'a> {
    cached_tokens: Option<TokenCount>,
    cache_write_tokens: Option<TokenCount>,
    /// Other servers' field for tokens written to a cache.
    cache_creation_tokens: Option<TokenCount>,
    #[serde(borrow)]
    cache_creation_token_details: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CacheWriteDetails {
    ephemeral_1h_input_tokens: Option<TokenCount>,
}

#[derive(Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<TokenCount>,
}

/// Parses the usage; `None` unless its counts can be billed: integers, not negative, below 2³¹.
///
/// A number that cannot be parsed at all, such as `1e999`, is an error.
pub(crate) fn read_usage(usage: &RawValue) -> Result<Option<Usage>, UpstreamError> {
    if let Ok(Some(counts)) = read_counts(usage) {
        return Ok(Some(counts));
    }
    // Slow path: parses into a `Value` first, which checks every number and keeps the last of duplicate keys.
    let read = |usage: &RawValue| {
        let usage: Value = serde_json::from_str(usage.get())?;
        read_counts(&to_raw_value(&usage)?)
    };
    read(usage).map_err(|error| UpstreamError::unreadable(&error))
}

fn read_counts(usage: &RawValue) -> serde_json::Result<Option<Usage>> {
    let Some(usage) = parse_object::<WireUsage<'_>>(Some(usage))? else {
        return Ok(None);
    };
    let prompt_details = parse_object::<PromptDetails<'_>>(usage.prompt_tokens_details)?;
    let completion_details = parse_object::<CompletionDetails>(usage.completion_tokens_details)?;
    let (cached, written, writes) = prompt_details.map_or((None, None, None), |details| {
        let written = details.cache_write_tokens.or(details.cache_creation_tokens);
        (
            details.cached_tokens,
            written,
            details.cache_creation_token_details,
        )
    });
    let cached = cached.or(usage.prompt_cache_hit_tokens);
    let hour = parse_object::<CacheWriteDetails>(writes)?
        .and_then(|writes| writes.ephemeral_1h_input_tokens);
    let reasoning = completion_details.and_then(|details| details.reasoning_tokens);
    let total = usage.total_tokens.and_then(TokenCount::value);
    let usage = || {
        let count = |count: Option<TokenCount>| count.map_or(Some(0), TokenCount::billable);
        let prompt = usage.prompt_tokens?.billable()?;
        let cached = count(cached)?;
        // Cache writes are part of the prompt. If a server counts them in addition to it, they are capped at the
        // prompt; if it only breaks them down by lifetime, there are none.
        let cache_write = count(written)?.min(prompt.checked_sub(cached)?);
        Some(Usage {
            prompt,
            completion: usage.completion_tokens?.billable()?,
            cached,
            cache_write,
            cache_write_1h: count(hour)?.min(cache_write),
            reasoning: count(reasoning)?,
        })
    };
    Ok(usage().map(|usage| with_reasoning_included(usage, total)))
}

/// Parses an object; any other JSON value counts as absent.
fn parse_object<'a, T: Deserialize<'a>>(
    value: Option<&'a RawValue>,
) -> serde_json::Result<Option<T>> {
    let value = value.map(RawValue::get);
    let object = value.filter(|text| text.starts_with('{'));
    object.map(serde_json::from_str).transpose()
}

/// Includes reasoning tokens in the completion. Servers that count them separately are recognised by their total, or
/// because there are more reasoning tokens than completion tokens.
fn with_reasoning_included(usage: Usage, total: Option<u64>) -> Usage {
    let (prompt, completion, reasoning) = (
        u64::from(usage.prompt),
        u64::from(usage.completion),
        u64::from(usage.reasoning),
    );
    let separate = reasoning > 0 && total == Some(prompt + completion + reasoning);
    if !separate && reasoning <= completion {
        return usage;
    }
    Usage {
        completion: usage.completion.saturating_add(usage.reasoning),
        ..usage
    }
}

/// A tool call's arguments: JSON in a string, or from some servers the JSON object itself.
#[derive(Clone, Debug)]
pub(crate) struct Arguments(pub JsonText);

impl<'de> Deserialize<'de> for Arguments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes().first() {
            Some(b'{') => Ok(Self(JsonText::new(raw.get()))),
            _ => JsonText::from_boxed(raw)
                .map(Self)
                .ok_or_else(|| serde::de::Error::custom("arguments are not a JSON string")),
        }
    }
}

/// Whether every client can read this JSON. A number of any size is JSON, and many parsers refuse those that they cannot
/// represent, with all that is around them.
pub(crate) fn is_readable(json: &RawValue) -> bool {
    serde_json::from_str::<Value>(json.get()).is_ok()
}

#[cfg(test)]
mod tests {
    // A number beyond what a parser can represent.
    #[test]
    fn numbers_that_parsers_refuse_are_not_readable() {
        for (json, readable) in [(r#"{"bytes":[72,-0.1]}"#, true), ("[11e9998]", false)] {
            let json = serde_json::value::RawValue::from_string(json.into()).unwrap();
            assert_eq!(super::is_readable(&json), readable, "{json}");
        }
    }

    use serde_json::json;

    use super::*;

    fn read_usage(usage: &Value) -> Option<Usage> {
        super::read_usage(&to_raw_value(usage).unwrap()).unwrap()
    }

    #[test]
    fn finish_reasons_are_a_closed_set() {
        use FinishReason::{ContentFilter, Length, Stop, ToolCalls};
        for (text, called, reason) in [
            ("stop", false, Stop),
            ("stop", true, ToolCalls),
            ("eos", false, Stop),
            ("end_turn", false, Stop),
            ("function_call", true, ToolCalls),
            ("tool_calls", false, Stop),
            ("length", true, Length),
            ("content_filter", false, ContentFilter),
        ] {
            assert_eq!(
                finish_reason(Some(text), called).unwrap(),
                Some(reason),
                "{text} {called}"
            );
        }
        assert!(finish_reason(Some("error"), false).is_err());
        assert_eq!(finish_reason(Some(""), false).unwrap(), None);
    }

    #[test]
    fn reasoning_counted_separately_is_added_to_the_completion() {
        let completion = |completion: u32, total: u32| {
            let usage = json!({
                "prompt_tokens": 3, "completion_tokens": completion, "total_tokens": total,
                "completion_tokens_details": { "reasoning_tokens": 50 },
            });
            read_usage(&usage).unwrap().completion
        };
        assert_eq!(completion(60, 63), 60, "included");
        assert_eq!(completion(60, 113), 110, "separate, as the total shows");
        assert_eq!(completion(4, 7), 54, "more than the completion: separate");
    }

    #[test]
    fn cache_writes_are_part_of_the_prompt() {
        let read = |details: Value| {
            let usage = json!({ "prompt_tokens": 100, "completion_tokens": 2, "prompt_tokens_details": details });
            read_usage(&usage).map(|u| (u.prompt, u.cached, u.cache_write, u.cache_write_1h))
        };
        let hour = |tokens: u32| json!({ "ephemeral_1h_input_tokens": tokens });
        for (details, expected) in [
            (json!({ "cache_write_tokens": 30 }), (100, 0, 30, 0)),
            (
                json!({ "cache_creation_tokens": 30, "cached_tokens": 60 }),
                (100, 60, 30, 0),
            ),
            (
                json!({ "cache_write_tokens": 30, "cache_creation_token_details": hour(20) }),
                (100, 0, 30, 20),
            ),
            (
                json!({ "cache_write_tokens": 0, "cache_creation_tokens": 5 }),
                (100, 0, 0, 0),
            ),
            // Counted in addition to the prompt, or only by lifetime.
            (
                json!({ "cache_write_tokens": 2_000, "cached_tokens": 60 }),
                (100, 60, 40, 0),
            ),
            (
                json!({ "cache_creation_token_details": hour(20) }),
                (100, 0, 0, 0),
            ),
        ] {
            assert_eq!(read(details.clone()), Some(expected), "{details}");
        }
        assert_eq!(read(json!({ "cached_tokens": 101 })), None);
        assert_eq!(read(json!({ "cache_write_tokens": -1 })), None);
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        let read = |text: &str| {
            let usage = super::read_usage(serde_json::from_str(text).unwrap());
            let usage = usage.unwrap()?;
            Some((usage.prompt, usage.cached, usage.completion))
        };
        let twice = r#"{"prompt_tokens":1,"prompt_tokens":9,"completion_tokens":2,
            "prompt_tokens_details":{"cached_tokens":7,"cached_tokens":4}}"#;
        assert_eq!(read(twice), Some((9, 4, 2)));
        let listed = r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":[4,0]}"#;
        assert_eq!(read(listed), Some((9, 0, 2)));
        assert_eq!(read("[9, 2, 11]"), None);
    }

    #[test]
    fn a_number_that_cannot_be_parsed_is_an_error() {
        for usage in [
            r#"{"prompt_tokens":1e999}"#,
            r#"{"prompt_tokens":9,"completion_tokens":1e999}"#,
            r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":-1e999}}"#,
        ] {
            let read = super::read_usage(serde_json::from_str(usage).unwrap());
            assert!(matches!(read, Err(UpstreamError::Malformed(_))), "{usage}");
        }
    }

    #[test]
    fn counts_that_cannot_be_billed_are_no_usage() {
        let usage = |prompt: Value, cached: Value| {
            read_usage(&json!({
                "prompt_tokens": prompt, "completion_tokens": 2,
                "prompt_tokens_details": { "cached_tokens": cached },
            }))
        };
        let read = usage(json!(9), json!(4)).unwrap();
        assert_eq!((read.prompt, read.cached, read.completion), (9, 4, 2));
        assert_eq!(usage(json!(9), json!(null)).unwrap().cached, 0);
        let both = json!({
            "prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4,
            "prompt_tokens_details": { "cached_tokens": null },
        });
        assert_eq!(
            read_usage(&both).unwrap().cached,
            4,
            "null falls back to the vendor's field"
        );
        for (prompt, cached) in [
            (json!(-1), json!(0)),
            (json!(1.5), json!(0)),
            (json!("9"), json!(0)),
            (json!(1_u64 << 31), json!(0)),
            (json!(9), json!(10)),
        ] {
            assert_eq!(usage(prompt.clone(), cached), None, "{prompt}");
        }
    }
}
