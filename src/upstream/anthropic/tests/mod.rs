//! The translation as a whole: fixtures to read, and properties of any conversation.

mod answers;
mod conversations;
mod fixtures;

use std::collections::VecDeque;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{events::Messages, request};
use crate::{
    catalog::Catalog,
    chat::{self, ChatCall, Route},
    error::UpstreamError,
    upstream::{
        Event, Part, SseReader,
        stream::{Then, Translator as _},
    },
    wire::chat::ChatRequest,
};

/// The call that a caller's body makes.
fn call(body: &[u8]) -> ChatCall {
    let mut request = ChatRequest::parse(body).unwrap();
    let model = Catalog::built_in().find(&request.model).unwrap().clone();
    let route = Route {
        requested: model.clone(),
        target: model,
    };
    let settings = std::mem::take(&mut request.sampling);
    let settings = settings.checked(|parameter| route.drops(parameter));
    chat::prepare(request, settings.unwrap(), route, None, "acct_1").unwrap()
}

/// The body that goes upstream for a caller's.
fn sent(body: &[u8]) -> Value {
    let call = call(body);
    let written = request::write(&call, "vendor-model-9", call.stream);
    serde_json::from_slice(&written).unwrap()
}

/// The parts of a stream that arrives in these pieces, and how it failed if it did.
fn parts<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Part>, Option<UpstreamError>) {
    let (mut sse, mut messages) = (SseReader::default(), Messages::default());
    let mut parts = VecDeque::new();
    for piece in pieces {
        sse.push(piece);
        while let Some(Event(data)) = sse.next_event().unwrap() {
            match messages.on_event(&data, &mut parts) {
                Ok(Then::GoOn) => {}
                Ok(Then::End) => return (parts.into(), None),
                Err(error) => return (parts.into(), Some(error)),
            }
        }
    }
    (parts.into(), None)
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zü😀\"\\\\\n ]{0,12}",
        1 => Just(String::new()),
        1 => Just(" \n\t".to_owned()),
        1 => Just("\u{0}\u{2028}".to_owned()),
    ]
}

fn arguments() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        any::<i64>().prop_map(Value::from),
        text().prop_map(Value::from),
        Just(json!([null, { "deep": [true] }])),
    ];
    let object = prop::collection::vec(("[a-z]{1,4}", value), 0..4);
    object.prop_map(|fields| Value::Object(fields.into_iter().collect()))
}
