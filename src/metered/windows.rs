//! The rate-limit windows of a call: that of its account with its model, and that of its key if the key has ceilings of
//! its own. Both are reserved, or neither is.

use std::sync::Arc;

use crate::{
    base::rate::{Ceilings, Refusal, Reservation, UNLIMITED, WindowOf},
    gateway::Gateway,
    ledger::{CallId, Caller, KeyTerms},
    limits::{Admission, NotAdmitted, NotRenewed},
    wire::error::GatewayError,
};

/// In place of a model: the window of a key counts its requests with all models.
const ALL_MODELS: &str = "*";

/// The reservations of a call. Dropped, they stay counted as requests without tokens.
pub(super) struct Windows {
    account: Admission,
    key: Option<(Admission, Ceilings)>,
}

impl Windows {
    pub(super) async fn reserve(
        gateway: &Arc<Gateway>,
        caller: &Caller,
        id: CallId,
        model: &str,
        tokens: u64,
    ) -> Result<Self, GatewayError> {
        let account_id = &caller.account_id;
        let ceilings = gateway.ledger.ceilings(account_id, model, gateway.ceilings);
        let limiter = &gateway.limiter;
        let account = limiter.admit(id.0, account_id, model, tokens, ceilings);
        let account = account.await.map_err(not_admitted)?;
        let Some(own) = own_ceilings(&caller.terms) else {
            let key = None;
            return Ok(Self { account, key });
        };
        let key_id = &caller.payer.key_id;
        match Box::pin(limiter.admit(id.0, key_id, ALL_MODELS, tokens, own)).await {
            Ok(key) => Ok(Self {
                account,
                key: Some((key, own)),
            }),
            Err(refused) => {
                account.cancel();
                Err(not_admitted(of_key(refused)))
            }
        }
    }

    /// Settles the finished step with the tokens that it has used, and reserves tokens for the next one.
    pub(super) async fn renew(
        &mut self,
        used: u64,
        tokens: u64,
        ceilings: Ceilings,
    ) -> Result<(), GatewayError> {
        let renewed = self.account.renew(used, tokens, ceilings).await;
        renewed.map_err(not_renewed)?;
        if let Some((key, own)) = &mut self.key {
            let renewed = Box::pin(key.renew(used, tokens, *own)).await;
            renewed.map_err(|refused| match refused {
                NotRenewed::Refused(refusal) => not_renewed(NotRenewed::Refused(Refusal {
                    of: WindowOf::Key,
                    ..refusal
                })),
                NotRenewed::Lost => not_renewed(NotRenewed::Lost),
            })?;
        }
        Ok(())
    }

    /// Writes the latest reservations to the journal. If this fails, the call must not go ahead.
    pub(super) fn keep(&self) -> std::io::Result<()> {
        self.account.keep()?;
        self.key.as_ref().map_or(Ok(()), |(key, _)| key.keep())
    }

    pub(super) fn settle(&mut self, tokens: u64) {
        self.account.settle(tokens);
        if let Some((key, _)) = &mut self.key {
            key.settle(tokens);
        }
    }

    /// Removes the request from the windows.
    pub(super) fn cancel(self) {
        self.account.cancel();
        if let Some((key, _)) = self.key {
            key.cancel();
        }
    }

    /// The reservations for the ledger to store. Those of the key are the same.
    pub(super) fn reservations(&self) -> &[Reservation] {
        self.account.reservations()
    }
}

fn own_ceilings(terms: &KeyTerms) -> Option<Ceilings> {
    let has_own = terms.rpm.is_some() || terms.tpm.is_some();
    has_own.then(|| Ceilings {
        requests: terms.rpm.unwrap_or(UNLIMITED),
        tokens: terms.tpm.unwrap_or(UNLIMITED),
    })
}

fn of_key(refused: NotAdmitted) -> NotAdmitted {
    match refused {
        NotAdmitted::Refused(refusal) => NotAdmitted::Refused(Refusal {
            of: WindowOf::Key,
            ..refusal
        }),
        NotAdmitted::Unavailable => NotAdmitted::Unavailable,
    }
}

fn not_admitted(refused: NotAdmitted) -> GatewayError {
    match refused {
        NotAdmitted::Refused(refusal) => GatewayError::RateLimited(refusal),
        NotAdmitted::Unavailable => GatewayError::RateLimitUnavailable,
    }
}

fn not_renewed(refused: NotRenewed) -> GatewayError {
    match refused {
        NotRenewed::Refused(refusal) => GatewayError::RateLimited(refusal),
        NotRenewed::Lost => GatewayError::AdmissionLost,
    }
}
