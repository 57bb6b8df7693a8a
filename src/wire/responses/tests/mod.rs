//! Tests of whole requests and whole responses.

#![expect(
    clippy::needless_pass_by_value,
    reason = "json!(…) as an argument reads best without a reference"
)]

use serde_json::{Value, json};

use super::{NewResponse, ResponsesRequest, ToolNames, echo::Echo};
use crate::{
    base::money::NanoUsd,
    wire::{
        chat::{Bill, Message, Usage},
        error::GatewayError,
    },
};

mod answers;
mod items;
mod requests;
mod streams;
mod tools;

const USAGE: Usage = Usage {
    prompt: 11,
    cached: 4,
    cache_write: 2,
    cache_write_1h: 0,
    completion: 3,
    reasoning: 1,
};

const BILL: Bill = Bill {
    usage: USAGE,
    cost: NanoUsd::new(4_200_000),
};

/// Parses the smallest request, with fields added or replaced.
fn parse(more: Value) -> Result<ResponsesRequest, GatewayError> {
    let mut body = json!({ "model": "m", "input": "Hi" });
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    ResponsesRequest::parse(body.to_string().as_bytes())
}

/// Messages in the form in which they are stored.
fn messages_json(messages: &[Message]) -> Value {
    serde_json::from_str(&Message::write_all(messages)).unwrap()
}

/// The field that the error for an invalid request names.
#[track_caller]
fn refused(more: Value) -> String {
    let error = parse(more.clone()).map(|_| ()).unwrap_err();
    let GatewayError::InvalidRequest { param, .. } = error else {
        panic!("{more}: {error}");
    };
    param.unwrap_or_default()
}

fn new_response() -> NewResponse {
    NewResponse {
        id: "resp_1".into(),
        created_at: 100,
        echo: Echo {
            model: "m".into(),
            ..Echo::default()
        },
        names: ToolNames::default(),
    }
}
