//! A whole answer.

use super::{
    calls::Calls,
    logprobs,
    response::{Candidate, Piece, Response, Said},
    words::{Produced, finish_reason, read_usage},
};
use crate::wire::{
    chat::{Answer, Choice, FinishReason},
    error::UpstreamError,
    json_text::JsonText,
};

/// The answer, with at most the `n` choices that were asked for.
pub fn read(body: &[u8], n: u32, calls: &Calls) -> Result<Answer, UpstreamError> {
    let response = Response::read(body)?;
    let usage = response.usage_metadata.as_ref().and_then(read_usage);
    let choices: Vec<_> = match response.said() {
        Said::Blocked => (0..n).map(blocked).collect(),
        Said::Candidates(candidates) => {
            let choices = (0..n).zip(candidates);
            let choices = choices.map(|(at, candidate)| read_choice(at, candidate, calls));
            choices.collect::<Result<_, _>>()?
        }
    };
    if choices.is_empty() {
        return Err(UpstreamError::Malformed(
            "an answer without candidates".into(),
        ));
    }
    Ok(Answer { choices, usage })
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

fn read_choice(at: u32, mut candidate: Candidate, calls: &Calls) -> Result<Choice, UpstreamError> {
    let (mut texts, mut tool_calls) = (Vec::new(), Vec::new());
    for piece in candidate.take_pieces(calls) {
        match piece {
            Piece::Text(text) => texts.push(text),
            Piece::Call(call) => tool_calls.push(call),
        }
    }
    let produced = Produced {
        text: !texts.is_empty(),
        calls: !tool_calls.is_empty(),
    };
    // A whole answer that does not say why it ended is judged by what is in it.
    let word = candidate.finish_reason.as_deref().unwrap_or_default();
    let finish = finish_reason(word, produced)?;
    let silent = produced.calls || finish == FinishReason::ContentFilter;
    Ok(Choice {
        index: candidate.index.unwrap_or(at),
        content: (produced.text || !silent).then(|| JsonText::concat(&texts)),
        tool_calls,
        finish,
        logprobs: candidate.logprobs_result.as_ref().and_then(logprobs::read),
    })
}
