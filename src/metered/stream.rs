//! An answer as it comes, from the provider to the client.

use std::{pin::pin, time::Duration};

use tokio::sync::mpsc::{self, error::TrySendError};

use super::{
    Admitted, Begun, Ending, FRAMES_IN_FLIGHT, Form, Frame, NotStarted, Reply, Settled, Started,
    client_watch::ClientWatch,
    failure::Failure,
    form::Keeping,
    source::{Means, Source},
};
use crate::{
    base::failpoint,
    gateway::Gateway,
    ledger::Outcome,
    prompt::ChatCall,
    wire::{
        chat::Bill,
        error::{Envelope, UpstreamError},
        stream_normalizer::StreamNormalizer,
        stream_writer::StreamWriter,
    },
};

/// How long an answer whose client has left is read on.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(10);

/// How long a frame waits for a client that takes none. A connection that stalls as a whole is
/// noticed sooner; this is for one of many answers on a connection that is otherwise alive.
const READER_TIMEOUT: Duration = Duration::from_mins(1);

type AnyShape = StreamNormalizer<Box<dyn StreamWriter>>;

/// Streams the answer. Until there is something to hand on, a failure is still an ordinary error
/// with a status of its own; after that it is the last event of the stream.
///
/// A client that leaves does not end the call: the provider is read to its usage, because what
/// was used is owed.
pub async fn stream(
    gateway: &Gateway,
    mut call: Box<ChatCall>,
    form: Form,
    mut admitted: Admitted<'_>,
    begun: Begun,
    mut client: ClientWatch<'_>,
) {
    let mut means = Means {
        gateway,
        call: &mut call,
        admitted: &mut admitted,
    };
    let opened = {
        // Boxed: a stream is open for long, and this is over soon.
        let mut opening = Box::pin(Source::open(&mut means, &begun));
        tokio::select! {
            opened = client.while_waiting(&begun, opening.as_mut()) => opened,
            () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping.into()),
        }
    };
    let mut source = match opened {
        Ok(source) => source,
        Err(Failure::Left(usage)) => return Box::pin(admitted.charge_abandoned(usage)).await,
        Err(failure) => {
            admitted.fail(&failure, failure.outcome());
            let _ = begun.send(Err(NotStarted::Failed(failure.into_error())));
            return;
        }
    };
    means.admitted.answers();
    gateway.answered(&means.call.route);
    let (script, keeping) = form.script(means.call);
    let mut shape = StreamNormalizer::new(script, means.call.choices());
    let (frames, receiver) = mpsc::channel(FRAMES_IN_FLIGHT);
    let started = Started {
        reply: Reply::Stream(receiver),
        routed: means.call.route.routed(),
        credits_expire_at: means.admitted.credits_expire_at(),
    };
    let _ = begun.send(Ok(started)); // a client that has left is noticed below
    let relayed = {
        let mut relaying = pin!(pump(&mut source, &mut means, &mut shape, &frames));
        tokio::select! {
            relayed = client.while_receiving(&frames, relaying.as_mut()) => relayed,
            () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping.into()),
        }
    };
    let relayed = match relayed {
        Ok(Client::Listening) if client.has_left() => Ok(Outcome::ClientLeft),
        Ok(Client::Listening) => Ok(Outcome::Answered),
        Ok(Client::Gone) => {
            client.client_left();
            let drained = Box::pin(drain(&mut source, &mut means, &mut shape)).await;
            drained.map(|()| Outcome::ClientLeft)
        }
        Err(failure) => Err(failure),
    };
    let finished = relayed.and_then(|outcome| {
        shape.close()?;
        let usage = source.charged(&mut means, shape.usage());
        shape.bill(usage.map(|usage| means.admitted.bill(usage)));
        Ok(outcome)
    });
    match finished {
        Ok(outcome) => {
            let mut finished = Finished {
                shape,
                keeping,
                frames,
            };
            Box::pin(finish(gateway, &call, admitted, outcome, &mut finished)).await;
        }
        Err(failure) => {
            let cause = failure.cause();
            admitted.fail(&failure, failure.outcome_midway());
            break_off(&mut shape, &frames, &failure.interruption(), cause).await;
        }
    }
}

