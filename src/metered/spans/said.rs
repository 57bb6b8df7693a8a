//! The text and the tool calls of a streamed answer, put together for a span.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::messages::{self, LONGEST};
use crate::{
    telemetry::Span,
    wire::{messages::NativeEvent, part::Part},
};

const KEY: &str = "gen_ai.output.messages";

#[derive(Default)]
pub(super) struct Said {
    choices: BTreeMap<u32, Choice>,
    /// Of all choices together, also of what is not kept because it is too long.
    bytes: usize,
}

#[derive(Default)]
struct Choice {
    text: String,
    calls: BTreeMap<u32, Call>,
}

#[derive(Default)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

/// An event of the Messages API, as far as it says something.
#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    index: u32,
    content_block: Option<Block>,
    delta: Option<Block>,
}

#[derive(Deserialize)]
struct Block {
    id: Option<String>,
    name: Option<String>,
    text: Option<String>,
    partial_json: Option<String>,
}

impl Said {
    pub(super) fn part(&mut self, part: &Part) {
        match part {
            Part::Content { choice, text, .. } => self.text(*choice, &text.text()),
            Part::ToolCall {
                choice,
                slot,
                id,
                name,
                arguments,
            } => {
                let arguments = arguments.as_ref().map(|arguments| arguments.text());
                self.call(
                    (*choice, *slot),
                    id.as_deref(),
                    name.as_deref(),
                    arguments.as_deref(),
                );
            }
            Part::Native(event) => self.event(event),
            Part::Finish { .. } | Part::Usage(_) | Part::Silence => {}
        }
    }

    fn event(&mut self, event: &NativeEvent) {
        let Ok(event) = serde_json::from_slice::<Event>(event.data()) else {
            return;
        };
        for block in [event.content_block, event.delta].into_iter().flatten() {
            if let Some(text) = &block.text {
                self.text(0, text);
            }
            if block.id.is_some() || block.partial_json.is_some() {
                let arguments = block.partial_json.as_deref();
                let (id, name) = (block.id.as_deref(), block.name.as_deref());
                self.call((0, event.index), id, name, arguments);
            }
        }
    }

    fn text(&mut self, choice: u32, text: &str) {
        if self.keeps(text) {
            self.choices.entry(choice).or_default().text.push_str(text);
        }
    }

    fn call(
        &mut self,
        (choice, slot): (u32, u32),
        id: Option<&str>,
        name: Option<&str>,
        arguments: Option<&str>,
    ) {
        let pieces = [id, name, arguments].map(Option::unwrap_or_default);
        if !pieces.iter().all(|piece| self.keeps(piece)) {
            return;
        }
        let choice = self.choices.entry(choice).or_default();
        let call = choice.calls.entry(slot).or_default();
        let [id, name, arguments] = pieces;
        // Providers may repeat the ID and the name.
        for (known, said) in [(&mut call.id, id), (&mut call.name, name)] {
            if known.is_empty() {
                known.push_str(said);
            }
        }
        call.arguments.push_str(arguments);
    }

    /// Counts a piece; returns whether there is room for it.
    fn keeps(&mut self, piece: &str) -> bool {
        self.bytes += piece.len();
        self.bytes <= LONGEST
    }

    /// Describes the answer. Says nothing of one that has said nothing.
    pub(super) fn describe(self, span: &mut Span, reasons: &[&'static str]) {
        if self.bytes > LONGEST {
            return messages::set_omitted(span, KEY, self.bytes);
        }
        if self.choices.is_empty() {
            return;
        }
        let choices = self.choices.into_values().zip(0..);
        let answers = choices.map(|(choice, at): (Choice, usize)| {
            let reason = reasons.get(at);
            let text = Some(choice.text).filter(|text| !text.is_empty());
            let parts = messages::parts(text, choice.calls.into_values().map(call));
            json!({ "role": "assistant", "parts": parts, "finish_reason": reason })
        });
        messages::set(span, KEY, &answers.collect());
    }
}

fn call(call: Call) -> Value {
    let Call {
        id,
        name,
        arguments,
    } = call;
    json!({ "type": "tool_call", "id": id, "name": name, "arguments": arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::json_text::JsonText;

    fn said(parts: &[Part]) -> Said {
        let mut said = Said::default();
        for part in parts {
            said.part(part);
        }
        said
    }

    fn native(events: &[&str]) -> Said {
        let event = |data: &&str| {
            let kind: Value = serde_json::from_str(data).expect("an event is JSON");
            let kind = kind["type"].as_str().expect("an event has a type");
            Part::Native(NativeEvent::new(kind, data.as_bytes()).expect("a plain kind"))
        };
        said(&events.iter().map(event).collect::<Vec<_>>())
    }

    #[test]
    fn events_of_the_messages_api_are_put_together() {
        let mut said = native(&[
            r#"{"type":"message_start","message":{"id":"m","content":[]}}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Let me "}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"look."}}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"look","input":{}}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"at\":"}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
        ]);
        let choice = said.choices.remove(&0).expect("there is one choice");
        assert_eq!(choice.text, "Let me look.");
        let calls: Vec<_> = choice.calls.values().collect();
        let [call] = calls.as_slice() else {
            panic!("{} calls", calls.len())
        };
        let call = [&call.id, &call.name, &call.arguments].map(String::as_str);
        assert_eq!(call, ["t", "look", r#"{"at":1}"#]);
    }

    #[test]
    fn what_is_too_long_is_counted_to_its_end() {
        let text = Part::Content {
            choice: 0,
            text: JsonText::new(&"x".repeat(1000)),
            logprobs: None,
        };
        let long = said(&vec![text; 200]);
        assert_eq!(long.bytes, 200_000);
        assert!(long.choices[&0].text.len() <= LONGEST);
    }
}
