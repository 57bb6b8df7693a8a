//! What was paid becomes credit: once, whatever fails on the way and however often it is told.

use std::sync::Arc;

use super::{ActError, Acts};
use crate::{
    backoffice::{
        Checkout, Payment, Receipt, is_checkout,
        payments::{Paid, Payments, Sum},
    },
    base::timestamp,
    gateway::Gateway,
    ledger::{Grant, LedgerError, NewGrant},
};

/// A payment that was told of so long ago is not being credited at this moment.
const LEFT_SECONDS: i64 = 600;
const LEFT_AT_ONCE: usize = 100;

/// It could not be done now; whoever told of the payment is to tell it again. The log has why.
#[derive(Debug, PartialEq, Eq)]
pub struct DeliverAgain;

/// Gives the credit that was paid for to the account that ordered it: that account, if there is one.
///
/// The payment is written down first, in the office, and the credit is given as it is written there, under
/// the provider's own name for it. So every repetition asks for the very same grant.
pub async fn settle(
    gateway: &Arc<Gateway>,
    payments: &Payments,
    paid: &Paid,
) -> Result<Option<String>, DeliverAgain> {
    let provider = &payments.provider;
    let session = paid.session.as_str();
    let ours = paid.checkout.as_deref().filter(|id| is_checkout(id));
    let Some(id) = ours else {
        tracing::warn!(session, "a payment was delivered that was not begun here");
        return Ok(None);
    };
    let amount = match &paid.sum {
        Sum::Usd(amount) => *amount,
        Sum::Foreign { currency } => {
            tracing::error!(
                checkout = id,
                session,
                currency = loggable(currency),
                "a payment is not in US dollars, and nothing was credited for it",
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
    let written = gateway.backoffice.checkout_paid(id, &payment).await;
    let checkout = match written {
        Ok(Some(checkout)) => checkout,
        Ok(None) => {
            tracing::error!(
                checkout = id,
                session,
                "a payment was delivered for a checkout of ours that is not known here",
            );
            return Err(DeliverAgain);
        }
        Err(error) => return Err(later(id, session, &error)),
    };
    let Some(receipt) = receipt(&checkout, provider.key(), session) else {
        tracing::error!(
            checkout = id,
            session,
            begun = checkout.session,
            "a payment names a checkout that was begun as another one, and nothing was credited",
        );
        return Ok(None);
    };
    if receipt.grant_id.is_none() {
        credit(gateway, provider.name(), &checkout, receipt).await?;
    }
    Ok(Some(checkout.account_id))
}

/// What was written down of this payment, and of no other.
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
            "another sum was paid than was ordered; what was paid is credited",
        );
    }
    let account = gateway.ledger.account(&checkout.account_id).await;
    match account {
        Ok(account) if account.closed => {
            tracing::warn!(checkout = id, account.id, "a closed account has paid");
        }
        Ok(_) => {}
        Err(error) => return Err(later(id, session, &error)),
    }
    let new = NewGrant {
        amount: receipt.amount,
        expires_at: receipt.expires_at,
        reason: Some(format!("Paid by card ({})", checkout.person)),
        reference: Some(format!("{}:{session}", checkout.provider)),
    };
    let acts = Acts::by(gateway, provider);
    let grant = match acts.grant(checkout.account_id.clone(), new).await {
        Ok(grant) => grant,
        // Somebody has given it by hand, in other words or another sum: then that is it.
        Err(ActError::Ledger(error @ LedgerError::ReferenceTaken { .. })) => {
            tracing::error!(checkout = id, session, %error, "a payment was credited by hand");
            let given = by_hand(gateway, checkout, session).await;
            given.map_err(|error| later(id, session, &error))?
        }
        Err(error) => return Err(later(id, session, &error)),
    };
    let noted = gateway.backoffice.checkout_credited(id, &grant.id).await;
    noted.map_err(|error| later(id, session, &error))?;
    tracing::info!(
        checkout = id,
        session,
        account.id = checkout.account_id,
        amount = %grant.amount,
        "a payment was credited",
    );
    Ok(())
}

/// The credit that has this payment's reference.
async fn by_hand(
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

/// Gives the credit for payments that were written down and are no credit yet, because a store did not
/// answer: whoever told of them may have given up telling.
pub async fn settle_what_is_left(gateway: &Arc<Gateway>) {
    let Some(payments) = &gateway.payments else {
        return;
    };
    let before = timestamp::now() - LEFT_SECONDS;
    let left = gateway
        .backoffice
        .uncredited_checkouts(before, LEFT_AT_ONCE)
        .await;
    let left = left.unwrap_or_else(|error| {
        tracing::warn!(%error, "payments that are no credit yet could not be looked for");
        Vec::new()
    });
    for checkout in left {
        if let Some(receipt) = &checkout.receipt {
            // What does not work out is in the log, and is tried again.
            let _ = credit(gateway, payments.provider.name(), &checkout, receipt).await;
        }
    }
}

fn later(checkout: &str, session: &str, error: &dyn std::fmt::Display) -> DeliverAgain {
    tracing::error!(
        checkout,
        session,
        %error,
        "a payment could not be credited now; it will be when it is delivered again",
    );
    DeliverAgain
}

/// A provider's word as it may stand in the log.
fn loggable(text: &str) -> String {
    text.chars().take(16).collect()
}
