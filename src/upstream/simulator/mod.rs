//! A provider inside the program: for `tollgate dev`, for tests, for trying things out.
//!
//! The same request always gets the same answer and the same usage. What it does beyond a plain
//! answer is asked for in the last user message: see [`directives`].

mod answer;
mod directives;
mod example;
mod pace;

use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use self::directives::Directives;
use super::Parts;
use crate::{
    prompt::ChatCall,
    wire::{chat::Answer, error::UpstreamError, json_text::JsonText},
};

/// The longest that an answer in one piece is held back.
const MAX_PAUSE: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub struct Simulator;

impl Simulator {
    pub async fn complete(&self, call: &ChatCall) -> Result<Answer, UpstreamError> {
        let script = begin(call).await?;
        let answer = answer::compose(call, &script);
        if let Some(after) = script.drop_after {
            return Err(broken(after));
        }
        let pause = script.delay.saturating_mul(pace::pieces(&answer));
        tokio::time::sleep(pause.min(MAX_PAUSE)).await;
        Ok(answer)
    }

    pub async fn stream(&self, call: &ChatCall) -> Result<Parts, UpstreamError> {
        let script = begin(call).await?;
        let answer = answer::compose(call, &script);
        let parts = pace::parts(answer).map(Ok);
        let cut = script.drop_after.unwrap_or(usize::MAX);
        let parts = parts
            .take(cut)
            .chain(script.drop_after.map(|after| Err(broken(after))));
        let delay = script.delay;
        let paced = stream::iter(parts).then(move |part| async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            part
        });
        Ok(paced.boxed())
    }
}

/// What happens before the first byte of an answer.
async fn begin(call: &ChatCall) -> Result<Directives, UpstreamError> {
    let text = call
        .last_user_text()
        .map(JsonText::decode)
        .unwrap_or_default();
    let script = Directives::read(&text);
    tokio::time::sleep(script.first).await;
    match script.status {
        Some(status) => Err(UpstreamError::Status {
            status,
            reason: None,
            retry_after: None,
            about_us: false,
        }),
        None => Ok(script),
    }
}

fn broken(after: usize) -> UpstreamError {
    UpstreamError::Broken(format!("as directed, after {after} chunks"))
}
