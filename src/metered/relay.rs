//! From the provider to the client.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::Instant,
};

use super::{
    Admitted, Begun, Ending, FRAMES_IN_FLIGHT, Frame, Reply, Shape, Started, attempts::Attempts,
    frames_for, stamp,
};
use crate::{
    chat::ChatCall,
    error::{Envelope, GatewayError, UpstreamError},
    failpoint,
    gateway::Gateway,
    ledger::Outcome,
    routing::Deployment,
    upstream::Parts,
    wire::chat::{Frames, Usage},
};

/// How long an answer whose client has left is read on.
const DRAIN_PATIENCE: Duration = Duration::from_mins(10);

/// How long a frame waits for a client that takes none. A connection that stalls as a whole is
/// noticed sooner; this is for one of many answers on a connection that is otherwise alive.
const READER_PATIENCE: Duration = Duration::from_mins(1);
/// How long an answer waits for a charge that cannot be written.
const CHARGE_PATIENCE: Duration = Duration::from_secs(2);

/// Answers in one piece.
pub async fn whole(gateway: &Gateway, call: &ChatCall, mut admitted: Admitted<'_>, begun: Begun) {
    let credits_expire_at = admitted.credits_expire_at();
    let answer = tokio::select! {
        answer = complete(Attempts::new(gateway, call, &begun), call, &mut admitted) => answer,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping),
    };
    let (body, usage) = match answer {
        Ok(answer) => answer,
        Err(error) => {
            admitted.free(outcome_of(&error), Some(error.to_string()));
            let _ = begun.send(Err(refusal(error)));
            return;
        }
    };
    admitted.answers();
    failpoint::reached("answered");
    let outcome = if begun.is_closed() {
        Outcome::ClientLeft
    } else {
        Outcome::Answered
    };
    let patience = tokio::time::sleep(CHARGE_PATIENCE);
    let started = match admitted.charge(usage, outcome, patience).await {
        Ok(()) => Ok(Started {
            reply: Reply::Whole { body, usage },
            credits_expire_at,
        }),
        // Without a charge there is no answer: what was not paid for is not handed out.
        Err(error) => {
            admitted.free(Outcome::NotCharged, Some(error.to_string()));
            Err(error)
        }
    };
    failpoint::reached("handed_over");
    let _ = begun.send(started); // nobody listens when the client has gone
}

/// What is told before there is anything to hand on.
fn refusal(error: UpstreamError) -> GatewayError {
    match error {
        UpstreamError::GatewayStopping => GatewayError::ShuttingDown,
        error => GatewayError::Upstream(error),
    }
}

fn outcome_of(error: &UpstreamError) -> Outcome {
    match error {
        UpstreamError::GatewayStopping => Outcome::Stopped,
        _ => Outcome::ProviderFailed,
    }
}

