//! Fields that whole and streamed responses share: stop reasons, usage, call IDs.

use serde_json::Value;

use crate::wire::{
    chat::{FinishReason, Usage},
    error::UpstreamError,
};

/// Maps the API's stop reason to [`FinishReason`].
///
/// A reason that names a failure is an error: a failed response must not look complete.
pub(crate) fn finish_reason(
    stop_reason: &str,
    called_tools: bool,
) -> Result<FinishReason, UpstreamError> {
    Ok(match stop_reason {
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "refusal" => FinishReason::ContentFilter,
        "error" | "failed" | "abort" | "aborted" | "cancelled" | "canceled" | "timeout"
        | "overloaded" => {
            return Err(UpstreamError::Reported(format!(
                "stop_reason {stop_reason}"
            )));
        }
        // `end_turn`, `stop_sequence`, `tool_use`, `pause_turn` and reasons added in the future.
        _ if called_tools => FinishReason::ToolCalls,
        _ => FinishReason::Stop,
    })
}

/// Parses the usage; `None` unless its counts can be billed: integers, not negative, below 2³¹.
///
/// The API's `input_tokens` exclude tokens written to its cache or read from it; [`Usage::prompt`] includes them.
pub(crate) fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |value: &Value| u32::try_from(value.as_u64()?).ok().filter(|n| *n < 1 << 31);
    let optional = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Some(0),
        Some(value) => count(value),
    };
    let fresh = count(usage.get("input_tokens")?)?;
    let written = optional(usage.get("cache_creation_input_tokens"))?;
    let cached = optional(usage.get("cache_read_input_tokens"))?;
    let prompt = fresh.checked_add(written)?.checked_add(cached)?;
    let completion = count(usage.get("output_tokens")?)?;
    let reasoning = optional(usage.pointer("/output_tokens_details/thinking_tokens"))?;
    // Thinking is part of the output, unless there is more of it than output: then it was counted separately.
    let separate = if reasoning > completion { reasoning } else { 0 };
    // Older servers do not break cache writes down by lifetime.
    let hour = optional(usage.pointer("/cache_creation/ephemeral_1h_input_tokens"))?;
    let usage = Usage {
        prompt,
        cached,
        cache_write: written,
        cache_write_1h: hour.min(written),
        completion: completion.checked_add(separate)?,
        reasoning,
    };
    (usage.prompt < 1 << 31 && usage.completion < 1 << 31).then_some(usage)
}

/// A call's ID, with `call_` instead of the prefix `toolu_`, which would identify the provider. The API accepts
/// the ID without it.
pub(crate) fn call_id(id: String) -> Option<String> {
    match id.strip_prefix("toolu_") {
        Some(rest) => Some(format!("call_{rest}")),
        None => Some(id).filter(|id| !id.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finish_reasons_are_a_closed_set() {
        use FinishReason::{ContentFilter, Length, Stop, ToolCalls};
        for (text, called, reason) in [
            ("end_turn", false, Stop),
            ("end_turn", true, ToolCalls),
            ("stop_sequence", false, Stop),
            ("pause_turn", false, Stop),
            ("tool_use", true, ToolCalls),
            ("tool_use", false, Stop),
            ("max_tokens", false, Length),
            ("max_tokens", true, Length),
            ("model_context_window_exceeded", false, Length),
            ("refusal", false, ContentFilter),
            ("refusal", true, ContentFilter),
            ("a reason of next year", false, Stop),
        ] {
            assert_eq!(
                finish_reason(text, called).unwrap(),
                reason,
                "{text} {called}"
            );
        }
        for text in ["error", "aborted", "cancelled", "timeout", "overloaded"] {
            assert!(finish_reason(text, false).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_that_cannot_be_billed_are_no_usage() {
        let usage = |more: Value| {
            let mut usage = json!({ "input_tokens": 9, "output_tokens": 2 });
            let more = more.as_object().unwrap().clone();
            usage.as_object_mut().unwrap().extend(more);
            read_usage(&usage).map(|u| (u.prompt, u.cached, u.completion, u.reasoning))
        };
        assert_eq!(usage(json!({})), Some((9, 0, 2, 0)));
        let cache = json!({ "cache_creation_input_tokens": 30, "cache_read_input_tokens": 4 });
        assert_eq!(usage(cache), Some((43, 4, 2, 0)));
        let written = |hour: Value| {
            let usage = json!({ "input_tokens": 9, "output_tokens": 2, "cache_creation_input_tokens": 30,
                "cache_creation": { "ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": hour } });
            read_usage(&usage).map(|u| (u.prompt, u.cache_write, u.cache_write_1h))
        };
        assert_eq!(written(json!(20)), Some((39, 30, 20)));
        assert_eq!(written(json!(null)), Some((39, 30, 0)));
        assert_eq!(
            written(json!(31)),
            Some((39, 30, 30)),
            "at most all cache writes"
        );
        assert_eq!(written(json!(-1)), None);
        let null = json!({ "cache_read_input_tokens": null, "cache_creation_input_tokens": null });
        assert_eq!(usage(null), Some((9, 0, 2, 0)));
        let thought =
            |tokens: u32| json!({ "output_tokens_details": { "thinking_tokens": tokens } });
        assert_eq!(usage(thought(1)), Some((9, 0, 2, 1)));
        assert_eq!(usage(thought(5)), Some((9, 0, 7, 5)), "counted separately");
        for key in [
            "input_tokens",
            "output_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
        ] {
            for value in [json!(-1), json!(1.5), json!("9"), json!(1_u64 << 31)] {
                assert_eq!(usage(json!({ key: value })), None, "{key} {value}");
            }
        }
        assert_eq!(usage(json!({ "input_tokens": null })), None);
        assert_eq!(usage(json!({ "output_tokens": null })), None);
        let most = (1_u32 << 31) - 1;
        let sum = json!({ "input_tokens": most, "cache_read_input_tokens": 1 });
        assert_eq!(usage(sum), None, "the sum is too large");
    }
}
