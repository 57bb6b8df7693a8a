//! From the provider to the client.

use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use super::{Begun, Ending, FRAMES_IN_FLIGHT, Frame, Reply, Shape, frames_for, stamp};
use crate::{
    chat::ChatCall,
    error::{Envelope, GatewayError, UpstreamError},
    gateway::Gateway,
    routing::Deployment,
    upstream::Parts,
    wire::chat::Frames,
};

pub async fn complete(call: &ChatCall, deployment: &Deployment) -> Result<Reply, GatewayError> {
    let answer = deployment
        .provider
        .complete(call, &deployment.upstream_model)
        .await?;
    // Usage is a promised field (SPEC §2.5) and the ground of the bill: without it there is no
    // answer to give.
    let Some(usage) = answer.usage else {
        return Err(UpstreamError::Malformed("an answer without usage".into()).into());
    };
    let (id, created) = stamp();
    let show_cached = call.route.requested.has_feature("prompt_caching");
    let body = answer.to_json(&id, created, &call.route.requested.id, usage, show_cached);
    Ok(Reply::Whole { body, usage })
}

/// Streams the answer. Until the provider has sent something, a failure is still an ordinary
/// error with a status of its own; after that it is the last event of the stream.
pub async fn stream(gateway: &Gateway, call: &ChatCall, deployment: &Deployment, begun: Begun) {
    let mut shape = Shape::new(frames_for(call), call.choices());
    let opened = tokio::select! {
        opened = open(call, deployment, &mut shape) => opened.map_err(GatewayError::from),
        () = gateway.shutdown.deadline() => Err(GatewayError::ShuttingDown),
    };
    let parts = match opened {
        Ok(parts) => parts,
        Err(error) => {
            let _ = begun.send(Err(error));
            return;
        }
    };
    let (frames, receiver) = mpsc::channel(FRAMES_IN_FLIGHT);
    if begun.send(Ok(Reply::Stream(receiver))).is_err() {
        return; // the client left before the first byte
    }
    let relayed = tokio::select! {
        relayed = pump(call, parts, &mut shape, &frames) => relayed,
        () = gateway.shutdown.deadline() => {
            Err(Stopped::Upstream(UpstreamError::GatewayStopping))
        }
    };
    let ending = match relayed {
        Ok(()) => Ending::Finished {
            usage: shape.usage(),
        },
        Err(Stopped::ClientGone) => return,
        Err(Stopped::Upstream(error)) => {
            let _ = frames
                .send(Frame::Data(Frames::error(&interrupted(&error))))
                .await;
            Ending::Interrupted {
                cause: error.to_string(),
            }
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

enum Stopped {
    ClientGone,
    Upstream(UpstreamError),
}

/// Hands on frames as parts come in. The channel is bounded: where the client reads slowly, the
/// provider is read slowly.
async fn pump(
    call: &ChatCall,
    mut parts: Parts,
    shape: &mut Shape,
    frames: &mpsc::Sender<Frame>,
) -> Result<(), Stopped> {
    send_ready(shape, frames).await?;
    while let Some(part) = parts.next().await {
        part.and_then(|part| shape.on_part(part))
            .map_err(Stopped::Upstream)?;
        send_ready(shape, frames).await?;
    }
    let show_cached = call.route.requested.has_feature("prompt_caching");
    shape
        .on_end(call.include_usage, show_cached)
        .map_err(Stopped::Upstream)?;
    send_ready(shape, frames).await
}

async fn send_ready(shape: &mut Shape, frames: &mpsc::Sender<Frame>) -> Result<(), Stopped> {
    for frame in shape.take_ready() {
        frames
            .send(Frame::Data(frame))
            .await
            .map_err(|_| Stopped::ClientGone)?;
    }
    Ok(())
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
