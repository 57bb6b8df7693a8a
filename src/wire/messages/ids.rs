//! IDs of tool calls: `toolu_…` for the clients of this API, the provider's own inside.

use std::collections::HashSet;

use crate::{base::keys::random_id, wire::chat::Message};

const OUTER: &str = "toolu_";
/// Prefix of most providers' IDs, and of our own.
const INNER: &str = "call_";
/// Marks an ID that has no such prefix inside.
const WITHOUT_PREFIX: &str = "toolu_x_";

/// Whether this API allows the ID.
pub(super) fn is_allowed(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(is_allowed_byte)
}

fn is_allowed_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// The inner ID of a call in a client's history. An ID that is not ours stays as it is.
pub(super) fn inner(id: &str) -> String {
    if let Some(id) = id.strip_prefix(WITHOUT_PREFIX) {
        return id.to_owned();
    }
    match id.strip_prefix(OUTER) {
        Some(tail) => format!("{INNER}{tail}"),
        None => id.to_owned(),
    }
}

/// The client's form of an inner ID. Characters that are not allowed are escaped; such an ID is not mapped back, but a
/// call and its result still match.
fn outer(id: &str) -> String {
    let (prefix, tail) = match id.strip_prefix(INNER) {
        Some(tail) => (OUTER, tail),
        None => (WITHOUT_PREFIX, id),
    };
    let mut outer = String::with_capacity(prefix.len() + tail.len());
    outer.push_str(prefix);
    for char in tail.chars() {
        match u8::try_from(char) {
            Ok(byte) if is_allowed_byte(byte) => outer.push(char),
            _ => outer.extend(["-", &format!("{:x}", u32::from(char))]),
        }
    }
    outer
}

/// The IDs of a conversation's calls, and those that a response gives out.
///
/// Clients take a call for an old one if its ID occurred before, and some providers count the calls of each response
/// from 0. So an ID that is used already is replaced by a new one.
#[derive(Debug, Default)]
pub(crate) struct ToolIds {
    used: HashSet<String>,
}

impl ToolIds {
    pub(crate) fn of(messages: &[Message]) -> Self {
        let calls = messages.iter().flat_map(|message| &message.tool_calls);
        Self {
            used: calls.map(|call| outer(&call.id)).collect(),
        }
    }

    /// The ID under which the client sees a call of the response.
    pub(super) fn give_out(&mut self, inner: &str) -> String {
        let mut id = outer(inner);
        if id.len() == OUTER.len() || self.used.contains(&id) {
            id = random_id(OUTER);
        }
        self.used.insert(id.clone());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{chat::ToolCall, json_text::JsonText};

    #[test]
    fn ids_are_mapped_back_by_their_prefix() {
        for (inside, outside) in [
            ("call_abc", "toolu_abc"),
            ("chatcmpl-tool-1", "toolu_x_chatcmpl-tool-1"),
            ("9", "toolu_x_9"),
        ] {
            assert_eq!(outer(inside), outside);
            assert_eq!(inner(outside), inside);
        }
        assert_eq!(inner("my-own_id"), "my-own_id");
        let odd = outer("functions.get weather:0");
        assert!(is_allowed(&odd), "{odd}");
        assert_ne!(odd, outer("functions.get weather.0"));
        assert!(!is_allowed("") && !is_allowed("a b") && !is_allowed("ü"));
    }

    #[test]
    fn an_id_is_given_out_once_in_a_conversation() {
        let call = ToolCall::new("call_0".into(), "f".into(), JsonText::new("{}"));
        let history = [Message::tool_calls(None, vec![call])];
        let mut ids = ToolIds::of(&history);
        let first = ids.give_out("call_0");
        let second = ids.give_out("call_0");
        let third = ids.give_out("call_1");
        assert!(first != "toolu_0" && second != "toolu_0" && first != second);
        assert!(is_allowed(&first) && first.starts_with("toolu_"));
        assert_eq!(third, "toolu_1");
        assert!(ids.give_out("call_").len() > "toolu_".len());
    }
}
