//! The part of a call that costs money, in a task of its own.
//!
//! hyper drops a handler's future when its client hangs up, at whichever `.await` it has reached.
//! What is owed for a call must not depend on that, so the call runs here and the handler only
//! waits for what it sends.

use std::{sync::Arc, time::SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

mod admit;
mod relay;
mod shape;

use crate::{
    auth::random_id,
    chat::ChatCall,
    error::GatewayError,
    gateway::Gateway,
    wire::chat::{Frames, Usage},
};

pub use shape::Shape;

/// How many frames may wait for a slow reader before the provider is no longer read.
const FRAMES_IN_FLIGHT: usize = 16;

/// What a call gives back.
pub enum Reply {
    Whole { body: Vec<u8>, usage: Usage },
    Stream(mpsc::Receiver<Frame>),
}

/// A piece of a streamed answer on its way to the client.
pub enum Frame {
    Data(Bytes),
    /// The answer is over, and this is how it went. A stream that just ends has lost its task.
    End(Ending),
}

/// How a streamed answer ended, for its log line.
#[derive(Clone, Debug)]
pub enum Ending {
    Finished { usage: Option<Usage> },
    Interrupted { cause: String },
}

/// Runs the call; returns when its first byte, or its failure, is known.
pub async fn start(gateway: &Arc<Gateway>, call: ChatCall) -> Result<Reply, GatewayError> {
    let (begun, answer) = oneshot::channel();
    let task_gateway = gateway.clone();
    gateway
        .tasks
        .spawn(async move { run(&task_gateway, call, begun).await });
    // A task that panicked dropped its end of the channel.
    answer.await.unwrap_or(Err(GatewayError::Internal))
}

type Begun = oneshot::Sender<Result<Reply, GatewayError>>;

async fn run(gateway: &Gateway, call: ChatCall, begun: Begun) {
    let admission = match admit::admit(gateway, &call) {
        Ok(admission) => admission,
        Err(refused) => {
            let _ = begun.send(Err(refused));
            return;
        }
    };
    let Some(deployment) = gateway.deployments.pick(&call.route.target.id) else {
        admission.cancel();
        let reason = "no provider is configured for this model";
        let _ = begun.send(Err(GatewayError::Gateway { reason }));
        return;
    };
    if call.stream {
        relay::stream(gateway, &call, &deployment, admission, begun).await;
        return;
    }
    let reply = tokio::select! {
        reply = relay::complete(&call, &deployment) => reply,
        () = gateway.shutdown.deadline() => Err(GatewayError::ShuttingDown),
    };
    if let Ok(Reply::Whole { usage, .. }) = &reply {
        admission.settle(usage.total());
    }
    let _ = begun.send(reply); // nobody listens when the client has gone
}

/// The ID and the time of an answer of ours.
fn stamp() -> (String, u64) {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    (random_id("chatcmpl-"), now.as_secs())
}

fn frames_for(call: &ChatCall) -> Frames {
    let (id, created) = stamp();
    Frames::new(&id, created, &call.route.requested.id)
}
