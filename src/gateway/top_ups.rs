//! Automatic top-ups: buys credit with a saved card when a balance is low.
//!
//! An attempt is stored before the provider is called, so the maximum of a month holds whatever fails. An attempt whose
//! outcome is not known stays open and is repeated with the same number, for which the provider charges once; while it
//! is open, no other is begun.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{
    Gateway,
    actions::{DeliverAgain, OperatorActions, credit_payment},
};
use crate::{
    backoffice::{
        BackofficeError, Checkout, TeamRole, TopUp, TopUpState, UNKNOWN,
        mail::Email,
        payments::{CardOutcome, CardPayment, Paid, Payments, Sum},
    },
    base::month::Month,
};

/// Accounts that are looked at together.
const CONCURRENT: i64 = 16;
/// Seconds for which a gateway claims an account: longer than an attempt takes.
const LEASE: i64 = 180;
/// Seconds until an account is looked at again: after a look, and after an attempt without an outcome.
const INTERVAL: i64 = 10;
const RETRY_INTERVAL: i64 = 60;
/// Seconds after which an attempt is given up. Stripe forgets the number of a request after a day, and would charge again.
const GIVE_UP_AFTER: i64 = 23 * 3_600;

/// Looks at all accounts that are due.
pub async fn round(gateway: &Arc<Gateway>, now: i64) -> Result<(), BackofficeError> {
    let Some(payments) = &gateway.payments else {
        return Ok(());
    };
    loop {
        let claimed = gateway
            .backoffice
            .claim_top_ups(now, now + LEASE, CONCURRENT)
            .await?;
        let looks = claimed.iter().map(|one| look(gateway, payments, one, now));
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
    top_up: &TopUp,
    now: i64,
) -> Result<(), BackofficeError> {
    let backoffice = &gateway.backoffice;
    let mut attempt = backoffice.open_attempt(&top_up.account_id).await?;
    if attempt.is_none() && is_needed(gateway, payments, top_up).await {
        let month = Month::of_ms(now * 1_000).first_ms() / 1_000;
        attempt = backoffice
            .begin_attempt(&top_up.account_id, month, now)
            .await?;
    }
    let is_done = match &attempt {
        Some(attempt) => Box::pin(pay(gateway, payments, top_up, attempt, now)).await,
        None => true,
    };
    let wait = if is_done { INTERVAL } else { RETRY_INTERVAL };
    backoffice.release_top_up(top_up, now + wait).await
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
    if now - attempt.created_at > GIVE_UP_AFTER {
        let problem = "we could not find out whether the last payment succeeded";
        return pause(gateway, payments, attempt, (UNKNOWN, problem)).await;
    }
    let Some((customer, card)) = &top_up.card else {
        let problem = "no card is saved";
        return pause(gateway, payments, attempt, (problem, problem)).await;
    };
    if attempt.provider != payments.provider.key() {
        return false;
    }
    let payment = CardPayment {
        checkout: &attempt.id,
        account_id: &attempt.account_id,
        customer,
        card,
        amount: attempt.amount,
        known: attempt.session.as_deref(),
    };
    match payments.provider.charge(&payment).await {
        Ok(CardOutcome::Paid(paid)) => credited(gateway, payments, &paid).await,
        Ok(CardOutcome::Pending(session)) => {
            // If it is not stored, the payment is repeated under its number, which returns the same.
            let _ = gateway
                .backoffice
                .checkout_begun(&attempt.id, &session)
                .await;
            false
        }
        Ok(CardOutcome::Refused(why)) => pause(gateway, payments, attempt, (&why, &why)).await,
        Err(error) => {
            tracing::warn!(
                checkout = attempt.id,
                account.id = attempt.account_id,
                %error,
                "the outcome of an automatic top-up is not known; it is repeated under the same number",
            );
            false
        }
    }
}

async fn credited(gateway: &Arc<Gateway>, payments: &Payments, paid: &Paid) -> bool {
    match credit_payment(gateway, payments, paid).await {
        Ok(_) => true,
        // The reason has been logged, and the next look tries again.
        Err(DeliverAgain) => false,
    }
}

/// Fails the attempt, pauses the account's top-ups, and tells its people. Returns whether it was stored.
async fn pause(
    gateway: &Arc<Gateway>,
    payments: &Payments,
    attempt: &Checkout,
    (kind, problem): (&str, &str),
) -> bool {
    let account_id = attempt.account_id.as_str();
    let actions = OperatorActions::by(gateway, payments.provider.name());
    let paused = actions.pause_top_up(account_id, &attempt.id, (kind, problem));
    if let Err(error) = paused.await {
        tracing::error!(account.id = account_id, %error, "pausing automatic top-ups failed; it is tried again");
        return false;
    }
    tracing::warn!(
        checkout = attempt.id,
        account.id = account_id,
        "automatic top-ups are paused: {problem}"
    );
    tell(gateway, account_id, problem).await;
    true
}

/// Emails the account's people who see its credit.
async fn tell(gateway: &Arc<Gateway>, account_id: &str, problem: &str) {
    let people = gateway.backoffice.people_of(account_id).await;
    let people = people.unwrap_or_else(|error| {
        tracing::error!(account.id = account_id, %error, "automatic top-ups are paused, and its people could not be told");
        Vec::new()
    });
    let url = &gateway.links.billing;
    for person in people {
        if !matches!(person.team_role, TeamRole::Owner | TeamRole::Billing) {
            continue;
        }
        let email = Email {
            to: person.email,
            subject: "Auto top-up is paused".into(),
            text: format!(
                "An automatic top-up of your account failed: {problem}.\n\n\
                 Auto top-up is paused, and no more credit is bought. Requests are refused once your credit is used up.\n\n\
                 Add credit and turn auto top-up on again:\n{url}\n"
            ),
        };
        gateway.send_later(async move { Some(email) });
    }
}
