//! How much a model may think, in the words of its generation.
//!
//! Gemini 2.5 takes a number of tokens, later ones take a level, earlier ones and other families
//! refuse to be told. A request is never refused for it (SPEC §2.1): where a model has no words
//! for what was asked, it gets the nearest it has, or none.

use serde::{Deserialize, Serialize};

use crate::prompt::ChatCall;

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ThinkingConfig {
    ThinkingBudget(u32),
    ThinkingLevel(&'static str),
}

/// What a model understands about thinking and signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Generation {
    /// Before 2.5: nothing.
    Early,
    Budget,
    Level,
    /// By another name than Gemini's: nobody knows.
    Other,
}

/// The bounds within which every 2.5 takes a budget.
const BUDGETS: std::ops::RangeInclusive<u32> = 512..=24_576;

/// Whether a call in the history may need a signature, be it the stand-in.
pub fn wants_signatures(model: &str) -> bool {
    matches!(generation(model), Generation::Level | Generation::Other)
}

pub fn config(call: &ChatCall, model: &str) -> Option<ThinkingConfig> {
    let written = call.thinking.as_ref().and_then(|thinking| {
        let written = serde_json::from_str(thinking.as_json()).ok()?;
        wanted_by(&written)
    });
    let wanted = written.or_else(|| match call.reasoning_effort? {
        "low" => Some(Wanted::Tokens(1_024)),
        "medium" => Some(Wanted::Tokens(8_192)),
        _ => Some(Wanted::Tokens(24_576)),
    })?;
    in_its_words(model, wanted)
}

fn in_its_words(model: &str, wanted: Wanted) -> Option<ThinkingConfig> {
    match (generation(model), wanted) {
        (Generation::Early | Generation::Other, _) => None,
        (Generation::Budget, Wanted::Tokens(tokens)) => Some(ThinkingConfig::ThinkingBudget(
            tokens.clamp(*BUDGETS.start(), *BUDGETS.end()),
        )),
        // The large one thinks, whatever it is told; this is the least it takes.
        (Generation::Budget, Wanted::None) if model.contains("pro") => {
            Some(ThinkingConfig::ThinkingBudget(128))
        }
        (Generation::Budget, Wanted::None) => Some(ThinkingConfig::ThinkingBudget(0)),
        (Generation::Level, wanted) => Some(ThinkingConfig::ThinkingLevel(level(wanted, model))),
    }
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    None,
    Tokens(u32),
}

/// The `thinking` block of callers who know another family's models.
#[derive(Deserialize)]
struct Thinking {
    #[serde(rename = "type")]
    kind: Option<String>,
    budget_tokens: Option<u32>,
}

fn wanted_by(written: &Thinking) -> Option<Wanted> {
    match (written.kind.as_deref(), written.budget_tokens) {
        (Some("disabled"), _) => Some(Wanted::None),
        (_, Some(tokens)) => Some(Wanted::Tokens(tokens)),
        _ => None,
    }
}

fn level(wanted: Wanted, model: &str) -> &'static str {
    match wanted {
        Wanted::None | Wanted::Tokens(..=4_096) => "low",
        // The first of the third generation knows two levels only.
        Wanted::Tokens(..=16_384) if !model.contains("gemini-3-pro") => "medium",
        Wanted::Tokens(_) => "high",
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
        // Also `gemini-flash-latest`, which is always one of the newest.
        _ => Generation::Level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_the_generation() {
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
        let signed = signed.map(wants_signatures);
        assert_eq!(signed, [false, false, true, true]);
    }

    #[test]
    fn what_a_model_has_no_words_for_is_the_nearest_it_has() {
        use ThinkingConfig::{ThinkingBudget as Budget, ThinkingLevel as Level};
        for (model, wanted, expected) in [
            ("gemini-2.0-flash", Wanted::Tokens(1_024), None),
            ("mine", Wanted::None, None),
            ("gemini-2.5-flash", Wanted::Tokens(1), Some(Budget(512))),
            (
                "gemini-2.5-flash",
                Wanted::Tokens(9_999),
                Some(Budget(9_999)),
            ),
            (
                "gemini-2.5-pro",
                Wanted::Tokens(u32::MAX),
                Some(Budget(24_576)),
            ),
            ("gemini-2.5-pro", Wanted::None, Some(Budget(128))),
            ("gemini-2.5-flash", Wanted::None, Some(Budget(0))),
            ("gemini-3-flash", Wanted::None, Some(Level("low"))),
            ("gemini-3-flash", Wanted::Tokens(1_024), Some(Level("low"))),
            (
                "gemini-3-flash",
                Wanted::Tokens(8_192),
                Some(Level("medium")),
            ),
            (
                "gemini-3-pro-preview",
                Wanted::Tokens(8_192),
                Some(Level("high")),
            ),
            (
                "gemini-3.1-pro",
                Wanted::Tokens(8_192),
                Some(Level("medium")),
            ),
            (
                "gemini-3-flash",
                Wanted::Tokens(24_576),
                Some(Level("high")),
            ),
        ] {
            assert_eq!(
                in_its_words(model, wanted),
                expected,
                "{wanted:?} of {model}"
            );
        }
    }
}
