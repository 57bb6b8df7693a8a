//! Collects a streamed answer into a whole one, for the gateway's own use.

use bytes::Bytes;
use serde_json::value::RawValue;

use crate::wire::{
    chat::{Answer, Bill, Choice, FinishReason, ToolCall, Usage},
    error::Envelope,
    json_text::{JsonText, TextBuffer},
    stream_writer::StreamWriter,
};

/// A streamed answer as far as it has arrived.
#[derive(Default)]
pub(crate) struct Assembled {
    choices: Vec<Pieces>,
}

/// The content of one choice.
#[derive(Default)]
struct Pieces {
    content: TextBuffer,
    calls: Vec<Call>,
    finish: Option<FinishReason>,
}

struct Call {
    id: String,
    name: String,
    arguments: TextBuffer,
}

impl Assembled {
    pub(crate) fn into_answer(self, usage: Option<Usage>) -> Answer {
        let choices = (0..).zip(self.choices).map(|(index, pieces)| Choice {
            index,
            content: (!pieces.content.is_empty()).then(|| pieces.content.to_text()),
            tool_calls: pieces.calls.into_iter().map(Call::into_tool_call).collect(),
            finish: pieces.finish.unwrap_or(FinishReason::Stop),
            logprobs: None,
        });
        Answer {
            choices: choices.collect(),
            usage,
            native: None,
        }
    }
}

impl Call {
    fn into_tool_call(self) -> ToolCall {
        ToolCall::new(self.id, self.name, self.arguments.to_text())
    }
}

impl StreamWriter for Assembled {
    fn open(&mut self, _: u32, _: &mut Vec<Bytes>) {
        self.choices.push(Pieces::default());
    }

    fn content(&mut self, choice: u32, text: &JsonText, _: Option<&RawValue>, _: &mut Vec<Bytes>) {
        self.choices[choice as usize].content.push(text);
    }

    fn tool_call(&mut self, choice: u32, _: usize, id: &str, name: &str, _: &mut Vec<Bytes>) {
        self.choices[choice as usize].calls.push(Call {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: TextBuffer::default(),
        });
    }

    fn tool_arguments(
        &mut self,
        choice: u32,
        number: usize,
        arguments: &JsonText,
        _: &mut Vec<Bytes>,
    ) {
        let call = &mut self.choices[choice as usize].calls[number];
        call.arguments.push(arguments);
    }

    fn close(&mut self, choice: u32, reason: FinishReason, _: &mut Vec<Bytes>) {
        self.choices[choice as usize].finish = Some(reason);
    }

    fn end(&mut self, _: Option<Bill>, _: &mut Vec<Bytes>) {}

    fn fail(&mut self, _: &Envelope, _: &mut Vec<Bytes>) {}
}