/// The first whole answer that some upstream gives.
async fn complete(
    mut attempts: Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<(Vec<u8>, Usage), UpstreamError> {
    loop {
        let asking = attempts.next(admitted)?;
        let longest = asking.deployment.longest;
        let asked = tokio::time::timeout(longest, ask_for_all(call, &asking.deployment)).await;
        match asked.unwrap_or(Err(UpstreamError::TooLong(longest))) {
            Ok(answer) => {
                attempts.answered(asking);
                return Ok(answer);
            }
            Err(error) => attempts.failed(asking, error, admitted).await?,
        }
    }
}

/// The whole answer as the caller gets it, and what it used.
async fn ask_for_all(
    call: &ChatCall,
    deployment: &Deployment,
) -> Result<(Vec<u8>, Usage), UpstreamError> {
    let answer = deployment
        .provider
        .complete(call, &deployment.upstream_model)
        .await?;
    // Usage is a promised field (SPEC §2.5) and the ground of the bill: without it there is no
    // answer to give.
    let usage = answer.usage.filter(|usage| is_plausible(call, *usage));
    let usage = usage.ok_or_else(|| UpstreamError::Malformed("no usage to bill by".into()))?;
    let (id, created) = stamp();
    let show_cached = call.route.requested.has_feature("prompt_caching");
    let body = answer.to_json(&id, created, &call.route.requested.id, usage, show_cached);
    Ok((body, usage))
}

/// Streams the answer. Until the provider has sent something, a failure is still an ordinary
/// error with a status of its own; after that it is the last event of the stream.
///
/// A client that leaves does not end the call: the provider is read to its usage, because what
/// was used is owed.
pub async fn stream(gateway: &Gateway, call: &ChatCall, mut admitted: Admitted<'_>, begun: Begun) {
    let opened = tokio::select! {
        opened = open(Attempts::new(gateway, call, &begun), call, &mut admitted) => opened,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping),
    };
    let Opened {
        mut parts,
        mut shape,
        mut time_left,
    } = match opened {
        Ok(opened) => opened,
        Err(error) => {
            admitted.free(outcome_of(&error), Some(error.to_string()));
            let _ = begun.send(Err(refusal(error)));
            return;
        }
    };
    admitted.answers();
    let (frames, receiver) = mpsc::channel(FRAMES_IN_FLIGHT);
    let started = Started {
        reply: Reply::Stream(receiver),
        credits_expire_at: admitted.credits_expire_at(),
    };
    let _ = begun.send(Ok(started)); // a client that has left is noticed below
    let relayed = tokio::select! {
        relayed = pump(&mut parts, &mut shape, &frames, &mut time_left) => relayed,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping),
    };
    let relayed = match relayed {
        Ok(Client::Listening) => Ok(Outcome::Answered),
        Ok(Client::Gone) => {
            let drained = drain(gateway, &mut parts, &mut shape).await;
            drained.map(|()| Outcome::ClientLeft)
        }
        Err(error) => Err(error),
    };
    let show_cached = call.route.requested.has_feature("prompt_caching");
    shape.drop_usage_unless(|usage| is_plausible(call, usage));
    let finished = relayed.and_then(|outcome| {
        shape.on_end(call.include_usage, show_cached)?;
        Ok(outcome)
    });
    match finished {
        Ok(outcome) => finish(gateway, call, admitted, outcome, &mut shape, &frames).await,
        Err(error) => {
            let outcome = match error {
                UpstreamError::GatewayStopping => Outcome::Stopped,
                _ => Outcome::Interrupted,
            };
            admitted.free(outcome, Some(error.to_string()));
            let event = Frames::error(&interrupted(&error));
            send(&frames, Frame::Data(event)).await;
            let cause = error.to_string();
            send(&frames, Frame::End(Ending::Interrupted { cause })).await;
        }
    }
}

/// Charges a stream that finished, before its last byte leaves: who has the whole answer can rely
/// on the bill. One whose usage is not known is free, and the operator is told.
async fn finish(
    gateway: &Gateway,
    call: &ChatCall,
    mut admitted: Admitted<'_>,
    outcome: Outcome,
    shape: &mut Shape,
    frames: &mpsc::Sender<Frame>,
) {
    let Some(usage) = shape.usage() else {
        let (account, model) = (&call.user, &call.route.requested.id);
        tracing::warn!(
            account.id = account,
            model,
            "a stream ended without usage to bill by: it was free"
        );
        admitted.free(Outcome::NoUsage, None);
        return hand_over(shape, frames).await;
    };
    failpoint::reached("answered");
    let patience = tokio::time::sleep(CHARGE_PATIENCE);
    let charged = admitted.charge(usage, outcome, patience).await;
    hand_over(shape, frames).await;
    failpoint::reached("handed_over");
    if charged.is_ok() {
        return;
    }
    // The answer is out and cannot be withheld any more. What it used stays owed for as long as
    // there is someone to write it down.
    let stop = gateway.shutdown.deadline();
    if admitted.charge(usage, outcome, stop).await.is_err() {
        tracing::error!(
            account.id = call.user,
            model = call.route.requested.id,
            tokens.r#in = usage.prompt,
            tokens.out = usage.completion,
            "the gateway stops before an answer could be charged: it was free",
        );
        let failure = "it could not be written down before the stop".to_owned();
        admitted.free(Outcome::NotCharged, Some(failure));
    }
}

/// The last frames of an answer that is finished.
async fn hand_over(shape: &mut Shape, frames: &mpsc::Sender<Frame>) {
    send_ready(shape, frames).await;
    let usage = shape.usage();
    send(frames, Frame::End(Ending::Finished { usage })).await;
}

/// A stream that has begun.
struct Opened {
    parts: Parts,
    shape: Shape,
    time_left: TimeLeft,
}

