//! A stream whose provider is silent: the response starts before there is anything to relay.
//!
//! Models that reason can be silent for minutes, and clients, or proxies between, may give up on a response without a
//! head. So after some silence the response starts: a message with a ping, a response of `/v1/responses` with its first
//! events. Until then a failure has a status of its own; after it, it is the last event.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::BoxFuture};

use super::{
    Admitted, ChatCall, ClientWatch, Failure, Form, NotStarted, Output, RecordedCall, Relay, Reply,
    Source, Started, open, run_or_spawn,
};

/// How long the response waits for the provider.
const SILENCE: Duration = Duration::from_secs(10);

/// A call whose stream was opened, or failed to be.
struct Opening {
    call: Box<ChatCall>,
    admitted: Admitted,
    client: ClientWatch,
    opened: Result<Source, Failure>,
}

/// What is left of a call whose stream could not be opened.
struct Unopened {
    admitted: Admitted,
    failure: Failure,
    output: Output,
}

/// Boxed without its type, because the compiler gives up on futures that are nested too deeply.
pub(super) fn stream(
    call: Box<ChatCall>,
    form: Form,
    admitted: Admitted,
    client: ClientWatch,
    recorded: Option<Arc<RecordedCall>>,
) -> BoxFuture<'static, Result<Started, NotStarted>> {
    run(call, form, admitted, client, recorded).boxed()
}

async fn run(
    mut call: Box<ChatCall>,
    form: Form,
    mut admitted: Admitted,
    mut client: ClientWatch,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Started, NotStarted> {
    let gateway = admitted.gateway.clone();
    let credits_expire_at = admitted.credits_expire_at();
    let keep_alive = form.stream_style().keep_alive;
    let waiting = client.client.clone();
    let (mut output, receiver) = Output::new(form, &call, &admitted, recorded);
    let state = gateway.clone();
    let mut opening: BoxFuture<'static, Opening> = Box::pin(async move {
        let opened = open(&state, &mut call, &mut admitted, &mut client).await;
        Opening {
            call,
            admitted,
            client,
            opened,
        }
    });
    let reply = Reply::Stream(receiver);
    let Ok(opened) = tokio::time::timeout(SILENCE, opening.as_mut()).await else {
        output.recorder.begin(None);
        output.begin(keep_alive).await;
        let started = Started {
            reply,
            routed: None, // another target may still serve the call
            credits_expire_at,
        };
        gateway.tasks.spawn(async move {
            let opened = {
                let frames = output.frames.clone();
                tokio::select! {
                    biased;
                    opened = output.while_silent(opening.as_mut()) => opened,
                    () = frames.closed() => {
                        waiting.leave();
                        opening.await
                    }
                }
            };
            match opened.with(output) {
                Ok(relay) => relay.run().await,
                Err(unopened) => {
                    let Unopened {
                        admitted,
                        failure,
                        mut output,
                    } = *unopened;
                    let (cause, event) = (failure.cause(), failure.interruption());
                    let event = event.with_request_url(admitted.request_url());
                    let ended = admitted.end_without_response(failure).await;
                    if let NotStarted::Failed(_, facts) = ended {
                        output.facts = *facts;
                    }
                    output.interrupt(&event, cause).await;
                }
            }
        });
        return Ok(started);
    };
    match opened.with(output) {
        Ok(relay) => {
            let routed = relay.call.route.routed();
            relay.output.recorder.begin(routed.clone());
            run_or_spawn(&gateway, Box::pin(relay.run())).await;
            Ok(Started {
                reply,
                routed,
                credits_expire_at,
            })
        }
        Err(unopened) => {
            let Unopened {
                admitted, failure, ..
            } = *unopened;
            Err(admitted.end_without_response(failure).await)
        }
    }
}

impl Opening {
    /// The relay of the stream; if it could not be opened, what is left of the call.
    fn with(self, output: Output) -> Result<Relay, Box<Unopened>> {
        let Self {
            call,
            mut admitted,
            client,
            opened,
        } = self;
        let source = match opened {
            Ok(source) => source,
            Err(failure) => {
                return Err(Box::new(Unopened {
                    admitted,
                    failure,
                    output,
                }));
            }
        };
        admitted.first_byte();
        admitted.gateway.record_hybrid_choice(&call.route);
        Ok(Relay {
            call,
            admitted,
            client,
            source,
            output,
        })
    }
}
