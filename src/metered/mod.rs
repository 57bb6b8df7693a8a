//! The part of a call that costs money.
//!
//! A client that hangs up takes its handler's future with it, at whichever `.await` that has reached.
//! What is owed for a call must not depend on that, so the call goes on without the handler, which only
//! waits for what it sends.

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

mod admit;
mod ask;
mod assembled;
mod attempts;
mod client_watch;
mod failure;
mod form;
mod need;
mod running;
mod source;
mod stream;
mod tool_loop;
mod whole;

use crate::{
    catalog::Model,
    gateway::Gateway,
    ledger::Caller,
    prompt::ChatCall,
    wire::{chat::Usage, error::GatewayError},
};

use self::{
    admit::{Admitted, Settled, admit},
    client_watch::ClientWatch,
    running::Running,
};

pub use form::{ErrorWords, Form, now};

/// How many frames may wait for a slow reader before the provider is no longer read.
const FRAMES_IN_FLIGHT: usize = 16;
/// How long an answer waits for a charge that cannot be written.
const CHARGE_TIMEOUT: Duration = Duration::from_secs(2);

/// What a call gives back.
pub enum Reply {
    Whole { body: Vec<u8>, usage: Option<Usage> },
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

/// The beginning of an answer.
pub struct Started {
    pub reply: Reply,
    /// Who answers for a hybrid.
    pub routed: Option<Arc<Model>>,
    /// When the credit it is paid from expires.
    pub credits_expire_at: Option<i64>,
}

/// Why there is no answer.
pub enum NotStarted {
    /// Refused before anyone was asked, by what is known of the caller and of the settings.
    Refused(GatewayError),
    /// What is known of them is no longer so.
    Stale,
    /// It was admitted, and failed after that.
    Failed(GatewayError),
}

impl NotStarted {
    /// The same in other words.
    #[must_use]
    pub fn map(self, words: impl FnOnce(GatewayError) -> GatewayError) -> Self {
        match self {
            Self::Refused(error) => Self::Refused(words(error)),
            Self::Stale => Self::Stale,
            Self::Failed(error) => Self::Failed(words(error)),
        }
    }
}

impl From<GatewayError> for NotStarted {
    fn from(error: GatewayError) -> Self {
        Self::Refused(error)
    }
}

/// Runs the call; returns when its first byte, or its failure, is known.
///
/// `request_id` is what the client was told to quote.
pub async fn start(
    gateway: &Arc<Gateway>,
    caller: Caller,
    request_id: String,
    call: Box<ChatCall>,
    form: Form,
) -> Result<Started, NotStarted> {
    let (begun, mut answer) = oneshot::channel();
    let calls_gateway = gateway.clone();
    let call = async move { run(&calls_gateway, &caller, &request_id, call, form, begun).await };
    let mut running = Running::new(call, &gateway.tasks);
    let answer = poll_fn(|context| {
        if running.poll(context).is_ready() {
            // It has sent what it had, and one that panicked dropped its end of the channel. Not polled: a task that
            // has done much in one go is told to wait, though the answer be there.
            return Poll::Ready(answer.try_recv().ok());
        }
        Pin::new(&mut answer).poll(context).map(Result::ok)
    });
    let lost = || Err(NotStarted::Failed(GatewayError::Internal));
    answer.await.unwrap_or_else(lost)
}

/// Whether there is anybody to ask.
fn is_served(gateway: &Gateway, call: &ChatCall) -> bool {
    let routes = gateway.routes_now();
    let mut possible = call.route.possible_targets();
    possible.any(|model| routes.deployments.count(&model.id) > 0)
}

type Begun = oneshot::Sender<Result<Started, NotStarted>>;

async fn run(
    gateway: &Gateway,
    caller: &Caller,
    request_id: &str,
    call: Box<ChatCall>,
    form: Form,
    begun: Begun,
) {
    if !is_served(gateway, &call) {
        let reason = "no provider is configured for this model";
        let _ = begun.send(Err(GatewayError::Gateway { reason }.into()));
        return;
    }
    let admitted = match admit(gateway, caller, request_id, &call).await {
        Ok(admitted) => admitted,
        Err(refused) => {
            let _ = begun.send(Err(refused));
            return;
        }
    };
    let client = ClientWatch::new(&gateway.abandoned, &caller.account_id);
    if call.stream {
        Box::pin(stream::stream(gateway, call, form, admitted, begun, client)).await;
    } else {
        whole::whole(gateway, call, form, admitted, begun, client).await;
    }
}
