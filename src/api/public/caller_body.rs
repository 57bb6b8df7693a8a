//! Reads the body of a billed request.
//!
//! A large body takes memory long before the call that it is for can be admitted. So it is read only if its account
//! could start a call, and only as far as there is memory for it (`net/body_memory.rs`).

use std::sync::Arc;

use axum::body::Body;

use super::confirm::{fresh_caller, retry_if_stale};
use crate::{
    api::{
        access_log::RequestLog,
        body::{Gate, MemoryGate, ReceivedBody, read_through},
    },
    gateway::Gateway,
    ledger::Caller,
    metered,
    wire::error::GatewayError,
};

/// Size above which a body is read only for an account that could start a call.
const CHECKED_BYTES: usize = 1 << 20;

/// Reads the whole body. If that fails, a cached caller is re-read first, so that a key that was disabled meanwhile
/// gets the error for its key.
pub(crate) async fn read_caller_body(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    log: &RequestLog,
    body: Body,
) -> Result<ReceivedBody, GatewayError> {
    let mut gate = CallerGate {
        gateway,
        caller,
        log,
        is_checked: false,
        is_confirmed: caller.seen.fresh,
        memory: MemoryGate::new(&gateway.body_memory, &caller.account_id),
    };
    let read = read_through(&mut gate, body, gateway.max_body_bytes).await;
    let is_confirmed = gate.is_confirmed;
    // Consumes the gate, so that the memory of a refused body is released before the store is asked.
    let read = match read {
        Ok(bytes) => gate.memory.received(bytes),
        Err(error) => {
            drop(gate);
            Err(error)
        }
    };
    match &read {
        // Costs no look at the store: an account at its share can be refused very often.
        Ok(_) | Err(GatewayError::BodyMemoryExhausted) => {}
        Err(_) if is_confirmed => {}
        Err(_) => drop(Box::pin(fresh_caller(gateway, caller.digest)).await?),
    }
    read
}

/// Checks the account of a large body and reserves its memory.
struct CallerGate<'a> {
    gateway: &'a Arc<Gateway>,
    caller: &'a Caller,
    log: &'a RequestLog,
    /// Whether the account could start a call.
    is_checked: bool,
    /// Whether the caller is not from a cache, or was re-read for its refusal.
    is_confirmed: bool,
    memory: MemoryGate<'a>,
}

impl CallerGate<'_> {
    /// Checks once whether the account could start a call, if the body is large. Ends if the body is cancelled meanwhile,
    /// because others wait for its memory.
    async fn check(&mut self, length: usize) -> Result<(), GatewayError> {
        if self.is_checked || length <= CHECKED_BYTES {
            return Ok(());
        }
        let request_id = self.log.request_id();
        let checking = retry_if_stale(self.gateway, self.caller.clone(), async |caller: Caller| {
            metered::could_start(self.gateway, &caller, &request_id).await
        });
        let checked = tokio::select! {
            checked = checking => checked,
            () = self.memory.revoked() => return Err(GatewayError::BodyMemoryExhausted),
        };
        self.is_checked = checked.is_ok();
        self.is_confirmed |= checked.is_err();
        checked
    }
}

impl Gate for CallerGate<'_> {
    fn allowed(&self) -> usize {
        let covered = self.memory.allowed();
        if self.is_checked {
            covered
        } else {
            covered.min(CHECKED_BYTES)
        }
    }

    async fn begin(&mut self, announced: usize) -> Result<(), GatewayError> {
        self.check(announced).await
    }

    async fn grow(&mut self, length: usize) -> Result<(), GatewayError> {
        self.check(length).await?;
        self.memory.grow(length).await
    }

    async fn wait(&mut self) -> Result<(), GatewayError> {
        self.memory.wait().await
    }

    async fn revoked(&self) {
        self.memory.revoked().await;
    }
}
