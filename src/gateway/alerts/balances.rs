//! Check for low balances of accounts in use: those below the threshold after a call of this gateway.

use std::collections::{BTreeSet, HashSet};

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::{
    backoffice::{Alert, AlertKind},
    base::money::NanoUsd,
    ledger::{Ledger, LedgerError},
};

const KIND: AlertKind = AlertKind::BalanceLow;
/// Seconds without a call after which an account is no longer in use.
const UNUSED_AFTER: i64 = 30 * 86_400;

/// `noted` are the accounts whose balance was low after their last charge.
pub(crate) async fn check<'a>(
    context: &CheckContext<'a>,
    noted: &HashSet<String>,
) -> Result<CheckResult<'a>, LedgerError> {
    let Some(low) = context.gateway.alerts.settings.low_balance else {
        return Ok(context.resolve_all(KIND));
    };
    let open = context.open_of(KIND).map(|alert| alert.subject.as_str());
    let accounts: BTreeSet<&str> = noted.iter().map(String::as_str).chain(open).collect();
    let mut result = CheckResult::default();
    for account_id in accounts {
        let open = context.open_alert(KIND, account_id);
        let ledger = &context.gateway.ledger;
        let available = match open {
            Some(alert) if is_unused(ledger, alert, context.now).await? => None,
            _ => available(ledger, account_id).await?,
        };
        match available {
            Some(available) if available < low => result.findings.push(Finding {
                kind: KIND,
                subject: account_id.to_owned(),
                detail: json!({
                    "account": account_id,
                    "available": available,
                    "threshold": low,
                }),
            }),
            _ => result.resolved.extend(open),
        }
    }
    Ok(result)
}

/// Returns the available credit; `None` if the account is closed or does not exist.
async fn available(ledger: &Ledger, account_id: &str) -> Result<Option<NanoUsd>, LedgerError> {
    match ledger.account(account_id).await {
        Ok(account) if account.closed => Ok(None),
        Ok(_) => Ok(Some(ledger.balances(account_id).await?.available)),
        Err(LedgerError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns whether the account of an alert is no longer in use. Reads the ledger only for alerts older than that
/// time.
async fn is_unused(ledger: &Ledger, alert: &Alert, now: i64) -> Result<bool, LedgerError> {
    let since = now.saturating_sub(UNUSED_AFTER);
    if alert.opened_at > since {
        return Ok(false);
    }
    let used = ledger.last_used(&alert.subject).await?;
    Ok(used.values().all(|ms| ms.div_euclid(1_000) <= since))
}
