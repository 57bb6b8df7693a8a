//! Finish reasons and counts, in our words.

use serde_json::Value;

use crate::wire::{
    chat::{FinishReason, Usage},
    error::UpstreamError,
};

/// What a candidate has produced so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Produced {
    pub text: bool,
    pub calls: bool,
}

/// Gemini's word for why a candidate ended, in ours.
///
/// There are more words than are listed, and there will be others. One that we do not know is a
/// failure, unless something came before it: then the answer ends there.
pub fn finish_reason(word: &str, produced: Produced) -> Result<FinishReason, UpstreamError> {
    Ok(match word {
        "MAX_TOKENS" => FinishReason::Length,
        "SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII"
        | "MODEL_ARMOR" => FinishReason::ContentFilter,
        _ if word.starts_with("IMAGE_") => FinishReason::ContentFilter,
        // Gemini says STOP after calls too.
        _ if produced.calls => FinishReason::ToolCalls,
        _ if word == "STOP" || produced.text => FinishReason::Stop,
        _ => {
            let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
            let word: String = word.chars().filter(plain).take(48).collect();
            return Err(UpstreamError::Reported(format!("finishReason {word}")));
        }
    })
}

/// The token counts, if they are ones that can be billed: whole, not negative, not absurd.
///
/// A count of zero is left out by Gemini, but no prompt has none: without that count there are
/// no counts.
pub fn read_usage(usage: &Value) -> Option<Usage> {
    let count = |name: &str| match usage.get(name) {
        None | Some(Value::Null) => Some(0),
        Some(value) => value.as_u64().filter(|count| *count < 1 << 31),
    };
    usage.get("promptTokenCount")?.as_u64()?;
    let prompt = count("promptTokenCount")? + count("toolUsePromptTokenCount")?;
    let (candidates, thoughts) = (count("candidatesTokenCount")?, count("thoughtsTokenCount")?);
    // Thoughts are counted beside the candidates; some models count them inside as well, which
    // the total gives away.
    let total = usage.get("totalTokenCount").and_then(Value::as_u64);
    let inside = thoughts <= candidates && total == Some(prompt + candidates);
    let completion = if inside {
        candidates
    } else {
        candidates + thoughts
    };
    let billable = |count: u64| u32::try_from(count).ok().filter(|count| *count < 1 << 31);
    let usage = Usage {
        prompt: billable(prompt)?,
        cached: billable(count("cachedContentTokenCount")?)?,
        // Writing to its cache costs what reading the prompt costs, and is not counted apart.
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
        for (word, produced, reason) in [
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
            ("A_WORD_OF_NEXT_YEAR", nothing, None),
            ("A_WORD_OF_NEXT_YEAR", text, Some(Stop)),
        ] {
            let read = finish_reason(word, produced).ok();
            assert_eq!(read, reason, "{word} after {produced:?}");
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
    fn thoughts_are_part_of_the_completion_once() {
        for (counts, total, (prompt, cached, completion, reasoning)) in [
            ([10, 0, 4, 6, 0], json!(16), (10, 4, 6, 0)),
            ([10, 0, 0, 6, 50], json!(66), (10, 0, 56, 50)),
            ([10, 0, 0, 60, 50], json!(70), (10, 0, 60, 50)),
            // Inside is where they cannot be, when there are more of them.
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
    fn only_counts_that_can_be_billed_are_usage() {
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
            "more cached than read"
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
