//! Parses a non-streamed response.

use super::{
    call_cache::CallCache,
    fields::{Produced, finish_reason, read_usage},
    logprobs,
    response::{Candidate, Outcome, Response, VisiblePart},
};
use crate::wire::{
    chat::{Answer, Choice, FinishReason},
    error::UpstreamError,
    json_text::JsonText,
};

/// Parses a response body; keeps at most the `n` choices that were requested.
pub(crate) fn read(body: &[u8], n: u32, calls: &CallCache) -> Result<Answer, UpstreamError> {
    let response = Response::read(body)?;
    let usage = response.usage_metadata.as_ref().and_then(read_usage);
    let choices: Vec<_> = match response.outcome() {
        Outcome::PromptBlocked => (0..n).map(blocked).collect(),
        Outcome::Candidates(candidates) => {
            let choices = (0..n).zip(candidates);
            let choices = choices.map(|(at, candidate)| read_choice(at, candidate, calls));
            choices.collect::<Result<_, _>>()?
        }
    };
    if choices.is_empty() {
        return Err(UpstreamError::Malformed(
            "a response without candidates".into(),
        ));
    }
    Ok(Answer {
        choices,
        usage,
        native: None,
    })
}

fn blocked(index: u32) -> Choice {
    Choice {
        index,
        content: None,
        tool_calls: Vec::new(),
        finish: FinishReason::ContentFilter,
        logprobs: None,
    }
}

fn read_choice(
    at: u32,
    mut candidate: Candidate,
    calls: &CallCache,
) -> Result<Choice, UpstreamError> {
    let (mut texts, mut tool_calls) = (Vec::new(), Vec::new());
    for part in candidate.take_visible_parts(calls) {
        match part {
            VisiblePart::Text(text) => texts.push(text),
            VisiblePart::Call(call) => tool_calls.push(call),
        }
    }
    let produced = Produced {
        text: !texts.is_empty(),
        calls: !tool_calls.is_empty(),
    };
    // Without a finish reason, the content decides.
    let reason = candidate.finish_reason.as_deref().unwrap_or_default();
    let finish = finish_reason(reason, produced)?;
    let may_lack_text = produced.calls || finish == FinishReason::ContentFilter;
    Ok(Choice {
        index: candidate.index.unwrap_or(at),
        content: (produced.text || !may_lack_text).then(|| JsonText::concat(&texts)),
        tool_calls,
        finish,
        logprobs: candidate.logprobs_result.as_ref().and_then(logprobs::read),
    })
}
