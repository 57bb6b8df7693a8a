//! The benchmark's request: a conversation of three messages, about a kilobyte, in the form of either API.

use serde_json::json;

/// How the upstream responds. The request says so in its last message, which arrives unchanged through any gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speed {
    /// A plain response, at once.
    Whole,
    /// A plain response after this many milliseconds.
    After(u64),
    /// A stream whose events are sent one after another, as fast as they can be written.
    AtOnce,
    /// A stream with a pause before each event but the first, in milliseconds.
    Paced(u64),
    /// A stream with an event every few seconds, which continues until all held streams are released.
    Held,
}

/// Long enough to be slow, short enough that a gateway relays some events while it is measured.
pub const HELD_PAUSE_MS: u64 = 5_000;

/// The API that a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Api {
    #[default]
    Chat,
    Messages,
}

const MARK: &[u8] = b"[[upstream ";

const SYSTEM: &str = "You are the assistant of a shop for garden tools. Answer in two or three short sentences, \
    in the language of the question, and stay with what the catalogue says. Where the catalogue does not say, \
    tell the customer so and offer to ask a colleague. Never promise a date of delivery, never name a price that \
    is not in the catalogue, and do not speak about other shops.";

const EARLIER: &str = "I bought the pruning saw with the curved blade last spring, and after a season in the \
    orchard it does not cut as it did. Can the blade be sharpened at home, or is it one of those with hardened \
    teeth that have to be replaced?";

const LAST: &str = "Thank you. If it has to be replaced: does the blade of the longer model fit into the handle \
    that I have, and is there anything I should look out for when I change it?";

impl Speed {
    fn in_words(self) -> String {
        match self {
            Self::Whole => "[[upstream whole]]".into(),
            Self::After(pause) => format!("[[upstream after {pause}]]"),
            Self::AtOnce => "[[upstream at-once]]".into(),
            Self::Paced(pause) => format!("[[upstream paced {pause}]]"),
            Self::Held => "[[upstream held]]".into(),
        }
    }

    /// The speed that a body asks for, if it names one.
    pub fn named_in(body: &[u8]) -> Option<Self> {
        let from = memchr::memmem::find(body, MARK)? + MARK.len();
        let words = body.get(from..)?;
        let words =
            str::from_utf8(words.get(..words.iter().position(|byte| *byte == b']')?)?).ok()?;
        match words.split_once(' ') {
            None if words == "whole" => Some(Self::Whole),
            None if words == "at-once" => Some(Self::AtOnce),
            None if words == "held" => Some(Self::Held),
            Some(("after", pause)) => pause.parse().ok().map(Self::After),
            Some(("paced", pause)) => pause.parse().ok().map(Self::Paced),
            _ => None,
        }
    }
}

/// A request body for this model.
pub fn body(api: Api, model: &str, speed: Speed) -> String {
    let mut messages = vec![
        json!({ "role": "user", "content": EARLIER }),
        json!({ "role": "user", "content": format!("{LAST} {}", speed.in_words()) }),
    ];
    if api == Api::Chat {
        messages.insert(0, json!({ "role": "system", "content": SYSTEM }));
    }
    let mut body = json!({
        "model": model,
        "messages": messages,
        "temperature": 0.3,
        "max_tokens": 256,
        "stream": !matches!(speed, Speed::Whole | Speed::After(_)),
    });
    if api == Api::Messages {
        body["system"] = json!(SYSTEM);
    }
    body.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_its_speed() {
        for speed in [
            Speed::Whole,
            Speed::After(50),
            Speed::AtOnce,
            Speed::Paced(20),
            Speed::Held,
        ] {
            for api in [Api::Chat, Api::Messages] {
                let body = body(api, "m", speed);
                assert_eq!(Speed::named_in(body.as_bytes()), Some(speed));
            }
        }
        assert_eq!(Speed::named_in(b"{}"), None);
    }
}
