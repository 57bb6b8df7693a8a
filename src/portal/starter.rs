//! The credit that an account gets once, when its owner has signed up.
//!
//! It is a grant with a fixed reference, so an account gets it once, however often this is repeated and at however many
//! gateways; an address or an identity gets it with one account only, also after that is deleted. It is given at a sign-in
//! of the first day, so one that could not be given at the sign-up is made up for.

use std::sync::Arc;

use super::session::account_of;
use crate::{
    backoffice::{Person, TeamRole},
    base::timestamp,
    config::StarterCredit,
    gateway::{
        Gateway, STARTER_CREDIT,
        actions::{ActionError, OperatorActions},
    },
    ledger::{Account, Grant, LedgerError, NewGrant},
};

const DAY_SECONDS: i64 = 86_400;

/// Gives the starter credit if there is any, and the person has signed up within a day. A failure is logged.
pub(crate) async fn give(gateway: &Arc<Gateway>, person: &Person) {
    let Some(credit) = gateway.portal.starter_credit else {
        return;
    };
    let now = timestamp::now();
    if person.team_role != TeamRole::Owner || person.created_at < now - DAY_SECONDS {
        return;
    }
    let account = match account_of(gateway, person).await {
        Ok(account) => account,
        Err(error) => return failed(person, &error.to_string()),
    };
    if !has_signed_up(person, &account) {
        return;
    }
    match gateway.backoffice.claim_starter_credit(person, now).await {
        Ok(true) => {}
        Ok(false) => {
            tracing::info!(
                account.id = account.id,
                "no starter credit: the address or the identity got it with another account"
            );
            return;
        }
        Err(error) => return failed(person, &error.to_string()),
    }
    let actions = OperatorActions::by(gateway, "sign-up");
    let new = grant(credit, account.created_at);
    match actions.grant(account.id, new).await {
        // The second is an account that got it before the configuration was changed.
        Ok(_) | Err(ActionError::Ledger(LedgerError::ReferenceTaken { .. })) => {}
        Err(error) => failed(person, &error.to_string()),
    }
}

/// Whether the person has made the account: an operator makes an account before anyone can be invited to it.
fn has_signed_up(person: &Person, account: &Account) -> bool {
    account.created_at >= person.created_at
}

/// Always the same for an account, because a reference that is used again must be for the same grant.
fn grant(credit: StarterCredit, since: i64) -> NewGrant {
    let lasts = credit.days.map(|days| i64::from(days) * DAY_SECONDS);
    NewGrant {
        amount: credit.amount,
        expires_at: lasts.map(|lasts| since + lasts),
        reason: Some("Starter credit".to_owned()),
        reference: Some(STARTER_CREDIT.to_owned()),
    }
}

/// The starter credit among the account's grants.
pub(crate) fn among(grants: &[Grant]) -> Option<&Grant> {
    let mut grants = grants.iter();
    grants.find(|grant| grant.reference.as_deref() == Some(STARTER_CREDIT))
}

fn failed(person: &Person, error: &str) {
    tracing::error!(
        account.id = person.account_id,
        error,
        "giving an account its starter credit failed; it is tried again at the next sign-in within a day",
    );
}
