//! From the provider to the client.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use super::{
    Admitted, Begun, Ending, FRAMES_IN_FLIGHT, Frame, Reply, Shape, Started, frames_for, stamp,
};
use crate::{
    chat::ChatCall,
    error::{Envelope, GatewayError, UpstreamError},
    gateway::Gateway,
    routing::Deployment,
    upstream::Parts,
    wire::chat::{Frames, Usage},
};

/// How long an answer whose client has left is read on.
const DRAIN_PATIENCE: Duration = Duration::from_mins(10);

/// The whole answer as the caller gets it, and what it used.
pub async fn complete(
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
pub async fn stream(
    gateway: &Gateway,
    call: &ChatCall,
    deployment: &Deployment,
    admitted: Admitted<'_>,
    begun: Begun,
) {
    let mut shape = Shape::new(frames_for(call), call.choices());
    let opened = tokio::select! {
        opened = open(call, deployment, &mut shape) => opened.map_err(GatewayError::from),
        () = gateway.shutdown.deadline() => Err(GatewayError::ShuttingDown),
    };
    let mut parts = match opened {
        Ok(parts) => parts,
        Err(error) => {
            let _ = begun.send(Err(error));
            return;
        }
    };
    let (frames, receiver) = mpsc::channel(FRAMES_IN_FLIGHT);
    let started = Started {
        reply: Reply::Stream(receiver),
        credits_expire_at: admitted.credits_expire_at(),
    };
    let _ = begun.send(Ok(started)); // a client that has left is noticed below
    let relayed = tokio::select! {
        relayed = pump(&mut parts, &mut shape, &frames) => relayed,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping),
    };
    let relayed = match relayed {
        Ok(Client::Listening) => Ok(()),
        Ok(Client::Gone) => drain(gateway, &mut parts, &mut shape).await,
        Err(error) => Err(error),
    };
    let show_cached = call.route.requested.has_feature("prompt_caching");
    let finished = relayed.and_then(|()| shape.on_end(call.include_usage, show_cached));
    if finished.is_ok() {
        bill(call, admitted, shape.usage()).await;
    }
    let ending = match finished {
        Ok(()) => {
            send_ready(&mut shape, &frames).await;
            let usage = shape.usage();
            Ending::Finished { usage }
        }
        Err(error) => {
            let event = Frames::error(&interrupted(&error));
            let _ = frames.send(Frame::Data(event)).await;
            let cause = error.to_string();
            Ending::Interrupted { cause }
        }
    };
    let _ = frames.send(Frame::End(ending)).await;
}

/// Asks the provider and waits for the first part that makes a frame.
async fn open(
    call: &ChatCall,
    deployment: &Deployment,
    shape: &mut Shape,
) -> Result<Parts, UpstreamError> {
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
    Ok(parts)
}

/// Charges a stream that finished, before its last byte leaves: who has the whole answer can rely on
/// the bill. One whose usage is not known is free, and the operator is told.
async fn bill(call: &ChatCall, admitted: Admitted<'_>, usage: Option<Usage>) {
    if let Some(usage) = usage.filter(|usage| is_plausible(call, *usage)) {
        // The answer is out already; a charge that failed has been logged.
        let _ = admitted.settle(call, usage).await;
    } else {
        tracing::warn!(
            account.id = call.user,
            model = call.route.requested.id,
            "a stream ended without usage to bill by: it was free",
        );
    }
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
) -> Result<Client, UpstreamError> {
    loop {
        if let Client::Gone = send_ready(shape, frames).await {
            return Ok(Client::Gone);
        }
        match parts.next().await {
            Some(part) => shape.on_part(part?)?,
            None => return Ok(Client::Listening),
        }
    }
}

async fn send_ready(shape: &mut Shape, frames: &mpsc::Sender<Frame>) -> Client {
    for frame in shape.take_ready() {
        if frames.send(Frame::Data(frame)).await.is_err() {
            return Client::Gone;
        }
    }
    Client::Listening
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
