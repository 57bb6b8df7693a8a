//! A streamed response, relayed from the provider to the client as it arrives.

use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

mod early;

use super::{
    Admitted, ClientWatch, Form, NotStarted, Reply, Settled, Started,
    failure::Failure,
    source::{CallParts, Source},
    stream_output::{Output, Reader},
};
use crate::{
    base::failpoint,
    gateway::{Gateway, retries::RecordedCall},
    ledger::Outcome,
    prompt::ChatCall,
    wire::{chat::Bill, error::UpstreamError},
};

/// How long the stream of an abandoned call is read.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(10);

/// Opens the provider's stream, spawns the task that relays and settles it, and returns the receiving end.
///
/// Until the first part arrives, a failure is an ordinary error with a status of its own; after that, or after a stream
/// started early, it is the last event of the stream.
pub(crate) async fn stream(
    mut call: Box<ChatCall>,
    form: Form,
    mut admitted: Admitted,
    mut client: ClientWatch,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Started, NotStarted> {
    if form.starts_early() {
        return early::stream(call, form, admitted, client, recorded).await;
    }
    let gateway = admitted.gateway.clone();
    let opened = open(&gateway, &mut call, &mut admitted, &mut client).await;
    let source = match opened {
        Ok(source) => source,
        Err(failure) => return Err(admitted.end_without_response(failure).await),
    };
    admitted.first_byte();
    gateway.record_hybrid_choice(&call.route);
    let (output, receiver) = Output::new(form, &call, &admitted, recorded);
    let routed = call.route.routed();
    output.recorder.begin(routed.clone());
    let started = Started {
        reply: Reply::Stream(receiver),
        routed,
        credits_expire_at: admitted.credits_expire_at(),
    };
    let relay = Relay {
        call,
        admitted,
        client,
        source,
        output,
    };
    run_or_spawn(&gateway, Box::pin(relay.run())).await;
    Ok(started)
}

/// Runs the relay of a stream, in a task of its own unless it is over at once.
async fn run_or_spawn<F: Future<Output = ()> + Send + 'static>(
    gateway: &Gateway,
    mut relay: Pin<Box<F>>,
) {
    // Polled once before it gets its task, so that frames that are ready leave with the head of the response.
    let is_over = poll_fn(|context| Poll::Ready(relay.as_mut().poll(context).is_ready())).await;
    if !is_over {
        gateway.tasks.spawn(relay);
    }
}

/// Opens the provider's stream.
async fn open(
    gateway: &Arc<Gateway>,
    call: &mut ChatCall,
    admitted: &mut Admitted,
    client: &mut ClientWatch,
) -> Result<Source, Failure> {
    let waiting = client.deciding();
    let mut parts = CallParts {
        gateway,
        call,
        admitted,
    };
    let mut opening = pin!(Source::open(&mut parts, &waiting));
    tokio::select! {
        opened = client.while_waiting(&gateway.abandoned, opening.as_mut()) => opened,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping.into()),
    }
}

/// A stream that is open, on its way from the provider to the client.
struct Relay {
    call: Box<ChatCall>,
    admitted: Admitted,
    client: ClientWatch,
    source: Source,
    output: Output,
}

impl Relay {
    /// Relays the stream to its end, charges it, and sends the last frames.
    ///
    /// A client that leaves does not end the call: the provider's stream is read up to its usage, because the tokens
    /// used are charged.
    async fn run(mut self) {
        let gateway = self.admitted.gateway.clone();
        let ended = self.relay(&gateway).await.and_then(|outcome| {
            self.output.normalizer.close()?;
            let mut parts = CallParts {
                gateway: &gateway,
                call: &mut self.call,
                admitted: &mut self.admitted,
            };
            let usage = self
                .source
                .billable(&mut parts, self.output.normalizer.usage());
            let reasons = || self.output.normalizer.finish_reasons();
            self.admitted.spans.streamed(reasons, usage);
            let bill = usage.map(|usage| self.admitted.bill(usage));
            self.output.normalizer.bill(bill);
            self.output.facts = self.admitted.facts(bill);
            Ok(outcome)
        });
        let Self {
            call,
            admitted,
            mut output,
            client,
            source,
        } = self;
        drop(source); // the connection to the provider is free for the next call
        match ended {
            Ok(outcome) => {
                Box::pin(settle(&gateway, &call, admitted, outcome, &mut output)).await;
            }
            Err(failure) => {
                let cause = failure.cause();
                output.facts = admitted.facts(None);
                let event = failure.interruption();
                let event = event.with_request_url(admitted.request_url());
                admitted.release_failed(&failure, failure.outcome_midway());
                output.interrupt(&event, cause).await;
            }
        }
        drop(client); // until here an abandoned call counts as one
    }

