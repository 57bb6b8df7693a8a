//! Fields that whole and streamed responses share: finish reasons and usage.

use serde_json::Value;

use crate::wire::{
    chat::{FinishReason, Usage},
    error::UpstreamError,
};

/// What a candidate has produced so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Produced {
    pub text: bool,
    pub calls: bool,
}

/// Maps Gemini's finish reason to [`FinishReason`].
///
/// Reasons that are not listed here, such as `MALFORMED_FUNCTION_CALL` and those added in the future, are errors if the
/// candidate has no content, and end the response normally if it has.
pub(crate) fn finish_reason(
    reason: &str,
    produced: Produced,
) -> Result<FinishReason, UpstreamError> {
    Ok(match reason {
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "MODEL_ARMOR" => FinishReason::ContentFilter,
        _ if reason.starts_with("IMAGE_") => FinishReason::ContentFilter,
        // Gemini sends STOP after calls too.
        _ if produced.calls => FinishReason::ToolCalls,
        _ if reason == "STOP" || produced.text => FinishReason::Stop,
        _ => {
            let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            let reason: String = reason.chars().filter(plain).take(48).collect();
            return Err(UpstreamError::Reported(format!("finishReason {reason}")));
        }
    })
}

/// Parses the usage; `None` unless its counts can be billed: integers, not negative, below 2³¹.
///
/// Gemini omits counts of zero. As no prompt has zero tokens, usage without a prompt count is not used.
pub(crate) fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |name: &str| match usage.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_u64().filter(|count| *count < 1 << 31),
    };
    usage.get("promptTokenCount")?.as_u64()?;
    let prompt = count("promptTokenCount")? + count("toolUsePromptTokenCount")?;
    let (candidates, thoughts) = (count("candidatesTokenCount")?, count("thoughtsTokenCount")?);
    // Thoughts are counted in addition to the candidates. Some models include them in the candidates, which the total
    // shows.
    let total = usage.get("totalTokenCount").and_then(Value::as_u64);
    let included = thoughts <= candidates && total == Some(prompt + candidates);
    let completion = if included {
        candidates
    } else {
        candidates + thoughts
    };
    let billable = |count: u64| u32::try_from(count).ok().filter(|count| *count < 1 << 31);
    let usage = Usage {
        prompt: billable(prompt)?,
        cached: billable(count("cachedContentTokenCount")?)?,
        // Writing to Gemini's cache costs as much as the prompt itself, and is not counted separately.
        cache_write: 0,
        cache_write_1h: 0,
        completion: billable(completion)?,
        reasoning: billable(thoughts)?,
    };
    (usage.cached <= usage.prompt).then_some(usage)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn finish_reasons_are_a_closed_set() {
        use FinishReason::{ContentFilter, Length, Stop, ToolCalls};
        let (nothing, text, calls) = (
            Produced::default(),
            Produced {
                text: true,
                calls: false,
            },
            Produced {
                text: true,
                calls: true,
            },
        );
        for (text, produced, reason) in [
            ("STOP", nothing, Some(Stop)),
            ("STOP", text, Some(Stop)),
            ("STOP", calls, Some(ToolCalls)),
            ("FUNCTION_CALL", calls, Some(ToolCalls)),
            ("MAX_TOKENS", nothing, Some(Length)),
            ("MAX_TOKENS", calls, Some(Length)),
            ("SAFETY", text, Some(ContentFilter)),
            ("RECITATION", calls, Some(ContentFilter)),
            ("LANGUAGE", nothing, Some(ContentFilter)),
            ("BLOCKLIST", nothing, Some(ContentFilter)),
            ("PROHIBITED_CONTENT", nothing, Some(ContentFilter)),
            ("SPII", nothing, Some(ContentFilter)),
            ("IMAGE_SAFETY", nothing, Some(ContentFilter)),
            ("IMAGE_PROHIBITED_CONTENT", text, Some(ContentFilter)),
            ("MALFORMED_FUNCTION_CALL", nothing, None),
            ("MALFORMED_FUNCTION_CALL", text, Some(Stop)),
            ("UNEXPECTED_TOOL_CALL", nothing, None),
            ("UNEXPECTED_TOOL_CALL", calls, Some(ToolCalls)),
            ("TOO_MANY_TOOL_CALLS", nothing, None),
            ("MALFORMED_RESPONSE", nothing, None),
            ("OTHER", nothing, None),
            ("OTHER", text, Some(Stop)),
            ("FINISH_REASON_UNSPECIFIED", nothing, None),
            ("A_REASON_OF_NEXT_YEAR", nothing, None),
            ("A_REASON_OF_NEXT_YEAR", text, Some(Stop)),
        ] {
            let read = finish_reason(text, produced).ok();
            assert_eq!(read, reason, "{text} after {produced:?}");
        }
    }

    fn usage(counts: [u64; 5], total: &Value) -> Option<Usage> {
        let [prompt, tools, cached, candidates, thoughts] = counts;
        read_usage(&json!({
            "promptTokenCount": prompt, "toolUsePromptTokenCount": tools,
            "cachedContentTokenCount": cached, "candidatesTokenCount": candidates,
            "thoughtsTokenCount": thoughts, "totalTokenCount": total,
        }))
    }

    #[test]
    fn thoughts_are_counted_once() {
        for (counts, total, (prompt, cached, completion, reasoning)) in [
            ([10, 0, 4, 6, 0], json!(16), (10, 4, 6, 0)),
            ([10, 0, 0, 6, 50], json!(66), (10, 0, 56, 50)),
            ([10, 0, 0, 60, 50], json!(70), (10, 0, 60, 50)),
            // More thoughts than candidates cannot be included in them.
            ([10, 0, 0, 6, 50], json!(16), (10, 0, 56, 50)),
            ([10, 5, 0, 60, 50], json!(75), (15, 0, 60, 50)),
            ([10, 5, 0, 6, 50], json!(71), (15, 0, 56, 50)),
            ([10, 0, 0, 60, 50], json!(null), (10, 0, 110, 50)),
        ] {
            let expected = Usage {
                prompt,
                cached,
                completion,
                reasoning,
                ..Usage::default()
            };
            assert_eq!(
                usage(counts, &total),
                Some(expected),
                "{counts:?} of {total}"
            );
        }
    }

    #[test]
    fn a_missing_count_is_zero_and_a_missing_prompt_is_no_usage() {
        let expected = Usage {
            prompt: 7,
            ..Usage::default()
        };
        let read = read_usage(&json!({ "promptTokenCount": 7, "candidatesTokenCount": null }));
        assert_eq!(read, Some(expected));
        for usage in [
            json!({}),
            json!(null),
            json!([7, 3]),
            json!({ "candidatesTokenCount": 3, "totalTokenCount": 3 }),
            json!({ "promptTokenCount": null, "candidatesTokenCount": 3 }),
        ] {
            assert_eq!(read_usage(&usage), None, "{usage}");
        }
    }

    #[test]
    fn counts_that_cannot_be_billed_are_no_usage() {
        for name in [
            "promptTokenCount",
            "toolUsePromptTokenCount",
            "cachedContentTokenCount",
            "candidatesTokenCount",
            "thoughtsTokenCount",
        ] {
            for count in [
                json!(-1),
                json!(1.5),
                json!("3"),
                json!(true),
                json!(1_u64 << 31),
                json!(u64::MAX),
            ] {
                let mut usage = json!({ "promptTokenCount": 7, "candidatesTokenCount": 3 });
                usage[name] = count;
                assert_eq!(read_usage(&usage), None, "{usage}");
            }
        }
        assert_eq!(
            usage([7, 0, 8, 3, 0], &json!(10)),
            None,
            "more cached than prompt tokens"
        );
        let half = 1 << 30;
        assert_eq!(
            usage([half, half, 0, 3, 0], &json!(0)),
            None,
            "a sum of 2³¹"
        );
        assert_eq!(
            usage([7, 0, 0, half, half], &json!(0)),
            None,
            "a sum of 2³¹"
        );
    }
}
