//! Translates requested thinking into what the model's generation supports.
//!
//! Gemini 2.5 takes a budget in tokens and later models a level; earlier ones and other families refuse the setting. A
//! request is never refused because of it (§2.1): the nearest supported value is sent, or none.

use serde::{Deserialize, Serialize};

use crate::prompt::ChatCall;

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ThinkingConfig {
    ThinkingBudget(u32),
    ThinkingLevel(&'static str),
}

/// What a model supports in thinking and signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// Before 2.5: no thinking.
    Early,
    /// 2.5: a budget in tokens.
    Budget,
    /// After 2.5: a level, and signed function calls.
    Level,
    /// Not named `gemini-…`: unknown.
    Other,
}

/// Budgets that every 2.5 model accepts.
const BUDGET_RANGE: std::ops::RangeInclusive<u32> = 512..=24_576;

/// Whether function calls in the history may need a signature, real or placeholder.
pub(crate) fn needs_signatures(model: &str) -> bool {
    matches!(generation(model), Generation::Level | Generation::Other)
}

/// The thinking configuration for a call: from `thinking`, or else from `reasoning_effort`.
pub(crate) fn config(call: &ChatCall, model: &str) -> Option<ThinkingConfig> {
    let written = call.thinking.as_ref().and_then(|thinking| {
        let written = serde_json::from_str(thinking.as_json()).ok()?;
        requested_by(&written)
    });
    let requested = written.or_else(|| match call.reasoning_effort? {
        "low" => Some(Requested::Tokens(1_024)),
        "medium" => Some(Requested::Tokens(8_192)),
        _ => Some(Requested::Tokens(24_576)),
    })?;
    config_for(model, requested)
}

fn config_for(model: &str, requested: Requested) -> Option<ThinkingConfig> {
    match (generation(model), requested) {
        (Generation::Early | Generation::Other, _) => None,
        (Generation::Budget, Requested::Tokens(tokens)) => Some(ThinkingConfig::ThinkingBudget(
            tokens.clamp(*BUDGET_RANGE.start(), *BUDGET_RANGE.end()),
        )),
        // Thinking cannot be turned off for 2.5 Pro; this is its smallest budget.
        (Generation::Budget, Requested::None) if model.contains("pro") => {
            Some(ThinkingConfig::ThinkingBudget(128))
        }
        (Generation::Budget, Requested::None) => Some(ThinkingConfig::ThinkingBudget(0)),
        (Generation::Level, requested) => {
            Some(ThinkingConfig::ThinkingLevel(level(requested, model)))
        }
    }
}

/// Requested thinking, as a number of tokens.
#[derive(Clone, Copy, Debug)]
enum Requested {
    None,
    Tokens(u32),
}

/// The caller's `thinking` object, in the form of Anthropic's API.
#[derive(Deserialize)]
struct CallerThinking {
    #[serde(rename = "type")]
    kind: Option<String>,
    budget_tokens: Option<u32>,
}

fn requested_by(written: &CallerThinking) -> Option<Requested> {
    match (written.kind.as_deref(), written.budget_tokens) {
        (Some("disabled"), _) => Some(Requested::None),
        (_, Some(tokens)) => Some(Requested::Tokens(tokens)),
        _ => None,
    }
}

fn level(requested: Requested, model: &str) -> &'static str {
    match requested {
        Requested::None | Requested::Tokens(..=4_096) => "low",
        // Gemini 3 Pro has no medium level.
        Requested::Tokens(..=16_384) if !model.contains("gemini-3-pro") => "medium",
        Requested::Tokens(_) => "high",
    }
}

fn generation(model: &str) -> Generation {
    let name = model.rsplit('/').next().unwrap_or(model);
    let Some(rest) = name.strip_prefix("gemini-") else {
        return Generation::Other;
    };
    match rest.as_bytes() {
        [b'2', b'.', b'5', ..] => Generation::Budget,
        [b'1' | b'2', ..] => Generation::Early,
        // Also aliases such as `gemini-flash-latest`, which name the newest models.
        _ => Generation::Level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_is_read_from_the_name() {
        for (model, expected) in [
            ("gemini-1.5-pro", Generation::Early),
            ("gemini-2.0-flash", Generation::Early),
            ("gemini-2.5-flash-lite", Generation::Budget),
            ("models/gemini-2.5-pro", Generation::Budget),
            ("gemini-3-pro-preview", Generation::Level),
            ("gemini-3.5-flash", Generation::Level),
            ("gemini-flash-latest", Generation::Level),
            ("gemma-3-27b", Generation::Other),
            ("tunedModels/mine", Generation::Other),
        ] {
            assert_eq!(generation(model), expected, "{model}");
        }
        let signed = ["gemini-1.5-pro", "gemini-2.5-pro", "gemini-3-pro", "mine"];
        let signed = signed.map(needs_signatures);
        assert_eq!(signed, [false, false, true, true]);
    }

    #[test]
    fn unsupported_values_become_the_nearest_supported_ones() {
        use ThinkingConfig::{ThinkingBudget as Budget, ThinkingLevel as Level};
        for (model, requested, expected) in [
            ("gemini-2.0-flash", Requested::Tokens(1_024), None),
            ("mine", Requested::None, None),
            ("gemini-2.5-flash", Requested::Tokens(1), Some(Budget(512))),
            (
                "gemini-2.5-flash",
                Requested::Tokens(9_999),
                Some(Budget(9_999)),
            ),
            (
                "gemini-2.5-pro",
                Requested::Tokens(u32::MAX),
                Some(Budget(24_576)),
            ),
            ("gemini-2.5-pro", Requested::None, Some(Budget(128))),
            ("gemini-2.5-flash", Requested::None, Some(Budget(0))),
            ("gemini-3-flash", Requested::None, Some(Level("low"))),
            (
                "gemini-3-flash",
                Requested::Tokens(1_024),
                Some(Level("low")),
            ),
            (
                "gemini-3-flash",
                Requested::Tokens(8_192),
                Some(Level("medium")),
            ),
            (
                "gemini-3-pro-preview",
                Requested::Tokens(8_192),
                Some(Level("high")),
            ),
            (
                "gemini-3.1-pro",
                Requested::Tokens(8_192),
                Some(Level("medium")),
            ),
            (
                "gemini-3-flash",
                Requested::Tokens(24_576),
                Some(Level("high")),
            ),
        ] {
            assert_eq!(
                config_for(model, requested),
                expected,
                "{requested:?} of {model}"
            );
        }
    }
}
