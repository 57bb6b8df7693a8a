//! One question to a provider: the first answer that some upstream gives.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::time::Instant;

use super::{Admitted, attempts::Attempts};
use crate::{
    chat::ChatCall,
    error::UpstreamError,
    routing::Deployment,
    upstream::{Part, Parts},
    wire::chat::{Answer, Usage},
};

/// A whole answer, and what it used.
pub async fn for_answer(
    mut attempts: Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<(Answer, Usage), UpstreamError> {
    loop {
        let asking = attempts.next(admitted)?;
        let longest = asking.deployment.longest;
        let asked = tokio::time::timeout(longest, whole(call, &asking.deployment)).await;
        match asked.unwrap_or(Err(UpstreamError::TooLong(longest))) {
            Ok(answer) => {
                attempts.answered(asking);
                return Ok(answer);
            }
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

/// A streamed answer, read up to where `reader` has enough to begin with: nothing of it has left
/// yet, so until then another upstream can be asked instead.
pub async fn for_parts<R: Reader>(
    mut attempts: Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted<'_>,
    reader: impl Fn() -> R,
) -> Result<Opened<R>, UpstreamError> {
    loop {
        let asking = attempts.next(admitted)?;
        let longest = asking.deployment.longest;
        let mut time_left = TimeLeft {
            longest,
            left: longest,
        };
        let begun = begin(call, &asking.deployment, reader(), &mut time_left);
        match begun.await {
            Ok((parts, reader)) => {
                attempts.answered(asking);
                return Ok(Opened {
                    parts,
                    reader,
                    time_left,
                });
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
