//! One step of a call: asks the model's deployments, and other models of a hybrid, until one answers.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use super::{Admitted, attempts::Attempts};
use crate::{
    catalog::Model,
    prompt::ChatCall,
    upstream::{
        Parts,
        deployments::{Deployment, RunningAttempt},
    },
    wire::{
        chat::{Answer, Choice, FinishReason, Usage},
        error::UpstreamError,
        json_text::JsonText,
        part::Part,
    },
};

/// A whole answer with the usage that is billed; `None` if the provider reported none, or an implausible one.
pub(crate) async fn for_answer(
    attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted,
) -> Result<Answer, UpstreamError> {
    let mut answer = best_of(Whole, attempts, call, admitted).await?;
    answer.usage = answer
        .usage
        .map(|reported| admitted.billable(call, reported));
    admitted.spans.answered(&answer);
    Ok(answer)
}

/// A streamed answer, read until `reader` has enough of it. Nothing has been sent to the client by then, so another
/// deployment or model can still be tried instead.
pub(crate) async fn for_parts<R: Reader>(
    attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted,
    reader: fn(&ChatCall) -> R,
) -> Result<Opened<R>, UpstreamError> {
    best_of(Beginning(reader), attempts, call, admitted).await
}

/// A way to ask a deployment: for a whole answer or for the beginning of a stream.
trait Question {
    type Answer;

    /// Makes one attempt.
    async fn ask(
        &self,
        call: &ChatCall,
        deployment: &Deployment,
    ) -> Result<Self::Answer, UpstreamError>;

    /// Why a better model should be tried instead, if one should.
    fn defect(&self, call: &ChatCall, answer: &Self::Answer) -> Option<UpstreamError>;

    /// The reported usage, as far as it is known.
    fn usage(&self, answer: &Self::Answer) -> Option<Usage>;

    /// When the first part of a stream arrived that is output ([`Part::is_token`]).
    fn first_part_at(&self, answer: &Self::Answer) -> Option<Instant>;
}

/// Asks the call's model, and a hybrid's other targets if it fails. After a poor answer a better model is tried once;
/// if that fails, the poor answer is used.
async fn best_of<Q: Question>(
    question: Q,
    mut attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted,
) -> Result<Q::Answer, UpstreamError> {
    let mut poor: Option<Poor<Q::Answer>> = None;
    loop {
        let error = match one_model(&question, &mut attempts, call, admitted).await {
            Ok((answer, attempt)) => {
                if let Some(error) = question.defect(call, &answer).filter(|_| poor.is_none()) {
                    let target = call.route.target.clone();
                    if attempts.escalates(call, &error, admitted, true) {
                        admitted.spans.discarded(question.usage(&answer));
                        let deployment = attempt.deployment.clone();
                        attempts.rejected_answer(attempt, &error, admitted);
                        poor = Some(Poor {
                            answer,
                            target,
                            deployment,
                        });
                        continue;
                    }
                }
                admitted.spans.first_chunk(question.first_part_at(&answer));
                attempts.answered(attempt);
                if let Some(poor) = poor {
                    admitted.add_discarded(&poor.deployment, question.usage(&poor.answer));
                }
                return Ok(answer);
            }
            Err(error) => error,
        };
        if !attempts.escalates(call, &error, admitted, poor.is_some()) {
            let poor = poor.ok_or(error)?;
            call.return_to(poor.target);
            admitted.set_route(&call.route);
            admitted.set_deployment(&poor.deployment);
            return Ok(poor.answer);
        }
    }
}

/// An answer that a better model might improve on, with the model and deployment that gave it.
struct Poor<T> {
    answer: T,
    target: Arc<Model>,
    deployment: Arc<Deployment>,
}

/// Asks the deployments of one model, one after the other.
async fn one_model<Q: Question>(
    question: &Q,
    attempts: &mut Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted,
) -> Result<(Q::Answer, RunningAttempt), UpstreamError> {
    loop {
        let attempt = attempts.next(call, admitted)?;
        match question.ask(call, &attempt.deployment).await {
            Ok(answer) => return Ok((answer, attempt)),
            Err(error) => attempts.failed(attempt, error, call, admitted).await?,
        }
    }
}

struct Whole;

impl Question for Whole {
    type Answer = Answer;

    async fn ask(
        &self,
        call: &ChatCall,
        deployment: &Deployment,
    ) -> Result<Self::Answer, UpstreamError> {
        let longest = deployment.total_timeout;
        let answer = tokio::time::timeout(longest, whole(call, deployment)).await;
        answer.unwrap_or(Err(UpstreamError::TooLong(longest)))
    }

    fn defect(&self, call: &ChatCall, answer: &Self::Answer) -> Option<UpstreamError> {
        let mut choices = answer.choices.iter();
        if choices.clone().all(is_empty) {
            return Some(UpstreamError::Empty);
        }
        let wants_json = call.response_format.is_some() && call.route.can_improve();
        (wants_json && choices.any(is_not_json)).then_some(UpstreamError::NotJson)
    }

    fn usage(&self, answer: &Self::Answer) -> Option<Usage> {
        answer.usage
    }

    fn first_part_at(&self, _: &Self::Answer) -> Option<Instant> {
        None
    }
}

