//! Automatic top-ups: buys credit with a saved card when a balance is low.
//!
//! An attempt is stored before the provider is called, so the maximum of a month holds whatever fails. An attempt whose
//! outcome is not known stays open and is repeated with the same number, for which the provider charges once; while it
//! is open, no other is begun. Once top-ups are off or were agreed to anew, or the account is closed, nothing is repeated:
//! the provider is only asked what became of the attempt.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    Gateway,
    actions::{DeliverAgain, OperatorActions, credit_payment},
};
use crate::{
    backoffice::{
        BackofficeError, Checkout, TopUp, TopUpState, UNKNOWN,
        payments::{BeginError, CardOutcome, CardPayment, Paid, Payments, SentPayment, Sum},
    },
    base::{month::Month, timestamp},
    ledger::LedgerError,
};

mod emails;

/// Accounts that are looked at together.
const CONCURRENT: i64 = 16;
/// Seconds for which a gateway claims an account: longer than an attempt takes.
const LEASE: i64 = 180;
/// Seconds until an account is looked at again: after a look, and after an attempt without an outcome.
const INTERVAL: i64 = 10;
const RETRY_INTERVAL: i64 = 60;
/// Seconds for which an attempt is repeated. Stripe forgets the number of a request after a day, and would charge again.
const GIVE_UP_AFTER: i64 = 23 * 3_600;
const NOT_FOUND_OUT: &str = "we could not find out whether the last payment succeeded";

/// Looks at all accounts that are due by this clock, in seconds.
pub async fn round(
    gateway: &Arc<Gateway>,
    clock: impl Fn() -> i64 + Send + Sync,
) -> Result<(), BackofficeError> {
    let Some(payments) = &gateway.payments else {
        return Ok(());
    };
    loop {
        // Looks take a while, so each claim has a time of its own, from which its lease lasts.
        let now = clock();
        let claimed = gateway
            .backoffice
            .claim_top_ups(now, now + LEASE, CONCURRENT)
            .await?;
        let looks = claimed
            .iter()
            .map(|one| look(gateway, payments, one, &clock));
        for looked in join_all(looks).await {
            looked?;
        }
        if claimed.is_empty() {
            return Ok(());
        }
    }
}

async fn look(
    gateway: &Arc<Gateway>,
    payments: &Payments,
    claimed: &TopUp,
    clock: &(impl Fn() -> i64 + Send + Sync),
) -> Result<(), BackofficeError> {
    let (backoffice, account_id) = (&gateway.backoffice, claimed.account_id.as_str());
    let mut attempt = backoffice.open_attempt(account_id).await?;
    if attempt.is_none() && is_needed(gateway, payments, claimed).await {
        // The system's clock dates payments, so it decides which month it is.
        let month = Month::of_ms(timestamp::now_ms());
        let since = month.first_ms() / 1_000;
        attempt = backoffice.begin_attempt(claimed, since, clock()).await?;
        if attempt.is_none() && claimed.told_month < since {
            Box::pin(tell_of_maximum(gateway, claimed, month)).await?;
        }
    }
    let is_done = match &attempt {
        Some(attempt) => {
            // Read again, because they may have been turned off, or claimed by another gateway.
            let top_up = backoffice.top_up(account_id).await?;
            let top_up = top_up.filter(|top_up| top_up.claims == claimed.claims);
            let Some(top_up) = top_up else { return Ok(()) };
            Box::pin(pay(gateway, payments, &top_up, attempt, clock())).await
        }
        None => true,
    };
    let wait = if is_done { INTERVAL } else { RETRY_INTERVAL };
    backoffice.release_top_up(claimed, clock() + wait).await
}

/// Whether credit is to be bought. If the ledger cannot be read, nothing is.
async fn is_needed(gateway: &Gateway, payments: &Payments, top_up: &TopUp) -> bool {
    if top_up.state != TopUpState::On || top_up.provider != payments.provider.key() {
        return false;
    }
    let account = gateway.ledger.account(&top_up.account_id).await;
    let balances = gateway.ledger.balances(&top_up.account_id).await;
    match (account, balances) {
        (Ok(account), Ok(balances)) => !account.closed && balances.balance < top_up.threshold,
        _ => false,
    }
}

/// Tells the account's people once a month if credit is needed, and the maximum of the month allows no more.
async fn tell_of_maximum(
    gateway: &Arc<Gateway>,
    top_up: &TopUp,
    month: Month,
) -> Result<(), BackofficeError> {
    let (backoffice, since) = (&gateway.backoffice, month.first_ms() / 1_000);
    let bought = backoffice.topped_up_since(&top_up.account_id, since);
    if top_up.is_at_maximum(bought.await?) && backoffice.tell_of_maximum(top_up, since).await? {
        emails::at_maximum(gateway, top_up, month).await;
    }
    Ok(())
}

