//! The billed part of a request: admission, the provider's answer (with built-in tools between steps), settlement and
//! response.
//!
//! A client that hangs up drops its handler's future at whichever `.await` it has reached. The charge must not depend
//! on that, so a call outlives its client: [`start`] runs it in the client's task and moves it to a task of its own
//! when the client leaves. Every ending settles or releases the hold; a call whose task dies releases it when it is
//! dropped.
//!
//! May use `gateway` and the rooms listed after it in `src/lib.rs`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::sync::mpsc;

mod admit;
mod ask;
mod assembled;
mod attempts;
mod client;
mod could_start;
mod detach;
mod failure;
mod form;
mod need;
mod recorder;
mod source;
mod spans;
mod stream;
mod stream_output;
mod tool_loop;
mod whole;
mod windows;

use crate::{
    base::money::NanoUsd,
    catalog::Model,
    gateway::{Gateway, Overloaded, Permit, retries::RecordedCall},
    ledger::Caller,
    prompt::ChatCall,
    wire::{chat::Usage, error::GatewayError},
};

use self::{
    admit::{Admitted, Settled, admit},
    client::{Client, ClientWatch},
    detach::Detachable,
    spans::Admission,
};

pub(crate) use could_start::could_start;
pub(crate) use form::{Form, now};

/// How many frames may wait for a slow client before the provider is no longer read.
const FRAMES_IN_FLIGHT: usize = 16;
/// How long a response waits for a charge that cannot be written.
const CHARGE_TIMEOUT: Duration = Duration::from_secs(2);

/// The response of a call.
pub(crate) enum Reply {
    Whole {
        body: Vec<u8>,
        usage: Option<Usage>,
        facts: Facts,
    },
    /// Frames, sent by the task that relays the provider's stream (`stream.rs`).
    Stream(mpsc::Receiver<Frame>),
}

/// A piece of a streamed response.
pub(crate) enum Frame {
    Data(Bytes),
    /// The last frame. A channel that closes without one has lost its task.
    End(Ending),
}

/// How a streamed response ended, for its log line.
#[derive(Clone, Debug)]
pub(crate) enum Ending {
    Finished { usage: Option<Usage>, facts: Facts },
    Interrupted { cause: String, facts: Facts },
}

/// What a log line says of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The provider that answered or failed last, by its name in the configuration.
    pub upstream: Option<Arc<str>>,
    pub cost: Option<NanoUsd>,
    /// From the admission to the first part of the answer, which comes after the steps of built-in tools.
    pub first_byte_ms: Option<u64>,
}

impl Facts {
    /// Those of a call that could not be charged.
    fn without_cost(self) -> Self {
        Self { cost: None, ..self }
    }
}

/// A response that has started.
pub(crate) struct Started {
    pub reply: Reply,
    /// The model that a hybrid chose.
    pub routed: Option<Arc<Model>>,
    /// When the credit that pays for the call expires.
    pub credits_expire_at: Option<i64>,
}

/// Why there is no response.
pub(crate) enum NotStarted {
    /// Refused before a request to a provider, because of the caller or the settings, which may come from a cache.
    Refused(GatewayError),
    /// The cached caller or settings are out of date.
    Stale,
    /// Refused for a reason that does not depend on the caller, who need not be looked up again for it.
    NotAdmitted(GatewayError),
    /// Admitted, and failed after that: there is a call.
    Failed(GatewayError, Box<Facts>),
}

impl NotStarted {
    /// Replaces the error, if there is one.
    #[must_use]
    pub(crate) fn map(self, replace: impl FnOnce(GatewayError) -> GatewayError) -> Self {
        match self {
            Self::Refused(error) => Self::Refused(replace(error)),
            Self::Stale => Self::Stale,
            Self::NotAdmitted(error) => Self::NotAdmitted(replace(error)),
            Self::Failed(error, facts) => Self::Failed(replace(error), facts),
        }
    }
}

impl From<GatewayError> for NotStarted {
    fn from(error: GatewayError) -> Self {
        Self::Refused(error)
    }
}

/// Runs a call. Returns its whole response, or the start of a streamed one.
///
/// `request_id` is the value of `X-Request-ID`. The response is written to `recorded` as well, for retries.
pub(crate) async fn start(
    gateway: &Arc<Gateway>,
    caller: Caller,
    request_id: String,
    call: Box<ChatCall>,
    form: Form,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Started, NotStarted> {
    let client = Client::default();
    let running = run(
        gateway.clone(),
        caller,
        request_id,
        call,
        form,
        client.clone(),
        recorded,
    );
    let done = Detachable::new(running, client, &gateway.tasks).await;
    let lost = || NotStarted::Failed(GatewayError::Internal, Box::default());
    done.unwrap_or_else(|| Err(lost()))
}

async fn run(
    gateway: Arc<Gateway>,
    caller: Caller,
    request_id: String,
    call: Box<ChatCall>,
    form: Form,
    client: Client,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Started, NotStarted> {
    if !is_served(&gateway, &call) {
        let reason = "no provider is configured for this model";
        return Err(GatewayError::Gateway { reason }.into());
    }
    let permit = enter(&gateway).await?;
    // Nothing is reserved yet, so a call whose client left while it waited ends here.
    if permit.is_some() && client.has_left() {
        return Err(overloaded());
    }
    let idempotency = recorded.as_ref().and_then(|call| call.idempotency());
    let span = Admission::begin(&call);
    let admitted = match admit(gateway, &caller, &request_id, &call, idempotency).await {
        Ok(admitted) => admitted,
        Err(refused) => {
            span.refused(&refused);
            return Err(refused);
        }
    };
    admitted.describe(span);
    if let Some(recorded) = &recorded {
        recorded.admitted(admitted.id());
    }
    if let Some(permit) = permit {
        permit.admitted();
    }
    let has_key = recorded.as_ref().is_some_and(|call| call.is_keyed());
    let client = ClientWatch::new(client, caller.account_id, has_key);
    // Both get the provider's answer, settle its usage and write the response.
    if call.stream {
        Box::pin(stream::stream(call, form, admitted, client, recorded)).await
    } else {
        whole::whole(call, form, admitted, client, recorded).await
    }
}

/// Waits until the stores can admit a call; there is nothing to wait for with embedded stores.
async fn enter(gateway: &Gateway) -> Result<Option<Permit>, NotStarted> {
    let Some(admissions) = &gateway.admissions else {
        return Ok(None);
    };
    let entered = admissions.enter().await;
    entered.map(Some).map_err(|Overloaded| overloaded())
}

fn overloaded() -> NotStarted {
    NotStarted::NotAdmitted(GatewayError::Overloaded)
}

/// Whether a deployment serves some model that may answer the call.
fn is_served(gateway: &Gateway, call: &ChatCall) -> bool {
    let routes = gateway.routes_now();
    let mut possible = call.route.possible_targets();
    possible.any(|model| routes.deployments.count(&model.id) > 0)
}