/// A stream that has come to its end, with its last frames still to be sent.
struct Finished {
    shape: AnyShape,
    keeping: Option<Keeping>,
    frames: mpsc::Sender<Frame>,
}

impl Finished {
    /// What is to be stored is stored before the client knows that the answer is complete: it may
    /// go on from it at once.
    async fn hand_over(&mut self, gateway: &Gateway) {
        if let Some(keeping) = self.keeping.take() {
            keeping.keep_streamed(gateway, &mut self.shape).await;
        }
        self.shape.end();
        send_ready(&mut self.shape, &self.frames).await;
        let usage = self.shape.billed().map(|bill| bill.usage);
        send(&self.frames, Frame::End(Ending::Finished { usage })).await;
    }
}

/// Charges a stream that finished, before its last byte leaves: who has the whole answer can rely
/// on the bill. Where the store cannot be written, the charge is on the disk elsewhere by then. One whose
/// usage is not known is free, and the operator is told.
async fn finish(
    gateway: &Gateway,
    call: &ChatCall,
    mut admitted: Admitted<'_>,
    outcome: Outcome,
    finished: &mut Finished,
) {
    let Some(Bill { usage, .. }) = finished.shape.billed() else {
        admitted.free_uncounted(call);
        return finished.hand_over(gateway).await;
    };
    failpoint::reached("answered");
    let settled = match admitted.charge_or_spool(usage, outcome).await {
        Ok(settled) => settled,
        // Without a charge that outlives this process there is no end: the client knows that it has no whole
        // response, and owes nothing.
        Err(error) => {
            let cause = error.to_string();
            admitted.free(Outcome::NotCharged, Some(cause.clone()));
            let Finished { shape, frames, .. } = finished;
            return break_off(shape, frames, &error.event(), cause).await;
        }
    };
    finished.hand_over(gateway).await;
    failpoint::reached("handed_over");
    if settled == Settled::InSpool {
        admitted.settle_spooled(usage, outcome).await;
    }
}

/// Ends a stream with an error event in place of its end.
async fn break_off(
    shape: &mut AnyShape,
    frames: &mpsc::Sender<Frame>,
    error: &Envelope,
    cause: String,
) {
    shape.fail(error);
    send_ready(shape, frames).await;
    send(frames, Frame::End(Ending::Interrupted { cause })).await;
}

enum Client {
    Listening,
    Gone,
}

/// Hands on frames as parts come in, until there are no more or no one takes them. The channel is
/// bounded: where the client reads slowly, the provider is read slowly.
async fn pump(
    source: &mut Source,
    means: &mut Means<'_, '_>,
    shape: &mut AnyShape,
    frames: &mpsc::Sender<Frame>,
) -> Result<Client, Failure> {
    while let Some(part) = source.next(means).await? {
        shape.on_part(part)?;
        if let Client::Gone = send_ready(shape, frames).await {
            return Ok(Client::Gone);
        }
    }
    Ok(Client::Listening)
}

async fn send_ready(shape: &mut AnyShape, frames: &mpsc::Sender<Frame>) -> Client {
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
            let sent = frames.send_timeout(frame, READER_TIMEOUT).await;
            sent.is_ok()
        }
        Err(TrySendError::Closed(_)) => false,
    }
}

/// Reads an answer that nobody waits for to its end, within bounds of time. How many such calls an account may have is
/// decided when it starts one: a call that was admitted is always drained.
async fn drain(
    source: &mut Source,
    means: &mut Means<'_, '_>,
    shape: &mut AnyShape,
) -> Result<(), Failure> {
    let given_up =
        || UpstreamError::Broken("the client left, and it was not read to its end".into());
    let gateway = means.gateway;
    let reading = async {
        while let Some(part) = source.next(means).await? {
            shape.on_part(part)?;
            shape.take_ready();
        }
        Ok(())
    };
    tokio::select! {
        read = tokio::time::timeout(DRAIN_TIMEOUT, reading) => read.map_err(|_| given_up())?,
        () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping.into()),
    }
}
