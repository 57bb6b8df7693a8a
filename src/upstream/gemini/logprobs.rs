//! Translates log probabilities into the form of a chat completion.

use serde::Serialize;
use serde_json::{Value, value::RawValue};

#[derive(Serialize)]
struct Logprobs<'a> {
    content: Vec<Token<'a>>,
    refusal: Option<()>,
}

#[derive(Serialize)]
struct Token<'a> {
    #[serde(flatten)]
    chosen: TokenLogprob<'a>,
    top_logprobs: Vec<TokenLogprob<'a>>,
}

#[derive(Serialize)]
struct TokenLogprob<'a> {
    token: &'a str,
    logprob: f64,
    bytes: &'a [u8],
}

/// Parses a `logprobsResult`; `None` if it has no usable log probabilities.
pub(crate) fn read(result: &Value) -> Option<Box<RawValue>> {
    let chosen = result.get("chosenCandidates")?.as_array()?;
    let alternatives = result.get("topCandidates").and_then(Value::as_array);
    let content = chosen.iter().enumerate().map(|(at, chosen)| {
        let candidates_at = alternatives.and_then(|alternatives| alternatives.get(at));
        let candidates_at =
            candidates_at.and_then(|position| position.get("candidates")?.as_array());
        Some(Token {
            chosen: token_logprob(chosen)?,
            top_logprobs: candidates_at
                .into_iter()
                .flatten()
                .filter_map(token_logprob)
                .collect(),
        })
    });
    let logprobs = Logprobs {
        content: content.collect::<Option<_>>()?,
        refusal: None,
    };
    serde_json::value::to_raw_value(&logprobs).ok()
}

/// A token and its log probability. A missing one is 0 (certainty), because Gemini omits zeros.
fn token_logprob(candidate: &Value) -> Option<TokenLogprob<'_>> {
    let token = candidate.get("token")?.as_str()?;
    let logprob = candidate.get("logProbability");
    Some(TokenLogprob {
        token,
        logprob: logprob.and_then(Value::as_f64).unwrap_or(0.0),
        bytes: token.as_bytes(),
    })
}
