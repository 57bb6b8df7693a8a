//! One question to a provider: the first answer that some upstream gives.

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
        deployments::{Asking, Deployment},
    },
    wire::{
        chat::{Answer, Choice, FinishReason, Usage},
        error::UpstreamError,
        json_text::JsonText,
        part::Part,
    },
};

/// A whole answer, with what is charged for it; no usage where the provider reported none that can be true.
pub async fn for_answer(
    attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<Answer, UpstreamError> {
    let mut answer = best_of(Whole, attempts, call, admitted).await?;
    answer.usage = answer
        .usage
        .map(|reported| admitted.charged(call, reported));
    Ok(answer)
}

/// A streamed answer, read up to where `reader` has enough to begin with: nothing of it has left
/// yet, so until then another upstream can be asked instead, or another model.
pub async fn for_parts<R: Reader>(
    attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted<'_>,
    reader: fn(&ChatCall) -> R,
) -> Result<Opened<R>, UpstreamError> {
    best_of(Beginning(reader), attempts, call, admitted).await
}

/// A question that can be put to one model after the other.
trait Question {
    type Said;

    /// What one upstream says to it.
    async fn ask(
        &self,
        call: &ChatCall,
        deployment: &Deployment,
    ) -> Result<Self::Said, UpstreamError>;

    /// Why a better model should rather be asked.
    fn lacks(&self, call: &ChatCall, said: &Self::Said) -> Option<UpstreamError>;

    /// What the provider has counted for it, as far as that is known.
    fn used(&self, said: &Self::Said) -> Option<Usage>;
}

/// Asks the call's model, and others when it fails. Somebody better is asked once where an answer is
/// poor; if that fails, a poor answer is better than none.
async fn best_of<Q: Question>(
    question: Q,
    mut attempts: Attempts<'_>,
    call: &mut ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<Q::Said, UpstreamError> {
    let mut poor: Option<Poor<Q::Said>> = None;
    loop {
        let error = match one_model(&question, &mut attempts, call, admitted).await {
            Ok((said, asking)) => {
                if let Some(error) = question.lacks(call, &said).filter(|_| poor.is_none()) {
                    let target = call.route.target.clone();
                    if attempts.escalates(call, &error, admitted, true) {
                        let deployment = asking.deployment.clone();
                        attempts.disappointed(asking, &error, admitted);
                        poor = Some(Poor {
                            said,
                            target,
                            deployment,
                        });
                        continue;
                    }
                }
                attempts.answered(asking);
                if let Some(poor) = poor {
                    admitted.discards(&poor.deployment, question.used(&poor.said));
                }
                return Ok(said);
            }
            Err(error) => error,
        };
        if !attempts.escalates(call, &error, admitted, poor.is_some()) {
            let poor = poor.ok_or(error)?;
            call.return_to(poor.target);
            admitted.goes_to(&call.route);
            admitted.asks(&poor.deployment);
            return Ok(poor.said);
        }
    }
}

/// An answer that somebody better might improve on, and whose it is.
struct Poor<T> {
    said: T,
    target: Arc<Model>,
    deployment: Arc<Deployment>,
}

/// What a model says: one of its upstreams after the other is asked.
async fn one_model<Q: Question>(
    question: &Q,
    attempts: &mut Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<(Q::Said, Asking), UpstreamError> {
    loop {
        let asking = attempts.next(call, admitted)?;
        match question.ask(call, &asking.deployment).await {
            Ok(said) => return Ok((said, asking)),
            Err(error) => attempts.failed(asking, error, call, admitted).await?,
        }
    }
}

struct Whole;

impl Question for Whole {
    type Said = Answer;

    async fn ask(
        &self,
        call: &ChatCall,
        deployment: &Deployment,
    ) -> Result<Self::Said, UpstreamError> {
        let longest = deployment.longest;
        let asked = tokio::time::timeout(longest, whole(call, deployment)).await;
        asked.unwrap_or(Err(UpstreamError::TooLong(longest)))
    }

    fn lacks(&self, call: &ChatCall, answer: &Self::Said) -> Option<UpstreamError> {
        let mut choices = answer.choices.iter();
        if choices.clone().all(says_nothing) {
            return Some(UpstreamError::Empty);
        }
        let wants_json = call.response_format.is_some() && call.route.can_improve();
        (wants_json && choices.any(is_not_json)).then_some(UpstreamError::NotJson)
    }

    fn used(&self, answer: &Self::Said) -> Option<Usage> {
        answer.usage
    }
}

/// A stream, up to where a reader has enough of it.
struct Beginning<R>(fn(&ChatCall) -> R);

impl<R: Reader> Question for Beginning<R> {
    type Said = Opened<R>;

    async fn ask(
        &self,
        call: &ChatCall,
        deployment: &Deployment,
    ) -> Result<Self::Said, UpstreamError> {
        let longest = deployment.longest;
        let mut time_left = TimeLeft {
            longest,
            left: longest,
        };
        let begun = begin(call, deployment, (self.0)(call), &mut time_left);
        let (parts, reader) = begun.await?;
        Ok(Opened {
            parts,
            reader,
            time_left,
        })
    }

    fn lacks(&self, _: &ChatCall, opened: &Self::Said) -> Option<UpstreamError> {
        opened.reader.is_silent().then_some(UpstreamError::Empty)
    }

    /// It is counted at its end, which is not read.
    fn used(&self, _: &Self::Said) -> Option<Usage> {
        None
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
    fn timeout(&self) -> Option<Duration>;
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
        let next = within(reader.timeout(), parts.next());
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
async fn within<T>(timeout: Option<Duration>, waiting: impl Future<Output = T>) -> Option<T> {
    match timeout {
        Some(timeout) => tokio::time::timeout(timeout, waiting).await.ok(),
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
