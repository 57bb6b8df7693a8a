//! Turns payments into credit, exactly once, however often the provider delivers a payment.
//!
//! If a store fails on the way, the provider is asked to deliver the payment again, and an hourly job credits
//! payments that were recorded but not credited.

use std::sync::Arc;

use super::{ActionError, OperatorActions};
use crate::{
    backoffice::{
        Checkout, Payment, Receipt, is_checkout,
        payments::{Paid, Payments, Sum, TEST_PROVIDER},
    },
    base::timestamp,
    gateway::Gateway,
    ledger::{Grant, LedgerError, NewGrant},
};

/// Age in seconds at which an uncredited payment is taken up by the job; a younger one may be in progress.
const PENDING_MIN_AGE: i64 = 600;
/// Number of pending payments that the job credits in one run.
const PENDING_BATCH: usize = 100;

/// The payment could not be credited now, and the provider should deliver it again. The reason has been logged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DeliverAgain;

/// Credits a payment to the account that ordered it, and returns that account's ID; `None` if nothing was to be
/// credited.
///
/// The payment is first recorded in the backoffice. The grant is then made from that record, with the provider's
/// session ID as its reference, so a repeated delivery requests the identical grant.
pub(crate) async fn credit_payment(
    gateway: &Arc<Gateway>,
    payments: &Payments,
    paid: &Paid,
) -> Result<Option<String>, DeliverAgain> {
    let provider = &payments.provider;
    let session = paid.session.as_str();
    let ours = paid.checkout.as_deref().filter(|id| is_checkout(id));
    let Some(id) = ours else {
        tracing::warn!(
            session,
            "a payment without a checkout of this gateway was delivered; ignored"
        );
        return Ok(None);
    };
    let amount = match &paid.sum {
        Sum::Usd(amount) => *amount,
        Sum::Foreign { currency } => {
            tracing::error!(
                checkout = id,
                session,
                currency = loggable(currency),
                "a payment is not in US dollars; nothing was credited",
            );
            return Ok(None);
        }
    };
    let now = timestamp::now();
    let lasts = payments
        .offer
        .credit_days
        .map(|days| i64::from(days) * 86_400);
    let payment = Payment {
        provider: provider.key(),
        session,
        amount,
        now,
        expires_at: lasts.map(|lasts| now + lasts),
    };
    let recorded = gateway.backoffice.checkout_paid(id, &payment).await;
    let checkout = match recorded {
        Ok(Some(checkout)) => checkout,
        Ok(None) => {
            tracing::error!(
                checkout = id,
                session,
                "a payment names a checkout that is not in the store; the provider is asked to deliver it again",
            );
            return Err(DeliverAgain);
        }
        Err(error) => return Err(retry_later(id, session, &error)),
    };
    let Some(receipt) = receipt(&checkout, provider.key(), session) else {
        tracing::error!(
            checkout = id,
            session,
            begun = checkout.session,
            "a payment names a checkout of another session; nothing was credited",
        );
        return Ok(None);
    };
    if receipt.grant_id.is_none() {
        credit(gateway, provider.name(), &checkout, receipt).await?;
    }
    if let (Some((customer, card)), Some(consent_id)) = (&paid.card, &checkout.consent_id) {
        let card = (customer.as_str(), card.as_str());
        let agreed = (provider.key(), consent_id.as_str());
        let saved = gateway
            .backoffice
            .save_card(&checkout.account_id, agreed, card);
        saved
            .await
            .map_err(|error| retry_later(id, session, &error))?;
    }
    Ok(Some(checkout.account_id))
}

/// Returns the recorded receipt if it belongs to this payment session.
fn receipt<'a>(checkout: &'a Checkout, provider: &str, session: &str) -> Option<&'a Receipt> {
    let same = checkout.provider == provider && checkout.session.as_deref() == Some(session);
    checkout.receipt.as_ref().filter(|_| same)
}

