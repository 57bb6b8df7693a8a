//! Built-in provider for `tollgate dev`, tests and experiments, without network or cost.
//!
//! Responses and usage are deterministic. Anything but a plain response, failures included, is requested by
//! [`directives`] in the last user message.

mod answer;
mod directives;
mod example;
mod tokens;

use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use self::directives::Directives;
use super::Parts;
use crate::{
    prompt::ChatCall,
    wire::{chat::Answer, error::UpstreamError, json_text::JsonText},
};

/// Longest delay of a non-streamed response.
const MAX_DELAY: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub struct Simulator;

impl Simulator {
    pub(crate) async fn complete(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Answer, UpstreamError> {
        let directives = start(call, model).await?;
        let answer = answer::compose(call, &directives);
        if let Some(after) = directives.drop_after {
            return Err(interrupted(after));
        }
        let delay = directives
            .delay
            .saturating_mul(tokens::content_pieces(&answer));
        tokio::time::sleep(delay.min(MAX_DELAY)).await;
        Ok(answer)
    }

    pub(crate) async fn stream(
        &self,
        call: &ChatCall,
        model: &str,
    ) -> Result<Parts, UpstreamError> {
        let directives = start(call, model).await?;
        let answer = answer::compose(call, &directives);
        let parts = tokens::stream_parts(answer).map(Ok);
        let cut = directives.drop_after.unwrap_or(usize::MAX);
        let parts = parts
            .take(cut)
            .chain(directives.drop_after.map(|after| Err(interrupted(after))));
        let delay = directives.delay;
        let paced = stream::iter(parts).then(move |part| async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            part
        });
        Ok(paced.boxed())
    }
}

/// Parses the directives, and applies those that come before the response: the first delay and the status.
async fn start(call: &ChatCall, model: &str) -> Result<Directives, UpstreamError> {
    let text = call
        .last_user_text()
        .map(JsonText::decode)
        .unwrap_or_default();
    let directives = Directives::read(&text);
    tokio::time::sleep(directives.first).await;
    if let Some(status) = directives.status {
        return Err(UpstreamError::Status {
            status,
            reason: None,
            retry_after: None,
            about_us: false,
        });
    }
    if let Some(trace) = &call.trace {
        trace.answered_by(model);
    }
    Ok(directives)
}

fn interrupted(after: usize) -> UpstreamError {
    UpstreamError::Broken(format!("simulated after {after} chunks"))
}
