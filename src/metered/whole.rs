//! An answer in one piece.

use std::pin::pin;

use tokio::time::{Instant, sleep_until};

use super::{
    Admitted, Begun, CHARGE_TIMEOUT, Form, NotStarted, Reply, Started, ask,
    attempts::Attempts,
    client_watch::ClientWatch,
    failure::Failure,
    tool_loop::{Next, Steps},
};
use crate::{
    base::failpoint,
    gateway::Gateway,
    ledger::Outcome,
    prompt::ChatCall,
    wire::{
        chat::{Answer, Bill},
        error::UpstreamError,
    },
};

pub async fn whole(
    gateway: &Gateway,
    mut call: Box<ChatCall>,
    form: Form,
    mut admitted: Admitted<'_>,
    begun: Begun,
    mut client: ClientWatch<'_>,
) {
    let credits_expire_at = admitted.credits_expire_at();
    let answer = {
        let mut answering = pin!(answer(gateway, &mut call, &mut admitted, &begun));
        tokio::select! {
            answer = client.while_waiting(&begun, answering.as_mut()) => answer,
            () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping.into()),
        }
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(Failure::Left(usage)) => return Box::pin(admitted.charge_abandoned(usage)).await,
        Err(failure) => {
            admitted.fail(&failure, failure.outcome());
            let _ = begun.send(Err(NotStarted::Failed(failure.into_error())));
            return;
        }
    };
    admitted.answers();
    gateway.record_hybrid_choice(&call.route);
    failpoint::reached("answered");
    let outcome = if begun.is_closed() {
        Outcome::ClientLeft
    } else {
        Outcome::Answered
    };
    let bill = answer.usage.map(|usage| admitted.bill(usage));
    if let Some(Bill { usage, .. }) = bill {
        // A timer only for a charge that has to be tried again.
        let until = Instant::now() + CHARGE_TIMEOUT;
        let timeout = async { sleep_until(until).await };
        if let Err(error) = admitted.charge(usage, outcome, timeout).await {
            // Without a charge there is no answer: what was not paid for is not handed out.
            admitted.free(Outcome::NotCharged, Some(error.to_string()));
            let _ = begun.send(Err(NotStarted::Failed(error)));
            return;
        }
    } else {
        admitted.free_uncounted(&call);
    }
    let started = Started {
        reply: Reply::Whole {
            body: form.whole(gateway, &call, &answer, bill).await,
            usage: answer.usage,
        },
        routed: call.route.routed(),
        credits_expire_at,
    };
    failpoint::reached("handed_over");
    let _ = begun.send(Ok(started)); // nobody listens when the client has gone
}

/// The answer, with what it used and all that led to it.
async fn answer(
    gateway: &Gateway,
    call: &mut ChatCall,
    admitted: &mut Admitted<'_>,
    begun: &Begun,
) -> Result<Answer, Failure> {
    if !call.tools.are_built_in() {
        let attempts = Attempts::new(gateway, Some(begun));
        return Ok(ask::for_answer(attempts, call, admitted).await?);
    }
    // Boxed, so that calls without tools keep no room for them.
    Box::pin(answer_with_tools(gateway, call, admitted, begun)).await
}

async fn answer_with_tools(
    gateway: &Gateway,
    call: &mut ChatCall,
    admitted: &mut Admitted<'_>,
    begun: &Begun,
) -> Result<Answer, Failure> {
    let mut steps = Steps::default();
    loop {
        steps.begin(call, admitted).await?;
        let attempts = Attempts::new(gateway, Some(begun));
        let mut answer = ask::for_answer(attempts, call, admitted).await?;
        let left = begun.is_closed();
        let next = steps.after(&mut answer, left, gateway, call, admitted);
        if let Next::HandOn = next.await? {
            return Ok(answer);
        }
    }
}