    /// Relays frames until the provider's stream ends. Returns how the call ended.
    async fn relay(&mut self, gateway: &Arc<Gateway>) -> Result<Outcome, Failure> {
        let Self {
            call,
            admitted,
            client,
            source,
            output,
        } = self;
        let mut parts = CallParts {
            gateway,
            call,
            admitted,
        };
        let relayed = {
            let frames = output.frames.clone();
            let mut relaying = pin!(pump(source, &mut parts, output));
            tokio::select! {
                relayed = client.while_receiving(&gateway.abandoned, &frames, relaying.as_mut()) => relayed?,
                () = gateway.shutdown.deadline() => return Err(UpstreamError::GatewayStopping.into()),
            }
        };
        match relayed {
            Reader::Connected if client.is_abandoned() => Ok(Outcome::ClientLeft),
            Reader::Connected => Ok(Outcome::Answered),
            Reader::Gone => {
                client.count_abandoned(&gateway.abandoned);
                Box::pin(drain(source, &mut parts, output)).await?;
                Ok(Outcome::ClientLeft)
            }
        }
    }
}

/// Charges a stream that is complete, then sends its last frames: a client that has the whole response can rely on the
/// bill.
///
/// If the store cannot be written, the charge goes to the spool on the disk first. A stream without usage is free, and
/// a log line and a counter report it.
async fn settle(
    gateway: &Gateway,
    call: &ChatCall,
    mut admitted: Admitted,
    outcome: Outcome,
    output: &mut Output,
) {
    let Some(Bill { usage, .. }) = output.normalizer.billed() else {
        admitted.release_uncounted(call);
        return output.finish(gateway).await;
    };
    failpoint::reached("answered");
    if output.recorder.keyed().is_some() {
        // Boxed, so that calls without a key reserve no memory for it.
        let response = Box::pin(output.close_to_store(gateway)).await;
        admitted.set_response(response);
    }
    let settled = match admitted.charge_or_spool(usage, outcome).await {
        Ok(settled) => settled,
        // A charge that would not survive the process: the stream ends with an error, and costs nothing.
        Err(error) => {
            let cause = error.to_string();
            output.facts.cost = None;
            let event = error.event().with_request_url(admitted.request_url());
            admitted.release(Outcome::NotCharged, Some(cause.clone()));
            output.unstore(gateway).await;
            return output.interrupt(&event, cause).await;
        }
    };
    output.finish(gateway).await;
    failpoint::reached("handed_over");
    if settled == Settled::InSpool {
        admitted.settle_spooled(usage, outcome).await;
    }
}

/// Sends frames as parts arrive, until the stream ends or the client no longer reads. The channel is bounded, so a slow
/// client slows down the reading of the provider.
async fn pump(
    source: &mut Source,
    parts: &mut CallParts<'_>,
    output: &mut Output,
) -> Result<Reader, Failure> {
    loop {
        let part = {
            let next = pin!(source.next(parts));
            output.while_silent(next).await?
        };
        let Some(part) = part else {
            return Ok(Reader::Connected);
        };
        output.normalizer.on_part(part)?;
        if let Reader::Gone = output.send_ready().await {
            return Ok(Reader::Gone);
        }
    }
}

/// Reads the stream of an abandoned call to its end, within [`DRAIN_TIMEOUT`].
///
/// Every admitted call is drained; how many abandoned calls an account may have is checked when it starts one.
async fn drain(
    source: &mut Source,
    parts: &mut CallParts<'_>,
    output: &mut Output,
) -> Result<(), Failure> {
    let timed_out =
        || UpstreamError::Broken("the client left, and it was not read to its end".into());
    let gateway = parts.gateway;
    let reading = async {
        while let Some(part) = source.next(parts).await? {
            output.normalizer.on_part(part)?;
            output.drop_ready();
        }
        Ok(())
    };
    tokio::select! {
        read = tokio::time::timeout(DRAIN_TIMEOUT, reading) => read.map_err(|_| timed_out())?,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping.into()),
    }
}