/// The beginning of a stream, up to where a reader has enough of it.
struct Beginning<R>(fn(&ChatCall) -> R);

impl<R: Reader> Question for Beginning<R> {
    type Answer = Opened<R>;

    async fn ask(
        &self,
        call: &ChatCall,
        deployment: &Deployment,
    ) -> Result<Self::Answer, UpstreamError> {
        let longest = deployment.total_timeout;
        let mut time_left = TimeLeft {
            longest,
            left: longest,
        };
        let begun = begin(call, deployment, (self.0)(call), &mut time_left);
        let (parts, reader, first_part_at) = begun.await?;
        Ok(Opened {
            parts,
            reader,
            time_left,
            first_part_at,
        })
    }

    fn defect(&self, _: &ChatCall, opened: &Self::Answer) -> Option<UpstreamError> {
        opened.reader.is_silent().then_some(UpstreamError::Empty)
    }

    /// Unknown: a stream reports usage at its end, which is not read.
    fn usage(&self, _: &Self::Answer) -> Option<Usage> {
        None
    }

    fn first_part_at(&self, opened: &Self::Answer) -> Option<Instant> {
        opened.first_part_at
    }
}

async fn whole(call: &ChatCall, deployment: &Deployment) -> Result<Answer, UpstreamError> {
    let mut answer = deployment
        .provider
        .complete(call, &deployment.upstream_model)
        .await?;
    answer.usage = answer.usage.filter(|usage| is_plausible(call, *usage));
    Ok(answer)
}

/// Whether a finished choice is not valid JSON.
fn is_not_json(choice: &Choice) -> bool {
    let content = choice.content.as_ref().map(JsonText::decode);
    let is_json = |text: String| serde_json::from_str::<IgnoredAny>(&text).is_ok();
    choice.finish == FinishReason::Stop && !content.is_some_and(is_json)
}

/// Whether a finished choice is empty. One that ran out of tokens does not count: a larger model would run out as well.
fn is_empty(choice: &Choice) -> bool {
    let silent = choice.content.as_ref().is_none_or(JsonText::is_empty);
    silent && choice.tool_calls.is_empty() && choice.finish == FinishReason::Stop
}

/// Reads the beginning of a streamed answer.
pub(crate) trait Reader {
    /// Takes a part; returns whether that is enough to start the response.
    fn read(&mut self, part: Part) -> Result<bool, UpstreamError>;

    /// The stream ended before there was enough.
    fn end(&mut self) -> Result<(), UpstreamError>;

    /// The stream broke off. Returns the error unless the response can start with what has arrived.
    fn broke(&mut self, error: UpstreamError) -> Result<(), UpstreamError>;

    /// Whether the answer ended and is empty.
    fn is_silent(&self) -> bool;

    /// How long to wait for the next part before what has arrived counts as enough.
    fn timeout(&self) -> Option<Duration>;
}

/// A stream that has begun.
pub(crate) struct Opened<R> {
    pub parts: Parts,
    pub reader: R,
    pub time_left: TimeLeft,
    first_part_at: Option<Instant>,
}

async fn begin<R: Reader>(
    call: &ChatCall,
    deployment: &Deployment,
    mut reader: R,
    time_left: &mut TimeLeft,
) -> Result<(Parts, R, Option<Instant>), UpstreamError> {
    let opening = deployment.provider.stream(call, &deployment.upstream_model);
    let mut parts = time_left.of(opening).await??;
    let mut first_part_at = None;
    loop {
        let next = within(reader.timeout(), parts.next());
        let enough = match time_left.of(next).await {
            Ok(Some(Some(Ok(part)))) => {
                if part.is_token() {
                    first_part_at.get_or_insert_with(Instant::now);
                }
                reader.read(part)?
            }
            Ok(Some(Some(Err(error)))) | Err(error) => reader.broke(error).map(|()| true)?,
            Ok(Some(None)) => reader.end().map(|()| true)?,
            Ok(None) => true,
        };
        if enough {
            return Ok((parts, reader, first_part_at));
        }
    }
}

/// `None` after a timeout.
async fn within<T>(timeout: Option<Duration>, waiting: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, waiting).await.ok(),
        None => Some(waiting.await),
    }
}

/// Whether a usage report is possible for this call. One of more tokens than the model can read or write is a
/// provider's mistake that the customer does not pay.
pub(crate) fn is_plausible(call: &ChatCall, usage: Usage) -> bool {
    let target = &call.route.target;
    let most = u64::from(call.choices()) * u64::from(target.max_output);
    u64::from(usage.completion) <= most + most / 20 && usage.prompt <= target.context_length
}

/// What is left of the provider's time for a whole call. Time spent waiting for a slow client does not count.
pub(crate) struct TimeLeft {
    longest: Duration,
    left: Duration,
}

impl TimeLeft {
    pub(crate) async fn of<T>(
        &mut self,
        waiting: impl Future<Output = T>,
    ) -> Result<T, UpstreamError> {
        let started = Instant::now();
        let done = tokio::time::timeout(self.left, waiting).await;
        self.left = self.left.saturating_sub(started.elapsed());
        done.map_err(|_| UpstreamError::TooLong(self.longest))
    }
}