/// The first stream that some upstream begins.
async fn open(
    mut attempts: Attempts<'_>,
    call: &ChatCall,
    admitted: &mut Admitted<'_>,
) -> Result<Opened, UpstreamError> {
    loop {
        let asking = attempts.next(admitted)?;
        let longest = asking.deployment.longest;
        let mut time_left = TimeLeft {
            longest,
            left: longest,
        };
        let asked = time_left.of(ask_for_parts(call, &asking.deployment));
        match asked.await.and_then(|opened| opened) {
            Ok((parts, shape)) => {
                attempts.answered(asking);
                return Ok(Opened {
                    parts,
                    shape,
                    time_left,
                });
            }
            Err(error) => attempts.failed(asking, error, admitted).await?,
        }
    }
}

/// Asks the provider and waits for the first part that makes a frame.
async fn ask_for_parts(
    call: &ChatCall,
    deployment: &Deployment,
) -> Result<(Parts, Shape), UpstreamError> {
    let mut shape = Shape::new(frames_for(call), call.choices());
    let mut parts = deployment
        .provider
        .stream(call, &deployment.upstream_model)
        .await?;
    while !shape.has_ready() {
        match parts.next().await {
            Some(part) => shape.on_part(part?)?,
            None => return Err(UpstreamError::Broken("an empty stream".into())),
        }
    }
    Ok((parts, shape))
}

/// Whether these counts can be true of this call. A bill of more than a model can say or read is a
/// provider's mistake, and not the customer's to pay.
fn is_plausible(call: &ChatCall, usage: Usage) -> bool {
    let target = &call.route.target;
    let most = u64::from(call.choices()) * u64::from(target.max_output);
    u64::from(usage.completion) <= most + most / 20 && usage.prompt <= target.context_length
}

enum Client {
    Listening,
    Gone,
}

/// Hands on frames as parts come in, until there are no more or no one takes them. The channel is
/// bounded: where the client reads slowly, the provider is read slowly.
async fn pump(
    parts: &mut Parts,
    shape: &mut Shape,
    frames: &mpsc::Sender<Frame>,
    time_left: &mut TimeLeft,
) -> Result<Client, UpstreamError> {
    loop {
        if let Client::Gone = send_ready(shape, frames).await {
            return Ok(Client::Gone);
        }
        match time_left.of(parts.next()).await? {
            Some(part) => shape.on_part(part?)?,
            None => return Ok(Client::Listening),
        }
    }
}

/// What a provider has left of the time for a whole call. The time in which it waits for a slow
/// client is not its own.
struct TimeLeft {
    longest: Duration,
    left: Duration,
}

impl TimeLeft {
    async fn of<T>(&mut self, waiting: impl Future<Output = T>) -> Result<T, UpstreamError> {
        let started = Instant::now();
        let done = tokio::time::timeout(self.left, waiting).await;
        self.left = self.left.saturating_sub(started.elapsed());
        done.map_err(|_| UpstreamError::TooLong(self.longest))
    }
}

async fn send_ready(shape: &mut Shape, frames: &mpsc::Sender<Frame>) -> Client {
    for frame in shape.take_ready() {
        if !send(frames, Frame::Data(frame)).await {
            return Client::Gone;
        }
    }
    Client::Listening
}

/// Whether the client took it, or has room for it.
async fn send(frames: &mpsc::Sender<Frame>, frame: Frame) -> bool {
    match frames.try_send(frame) {
        Ok(()) => true,
        Err(TrySendError::Full(frame)) => {
            let sent = frames.send_timeout(frame, READER_PATIENCE).await;
            sent.is_ok()
        }
        Err(TrySendError::Closed(_)) => false,
    }
}

/// Reads an answer that nobody waits for to its end, within bounds of time and number.
async fn drain(
    gateway: &Gateway,
    parts: &mut Parts,
    shape: &mut Shape,
) -> Result<(), UpstreamError> {
    let given_up =
        || UpstreamError::Broken("the client left, and it was not read to its end".into());
    let _permit = gateway.drains.try_acquire().map_err(|_| given_up())?;
    let reading = async {
        while let Some(part) = parts.next().await {
            shape.on_part(part?)?;
            shape.take_ready();
        }
        Ok(())
    };
    tokio::select! {
        read = tokio::time::timeout(DRAIN_PATIENCE, reading) => read.map_err(|_| given_up())?,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping),
    }
}

/// The last event of a stream that the provider did not finish (SPEC §6.2).
fn interrupted(error: &UpstreamError) -> Envelope {
    Envelope {
        status: axum::http::StatusCode::OK,
        message: format!(
            "{} The answer is incomplete; retry the whole request.",
            error.public_message()
        ),
        kind: "upstream_stream_error",
        code: Some("stream_interrupted".into()),
        param: None,
        extra: serde_json::Map::new(),
    }
}