/// Pays for an attempt, or finds out what has become of it. Returns whether it is over.
async fn pay(
    gateway: &Arc<Gateway>,
    payments: &Payments,
    top_up: &TopUp,
    attempt: &Checkout,
    now: i64,
) -> bool {
    if let Some(receipt) = &attempt.receipt {
        // Paid, and not credited because a store failed.
        let paid = Paid {
            checkout: Some(attempt.id.clone()),
            session: attempt.session.clone().unwrap_or_default(),
            sum: Sum::Usd(receipt.amount),
            card: None,
        };
        return credited(gateway, payments, &paid).await;
    }
    let is_old = now - attempt.created_at > GIVE_UP_AFTER;
    if attempt.provider != payments.provider.key() {
        // The provider that has it is not configured any more, so it cannot be asked.
        let unknown = (UNKNOWN, NOT_FOUND_OUT);
        return is_old && give_up(gateway, payments, top_up, attempt, unknown).await;
    }
    // What was agreed to before, but not any more, is only looked up.
    let mut may_charge = attempt.session.is_none() && !is_old && top_up.allows(attempt);
    if may_charge {
        let Ok(is_open) = is_open(gateway, &top_up.account_id).await else {
            return false;
        };
        may_charge = is_open;
    }
    match outcome(payments, top_up, attempt, may_charge).await {
        Ok(Some(CardOutcome::Paid(paid))) => credited(gateway, payments, &paid).await,
        Ok(Some(CardOutcome::Pending(session))) => {
            // If it is not stored, the payment is repeated under its number, which returns the same.
            let _ = gateway
                .backoffice
                .checkout_begun(&attempt.id, &session)
                .await;
            false
        }
        Ok(Some(CardOutcome::Refused(why))) => {
            give_up(gateway, payments, top_up, attempt, (&why, &why)).await
        }
        Ok(None) => {
            let unknown = (UNKNOWN, NOT_FOUND_OUT);
            give_up(gateway, payments, top_up, attempt, unknown).await
        }
        Err(error) => {
            tracing::warn!(
                checkout = attempt.id,
                account.id = attempt.account_id,
                %error,
                "the outcome of an automatic top-up is not known; the provider is asked again",
            );
            false
        }
    }
}

/// Whether an account is there and not closed.
async fn is_open(gateway: &Gateway, account_id: &str) -> Result<bool, LedgerError> {
    match gateway.ledger.account(account_id).await {
        Ok(account) => Ok(!account.closed),
        Err(LedgerError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Charges the card for the attempt, once however often this is repeated; or only finds out whether it was charged.
/// `None` if that cannot be found out.
async fn outcome(
    payments: &Payments,
    top_up: &TopUp,
    attempt: &Checkout,
    may_charge: bool,
) -> Result<Option<CardOutcome>, BeginError> {
    if let Some((customer, card)) = top_up.saved_card().filter(|_| may_charge) {
        let payment = CardPayment {
            checkout: &attempt.id,
            account_id: &attempt.account_id,
            customer,
            card,
            amount: attempt.amount,
        };
        return payments.provider.charge(&payment).await.map(Some);
    }
    let sent = SentPayment {
        checkout: &attempt.id,
        session: attempt.session.as_deref(),
        customer: top_up.customer.as_deref(),
        since: attempt.created_at,
    };
    payments.provider.find(&sent).await
}

async fn credited(gateway: &Arc<Gateway>, payments: &Payments, paid: &Paid) -> bool {
    match credit_payment(gateway, payments, paid).await {
        Ok(_) => true,
        // The reason has been logged, and the next look tries again.
        Err(DeliverAgain) => false,
    }
}

/// Fails the attempt. If the account's top-ups are on by the consent for it, pauses them and tells its people. Returns
/// whether it was stored.
async fn give_up(
    gateway: &Arc<Gateway>,
    payments: &Payments,
    top_up: &TopUp,
    attempt: &Checkout,
    (kind, problem): (&str, &str),
) -> bool {
    let account_id = attempt.account_id.as_str();
    let actions = OperatorActions::by(gateway, payments.provider.name());
    let failed = actions.give_up_top_up(top_up, attempt, (kind, problem));
    let is_paused = match failed.await {
        Ok(is_paused) => is_paused,
        Err(error) => {
            tracing::error!(account.id = account_id, %error, "storing that an automatic top-up failed did not work; it is tried again");
            return false;
        }
    };
    tracing::warn!(
        checkout = attempt.id,
        account.id = account_id,
        paused = is_paused,
        "an automatic top-up failed: {problem}"
    );
    if is_paused {
        emails::paused(gateway, account_id, problem).await;
    }
    true
}
