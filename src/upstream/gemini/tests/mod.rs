//! Tests of the translation in both directions: fixtures with snapshots, and properties.

mod golden;
mod properties;

use std::sync::Arc;

use serde_json::Value;

use super::{call_cache::CallCache, events::EventTranslator};
use crate::upstream::testing;

fn request(body: &Value, upstream_model: &str, calls: &CallCache) -> Value {
    let call = testing::call(body.to_string().as_bytes());
    let body = super::request::write(&call, upstream_model, calls);
    serde_json::from_slice(&body).unwrap()
}

/// A whole response as a caller gets it, or the failure.
fn answer(body: &[u8], n: u32) -> Result<Value, String> {
    let answer = super::answer::read(body, n, &CallCache::default());
    let answer = answer.map_err(|error| error.to_string())?;
    let usage = answer.usage.ok_or("no usage to bill by")?;
    let bill = Some(testing::bill(usage));
    let json = answer.to_json("chatcmpl-1", 1, testing::MODEL, bill, true);
    Ok(serde_json::from_slice(&json).unwrap())
}

/// The frames that a caller gets for a stream in these pieces, and the error that ended it, if any.
fn frames(pieces: &[&[u8]], n: u32) -> (Vec<String>, Option<String>) {
    let events = EventTranslator::new(n, Arc::new(CallCache::default()));
    testing::frames(testing::parts(events, pieces.iter().copied()), n)
}