async fn credit(
    gateway: &Arc<Gateway>,
    provider: &str,
    checkout: &Checkout,
    receipt: &Receipt,
) -> Result<(), DeliverAgain> {
    let id = checkout.id.as_str();
    let session = checkout.session.as_deref().unwrap_or_default();
    if receipt.amount != checkout.amount {
        tracing::warn!(
            checkout = id,
            session,
            ordered = %checkout.amount,
            paid = %receipt.amount,
            "the amount paid differs from the amount ordered; the amount paid is credited",
        );
    }
    let account = gateway.ledger.account(&checkout.account_id).await;
    match account {
        Ok(account) if account.closed => {
            tracing::warn!(
                checkout = id,
                account.id,
                "a payment for a closed account was received; it is credited"
            );
        }
        Ok(_) => {}
        Err(error) => return Err(retry_later(id, session, &error)),
    }
    let new = NewGrant {
        amount: receipt.amount,
        expires_at: receipt.expires_at,
        // Without the person: the ledger keeps it for ever. The list of payments has who ordered.
        reason: Some(reason(checkout).to_owned()),
        reference: Some(format!("{}:{session}", checkout.provider)),
    };
    let actions = OperatorActions::by(gateway, provider);
    let grant = match actions.grant(checkout.account_id.clone(), new).await {
        Ok(grant) => grant,
        // An operator has made a grant with this reference by hand, with another reason or amount. That grant counts.
        Err(ActionError::Ledger(error @ LedgerError::ReferenceTaken { .. })) => {
            tracing::error!(checkout = id, session, %error, "a payment had been credited by hand; that grant is kept");
            let given = grant_by_reference(gateway, checkout, session).await;
            given.map_err(|error| retry_later(id, session, &error))?
        }
        Err(error) => return Err(retry_later(id, session, &error)),
    };
    let noted = gateway.backoffice.checkout_credited(id, &grant.id).await;
    noted.map_err(|error| retry_later(id, session, &error))?;
    tracing::info!(
        checkout = id,
        session,
        account.id = checkout.account_id,
        amount = %grant.amount,
        "payment credited",
    );
    Ok(())
}

/// What the grant of a payment says. Always the same for a checkout, so that a repeated grant is the same.
fn reason(checkout: &Checkout) -> &'static str {
    match (checkout.provider == TEST_PROVIDER, checkout.automatic) {
        (true, true) => "Automatic top-up (test payment, no card charged)",
        (true, false) => "Test payment (no card charged)",
        (false, true) => "Automatic top-up",
        (false, false) => "Paid by card",
    }
}

/// Returns the grant that has this payment's reference.
async fn grant_by_reference(
    gateway: &Gateway,
    checkout: &Checkout,
    session: &str,
) -> Result<Grant, LedgerError> {
    let reference = format!("{}:{session}", checkout.provider);
    let grants = gateway.ledger.grants(&checkout.account_id).await?;
    let mut grants = grants.into_iter();
    let given = grants.find(|grant| grant.reference.as_ref() == Some(&reference));
    given.ok_or(LedgerError::Unavailable)
}

/// Credits payments that were recorded but not credited because a store failed. The provider may have stopped
/// delivering them by now.
pub(crate) async fn credit_pending_payments(gateway: &Arc<Gateway>) {
    let Some(payments) = &gateway.payments else {
        return;
    };
    let before = timestamp::now() - PENDING_MIN_AGE;
    let pending = gateway
        .backoffice
        .uncredited_checkouts(before, PENDING_BATCH)
        .await;
    let pending = pending.unwrap_or_else(|error| {
        tracing::warn!(%error, "reading uncredited payments failed; retrying in an hour");
        Vec::new()
    });
    for checkout in pending {
        if let Some(receipt) = &checkout.receipt {
            // A failure has been logged, and the next run tries again.
            let _ = credit(gateway, payments.provider.name(), &checkout, receipt).await;
        }
    }
}

/// Logs why a payment was not credited and returns the error that asks for another delivery.
fn retry_later(checkout: &str, session: &str, error: &dyn std::fmt::Display) -> DeliverAgain {
    tracing::error!(
        checkout,
        session,
        %error,
        "crediting a payment failed; it is retried when the provider delivers it again, or by the hourly job",
    );
    DeliverAgain
}

/// Shortens a text from the provider for the log.
fn loggable(text: &str) -> String {
    text.chars().take(16).collect()
}
