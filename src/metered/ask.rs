//! One question to a provider: the first answer that some upstream gives.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use super::{Admitted, attempts::Attempts};
use crate::{
    chat::ChatCall,
    error::UpstreamError,
    routing::{Asking, Deployment},
    upstream::{Part, Parts},
    wire::{
        chat::{Answer, Choice, FinishReason, Usage},
        json_text::JsonText,
    },
};

/// A whole answer, and what it used.
pub async fn for_answer(
    mut attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<(Answer, Usage), UpstreamError> {
    // Somebody better is asked once instead. If that fails, a poor answer is better than none.
    let mut poor = None;
    loop {
        let target = call.route.target.clone();
        let error = match once(&mut attempts, call, admitted).await {
            Ok((answer, asking)) => {
                let lack = disappointment(call, &answer.0).filter(|_| poor.is_none());
                match lack {
                    Some(error) if attempts.escalates(call, &error, admitted) => {
                        attempts.disappointed(asking, &error, admitted);
                        poor = Some((answer, target));
                        continue;
                    }
                    _ => {
                        attempts.answered(asking);
                        return Ok(answer);
                    }
                }
            }
            Err(error) => error,
        };
        let settles = poor.is_some() && !call.route.can_improve();
        if settles || !attempts.escalates(call, &error, admitted) {
            let (answer, target) = poor.ok_or(error)?;
            call.returns(target);
            admitted.goes_to(&call.route);
            return Ok(answer);
        }
    }
}

/// What a model answers: one of its upstreams after the other is asked.
async fn once(
    attempts: &mut Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<((Answer, Usage), Asking), UpstreamError> {
    loop {
        let asking = attempts.next(admitted)?;
        let longest = asking.deployment.longest;
        let asked = tokio::time::timeout(longest, whole(call, &asking.deployment)).await;
        match asked.unwrap_or(Err(UpstreamError::TooLong(longest))) {
            Ok(answer) => return Ok((answer, asking)),
            Err(error) => attempts.failed(asking, error, admitted).await?,
        }
    }
}

async fn whole(call: &ChatCall, deployment: &Deployment) -> Result<(Answer, Usage), UpstreamError> {
    let answer = deployment
        .provider
        .complete(call, &deployment.upstream_model)
        .await?;
    // Usage is a promised field (SPEC §2.5) and the ground of the bill: without it there is no
    // answer to give.
    let usage = answer.usage.filter(|usage| is_plausible(call, *usage));
    let usage = usage.ok_or_else(|| UpstreamError::Malformed("no usage to bill by".into()))?;
    Ok((answer, usage))
}

/// Why a better model should rather be asked.
fn disappointment(call: &ChatCall, answer: &Answer) -> Option<UpstreamError> {
    if !call.route.can_improve() {
        return None;
    }
    let mut choices = answer.choices.iter();
    if choices.clone().all(says_nothing) {
        return Some(UpstreamError::Empty);
    }
    let wants_json = call.response_format.is_some();
    (wants_json && choices.any(is_not_json)).then_some(UpstreamError::NotJson)
}

/// A choice that was finished and is no JSON.
fn is_not_json(choice: &Choice) -> bool {
    let content = choice.content.as_ref().map(JsonText::decode);
    let is_json = |text: String| serde_json::from_str::<IgnoredAny>(&text).is_ok();
    choice.finish == FinishReason::Stop && !content.is_some_and(is_json)
}

/// A choice that was finished and has nothing in it. One that ran out of tokens is not meant: a
/// larger model would run out of them as well.
fn says_nothing(choice: &Choice) -> bool {
    let silent = choice.content.as_ref().is_none_or(JsonText::is_empty);
    silent && choice.tool_calls.is_empty() && choice.finish == FinishReason::Stop
}

/// A streamed answer, read up to where `reader` has enough to begin with: nothing of it has left
/// yet, so until then another upstream can be asked instead, or another model.
pub async fn for_parts<R: Reader>(
    mut attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted<'_>,
    reader: impl Fn(&ChatCall) -> R,
) -> Result<Opened<R>, UpstreamError> {
    loop {
        let error = match opened(&mut attempts, call, admitted, &reader).await {
            Ok((opened, asking)) => {
                let silent = opened.reader.is_silent() && call.route.can_improve();
                if !silent || !attempts.escalates(call, &UpstreamError::Empty, admitted) {
                    attempts.answered(asking);
                    return Ok(opened);
                }
                attempts.disappointed(asking, &UpstreamError::Empty, admitted);
                continue;
            }
            Err(error) => error,
        };
        if !attempts.escalates(call, &error, admitted) {
            return Err(error);
        }
    }
}

/// What a model begins to say: one of its upstreams after the other is asked.
async fn opened<R: Reader>(
    attempts: &mut Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted<'_>,
    reader: impl Fn(&ChatCall) -> R,
) -> Result<(Opened<R>, Asking), UpstreamError> {
    loop {
        let asking = attempts.next(admitted)?;
        let longest = asking.deployment.longest;
        let mut time_left = TimeLeft {
            longest,
            left: longest,
        };
        let begun = begin(call, &asking.deployment, reader(call), &mut time_left);
        match begun.await {
            Ok((parts, reader)) => {
                let opened = Opened {
                    parts,
                    reader,
                    time_left,
                };
                return Ok((opened, asking));
            }
            Err(error) => attempts.failed(asking, error, admitted).await?,
        }
    }
}

/// What reads the beginning of a streamed answer.
pub trait Reader {
    /// Whether that was enough to begin with.
    fn read(&mut self, part: Part) -> Result<bool, UpstreamError>;

    /// The answer is over before it was enough.
    fn end(&mut self) -> Result<(), UpstreamError>;

    /// The answer broke off; whether that is still part of it is up to the reader.
    fn broke(&mut self, error: UpstreamError) -> Result<(), UpstreamError>;

    /// Whether the answer is over and has nothing in it.
    fn is_silent(&self) -> bool;

    /// After how long a silence what there is counts as enough.
    fn patience(&self) -> Option<Duration>;
}

/// A stream that has begun.
pub struct Opened<R> {
    pub parts: Parts,
    pub reader: R,
    pub time_left: TimeLeft,
}

async fn begin<R: Reader>(
    call: &ChatCall,
    deployment: &Deployment,
    mut reader: R,
    time_left: &mut TimeLeft,
) -> Result<(Parts, R), UpstreamError> {
    let asked = deployment.provider.stream(call, &deployment.upstream_model);
    let mut parts = time_left.of(asked).await??;
    loop {
        let next = within(reader.patience(), parts.next());
        let enough = match time_left.of(next).await {
            Ok(Some(Some(Ok(part)))) => reader.read(part)?,
            Ok(Some(Some(Err(error)))) | Err(error) => reader.broke(error).map(|()| true)?,
            Ok(Some(None)) => reader.end().map(|()| true)?,
            Ok(None) => true,
        };
        if enough {
            return Ok((parts, reader));
        }
    }
}

/// `None` if it takes longer.
async fn within<T>(patience: Option<Duration>, waiting: impl Future<Output = T>) -> Option<T> {
    match patience {
        Some(patience) => tokio::time::timeout(patience, waiting).await.ok(),
        None => Some(waiting.await),
    }
}

/// Whether these counts can be true of this call. A bill of more than a model can say or read is a
/// provider's mistake, and not the customer's to pay.
pub fn is_plausible(call: &ChatCall, usage: Usage) -> bool {
    let target = &call.route.target;
    let most = u64::from(call.choices()) * u64::from(target.max_output);
    u64::from(usage.completion) <= most + most / 20 && usage.prompt <= target.context_length
}

/// What a provider has left of the time for a whole call. The time in which it waits for a slow
/// client is not its own.
pub struct TimeLeft {
    longest: Duration,
    left: Duration,
}

impl TimeLeft {
    pub async fn of<T>(&mut self, waiting: impl Future<Output = T>) -> Result<T, UpstreamError> {
        let started = Instant::now();
        let done = tokio::time::timeout(self.left, waiting).await;
        self.left = self.left.saturating_sub(started.elapsed());
        done.map_err(|_| UpstreamError::TooLong(self.longest))
    }
}
