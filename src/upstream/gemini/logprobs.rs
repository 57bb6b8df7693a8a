//! The odds of each token, as a chat shows them.

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
    chosen: Odds<'a>,
    top_logprobs: Vec<Odds<'a>>,
}

#[derive(Serialize)]
struct Odds<'a> {
    token: &'a str,
    logprob: f64,
    bytes: &'a [u8],
}

/// `None` where there is nothing of the kind in it.
pub fn read(result: &Value) -> Option<Box<RawValue>> {
    let chosen = result.get("chosenCandidates")?.as_array()?;
    let alternatives = result.get("topCandidates").and_then(Value::as_array);
    let content = chosen.iter().enumerate().map(|(at, chosen)| {
        let at_this_place = alternatives.and_then(|alternatives| alternatives.get(at));
        let at_this_place = at_this_place.and_then(|place| place.get("candidates")?.as_array());
        Some(Token {
            chosen: odds(chosen)?,
            top_logprobs: at_this_place
                .into_iter()
                .flatten()
                .filter_map(odds)
                .collect(),
        })
    });
    let logprobs = Logprobs {
        content: content.collect::<Option<_>>()?,
        refusal: None,
    };
    serde_json::value::to_raw_value(&logprobs).ok()
}

/// A token without a probability has one of 1, whose logarithm Gemini leaves out like any zero.
fn odds(candidate: &Value) -> Option<Odds<'_>> {
    let token = candidate.get("token")?.as_str()?;
    let logprob = candidate.get("logProbability");
    Some(Odds {
        token,
        logprob: logprob.and_then(Value::as_f64).unwrap_or(0.0),
        bytes: token.as_bytes(),
    })
}
