//! Accounts that are in use and have little left: those that a call of this gateway has just left so.

use std::collections::{BTreeSet, HashSet};

use serde_json::json;

use super::{Found, Sighting, View};
use crate::{
    backoffice::{Alert, AlertKind},
    base::money::NanoUsd,
    ledger::{Ledger, LedgerError},
};

const KIND: AlertKind = AlertKind::BalanceLow;
/// An account that nothing was asked of for so many seconds is not in use any more.
const UNUSED: i64 = 30 * 86_400;

/// `noted` are accounts that were left with little when they were last charged.
pub async fn look<'a>(view: &View<'a>, noted: &HashSet<String>) -> Result<Found<'a>, LedgerError> {
    let Some(low) = view.gateway.alerts.settings.low_balance else {
        return Ok(view.all_over(KIND));
    };
    let open = view.open_of(KIND).map(|alert| alert.subject.as_str());
    let accounts: BTreeSet<&str> = noted.iter().map(String::as_str).chain(open).collect();
    let mut found = Found::default();
    for account_id in accounts {
        let open = view.is_open(KIND, account_id);
        let ledger = &view.gateway.ledger;
        let available = match open {
            Some(alert) if is_unused(ledger, alert, view.now).await? => None,
            _ => available(ledger, account_id).await?,
        };
        match available {
            Some(available) if available < low => found.seen.push(Sighting {
                kind: KIND,
                subject: account_id.to_owned(),
                detail: json!({
                    "account": account_id,
                    "available": available,
                    "threshold": low,
                }),
            }),
            _ => found.over.extend(open),
        }
    }
    Ok(found)
}

/// None where nothing is asked of it any more: the account is closed or gone.
async fn available(ledger: &Ledger, account_id: &str) -> Result<Option<NanoUsd>, LedgerError> {
    match ledger.account(account_id).await {
        Ok(account) if account.closed => Ok(None),
        Ok(_) => Ok(Some(ledger.balances(account_id).await?.available)),
        Err(LedgerError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asked of old alerts only.
async fn is_unused(ledger: &Ledger, alert: &Alert, now: i64) -> Result<bool, LedgerError> {
    let since = now.saturating_sub(UNUSED);
    if alert.opened_at > since {
        return Ok(false);
    }
    let used = ledger.last_used(&alert.subject).await?;
    Ok(used.values().all(|ms| ms.div_euclid(1_000) <= since))
}
