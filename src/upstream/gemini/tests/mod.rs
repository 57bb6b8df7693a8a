//! The whole translation, there and back.

mod golden;
mod properties;

use std::sync::Arc;

use serde_json::Value;

use super::calls::Calls;
use crate::{
    catalog::Catalog,
    chat::{self, ChatCall, Route},
    metered::Shape,
    upstream::{
        SseReader,
        stream::{Then, Translator as _},
    },
    wire::chat::{ChatRequest, Frames},
};

/// A chat request as it reaches a provider.
fn call(body: &Value) -> ChatCall {
    let mut request = ChatRequest::parse(body.to_string().as_bytes()).unwrap();
    let model = Catalog::built_in().find(&request.model).unwrap().clone();
    let route = Route {
        requested: model.clone(),
        target: model,
    };
    let sampling = std::mem::take(&mut request.sampling);
    let settings = sampling.checked(|_| false).unwrap();
    chat::prepare(request, settings, route, None, "acct_1").unwrap()
}

fn request(body: &Value, upstream_model: &str, calls: &Calls) -> Value {
    let body = super::request::write(&call(body), upstream_model, calls);
    serde_json::from_slice(&body).unwrap()
}

/// A whole answer as a caller gets it, or what was wrong with it.
fn answer(body: &[u8], n: u32) -> Result<Value, String> {
    let answer = super::answer::read(body, n, &Calls::default());
    let answer = answer.map_err(|error| error.to_string())?;
    let usage = answer.usage.ok_or("no usage to bill by")?;
    let json = answer.to_json("chatcmpl-1", 1, "svc-native-fast", usage, true);
    Ok(serde_json::from_slice(&json).unwrap())
}

/// The frames that a caller gets for a stream, and what ended it early.
///
/// The bytes come in pieces that end at `cuts`.
fn frames(bytes: &[u8], n: u32, cuts: &[usize]) -> (Vec<String>, Option<String>) {
    let mut shape = Shape::new(Frames::new("chatcmpl-1", 1, "svc-native-fast"), n);
    let failure = read_into(&mut shape, bytes, n, cuts).err();
    let frames = shape.take_ready();
    let frames = frames.map(|frame| String::from_utf8(frame.to_vec()).unwrap());
    (frames.collect(), failure)
}

fn read_into(shape: &mut Shape, bytes: &[u8], n: u32, cuts: &[usize]) -> Result<(), String> {
    let mut events = super::events::Events::new(n, Arc::new(Calls::default()));
    let mut sse = SseReader::default();
    let mut parts = std::collections::VecDeque::new();
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let mut start = 0;
    for end in ends {
        sse.push(&bytes[start..end]);
        start = end;
        while let Some(event) = sse.next_event().unwrap() {
            let then = events.on_event(&event.0, &mut parts);
            assert_eq!(then.map_err(|error| error.to_string())?, Then::GoOn);
            for part in parts.drain(..) {
                shape.on_part(part).unwrap();
            }
        }
    }
    shape.on_end(true, true).map_err(|error| error.to_string())
}

/// With `call_1`, `call_2`, … in the place of our random IDs.
fn numbered(text: &str) -> String {
    let mut pieces = text.split("call_");
    let mut numbered = pieces.next().unwrap().to_owned();
    let mut ids = Vec::new();
    for piece in pieces {
        let random = |id: &&str| id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let Some(id) = piece.get(..24).filter(random) else {
            numbered.extend(["call_", piece]);
            continue;
        };
        let known = ids.iter().position(|known| *known == id);
        let number = known.unwrap_or_else(|| {
            ids.push(id);
            ids.len() - 1
        });
        numbered.extend(["call_", &(number + 1).to_string(), &piece[24..]]);
    }
    numbered
}
