//! A response in one piece.

use std::{pin::pin, sync::Arc};

use tokio::time::{Instant, sleep_until};

use super::{
    Admitted, CHARGE_TIMEOUT, Client, ClientWatch, Form, NotStarted, Reply, Started, ask,
    attempts::Attempts,
    failure::Failure,
    tool_loop::{Next, Steps},
};
use crate::{
    base::failpoint,
    gateway::{
        Gateway,
        retries::{Head, RecordedCall},
    },
    ledger::Outcome,
    prompt::ChatCall,
    wire::{
        chat::{Answer, Bill},
        error::{GatewayError, UpstreamError},
    },
};

/// Asks the provider, charges what it used, and returns the response.
///
/// Without a charge there is no response: what cannot be billed is not delivered.
pub(crate) async fn whole(
    mut call: Box<ChatCall>,
    form: Form,
    mut admitted: Admitted,
    mut client: ClientWatch,
    recorded: Option<Arc<RecordedCall>>,
) -> Result<Started, NotStarted> {
    let gateway = admitted.gateway.clone();
    let credits_expire_at = admitted.credits_expire_at();
    let result = {
        let waiting = client.deciding();
        let mut running = pin!(ask(&gateway, &mut call, &mut admitted, &waiting));
        tokio::select! {
            answer = client.while_waiting(&gateway.abandoned, running.as_mut()) => answer,
            () = gateway.shutdown.deadline() => Err(UpstreamError::GatewayStopping.into()),
        }
    };
    let answer = match result {
        Ok(answer) => answer,
        Err(failure) => return Err(admitted.end_without_response(failure).await),
    };
    admitted.first_byte();
    gateway.record_hybrid_choice(&call.route);
    failpoint::reached("answered");
    let bill = answer.usage.map(|usage| admitted.bill(usage));
    let facts = admitted.facts(bill);
    let keyed = recorded.as_ref().filter(|call| call.is_keyed());
    let settled = if let Some(keyed) = keyed {
        // Boxed, so that calls without a key reserve no memory for it.
        Box::pin(settle_with_response(
            form,
            &call,
            admitted,
            (&answer, bill),
            &client.client,
            keyed.max_bytes(),
        ))
        .await
    } else {
        match settle(&call, admitted, bill, &client.client).await {
            Ok(()) => Ok(form.whole(&gateway, &call, &answer, bill).await),
            Err(error) => Err(error),
        }
    };
    let body = match settled {
        Ok(body) => body,
        Err(error) => return Err(NotStarted::Failed(error, Box::new(facts.without_cost()))),
    };
    let routed = call.route.routed();
    if let Some(recorded) = recorded {
        let head = Head {
            stream: None,
            routed: routed.clone(),
        };
        recorded.recording().complete_whole(head, &body);
    }
    let started = Started {
        reply: Reply::Whole {
            body,
            usage: answer.usage,
            facts,
        },
        routed,
        credits_expire_at,
    };
    failpoint::reached("handed_over");
    Ok(started)
}

/// Writes the response, and charges the call with an idempotency key: both are stored, or neither is.
async fn settle_with_response(
    form: Form,
    call: &ChatCall,
    mut admitted: Admitted,
    (answer, bill): (&Answer, Option<Bill>),
    client: &Client,
    most_bytes: usize,
) -> Result<Vec<u8>, GatewayError> {
    let gateway = admitted.gateway.clone();
    let stored = form.stored_response();
    let body = form.whole(&gateway, call, answer, bill).await;
    let kept = (body.len() <= most_bytes).then(|| std::str::from_utf8(&body).ok());
    admitted.set_response(kept.flatten().map(Arc::from));
    if let Err(error) = settle(call, admitted, bill, client).await {
        if let Some(id) = stored {
            let _ = gateway.conversations.delete(&call.user, &id).await;
        }
        return Err(error);
    }
    Ok(body)
}

/// The provider's answer, after all steps that it takes.
async fn ask(
    gateway: &Gateway,
    call: &mut ChatCall,
    admitted: &mut Admitted,
    client: &Client,
) -> Result<Answer, Failure> {
    if !call.tools.are_built_in() {
        let attempts = Attempts::new(gateway, Some(client));
        return Ok(ask::for_answer(attempts, call, admitted).await?);
    }
    // Boxed, so that calls without tools reserve no memory for it.
    Box::pin(ask_with_tools(gateway, call, admitted, client)).await
}

async fn ask_with_tools(
    gateway: &Gateway,
    call: &mut ChatCall,
    admitted: &mut Admitted,
    client: &Client,
) -> Result<Answer, Failure> {
    let mut steps = Steps::default();
    loop {
        steps.begin(call, admitted).await?;
        let attempts = Attempts::new(gateway, Some(client));
        let mut answer = ask::for_answer(attempts, call, admitted).await?;
        let left = client.has_left();
        let next = steps.after(&mut answer, left, gateway, call, admitted);
        if let Next::Deliver = next.await? {
            return Ok(answer);
        }
    }
}

/// Charges the call; without a bill, because the provider reported no usage, it is free.
async fn settle(
    call: &ChatCall,
    mut admitted: Admitted,
    bill: Option<Bill>,
    client: &Client,
) -> Result<(), GatewayError> {
    let Some(Bill { usage, .. }) = bill else {
        admitted.release_uncounted(call);
        return Ok(());
    };
    let outcome = if client.has_left() {
        Outcome::ClientLeft
    } else {
        Outcome::Answered
    };
    // The timer starts only for a charge that has to be retried.
    let until = Instant::now() + CHARGE_TIMEOUT;
    let timeout = async { sleep_until(until).await };
    let charged = admitted.charge(usage, outcome, timeout).await;
    if let Err(error) = &charged {
        admitted.release(Outcome::NotCharged, Some(error.to_string()));
    }
    charged
}
