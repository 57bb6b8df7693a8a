//! Check for credit that expires soon and can still be used.

use std::collections::HashSet;

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::{
    backoffice::AlertKind,
    base::{money::NanoUsd, timestamp},
    ledger::{Expiring, ExpiringPage, LedgerError},
};

const KIND: AlertKind = AlertKind::CreditExpiring;
/// Seconds between two searches for expiring credit. Expiries are days ahead, so these need not be frequent.
const SEARCH_INTERVAL: i64 = 600;
/// Number of new findings in one check; the next check reports the others.
const MAX_NEW: usize = 500;
/// One cent: less is not worth an email.
const MIN_AMOUNT: NanoUsd = NanoUsd::new(10_000_000);

pub(crate) async fn check<'a>(context: &CheckContext<'a>) -> Result<CheckResult<'a>, LedgerError> {
    let alerts = &context.gateway.alerts;
    let Some(within) = alerts.settings.expiring_within else {
        return Ok(context.resolve_all(KIND));
    };
    let mut result = CheckResult::default();
    for alert in context.open_of(KIND) {
        match still_expiring(context, &alert.subject).await? {
            Some(expiring) => result.findings.push(finding(&expiring)),
            None => result.resolved.push(alert),
        }
    }
    if !alerts.expiry_search_is_due(context.now, SEARCH_INTERVAL) {
        return Ok(result);
    }
    let (mut known, mut new, mut complete) = (HashSet::new(), 0, true);
    let limit = context.gateway.ledger.expiring_page_size();
    let mut page = ExpiringPage {
        from: context.now,
        until: context.now.saturating_add(within),
        after: None,
        limit,
    };
    loop {
        let expiring = context.gateway.ledger.expiring(&page).await?;
        page.after = expiring
            .last()
            .map(|last| (last.expires_at, last.grant_id.clone()));
        let is_last = expiring.len() < limit;
        for one in expiring {
            if one.left < MIN_AMOUNT {
                continue;
            }
            if !alerts.is_known_expiring(&one.grant_id) {
                if new == MAX_NEW {
                    complete = false;
                    continue;
                }
                new += 1;
                result.findings.push(finding(&one));
            }
            known.insert(one.grant_id);
        }
        if is_last {
            break;
        }
    }
    let searched_at = if complete { context.now } else { i64::MIN };
    alerts.set_expiring(searched_at, known);
    Ok(result)
}

/// Returns the grant of an open alert, unless it has expired, less than a cent of it is left, or its account is
/// closed.
async fn still_expiring(
    context: &CheckContext<'_>,
    subject: &str,
) -> Result<Option<Expiring>, LedgerError> {
    let Some((account_id, grant_id)) = subject.split_once('/') else {
        return Ok(None);
    };
    let ledger = &context.gateway.ledger;
    match ledger.account(account_id).await {
        Ok(account) if account.closed => return Ok(None),
        Err(LedgerError::NotFound { .. }) => return Ok(None),
        other => other?,
    };
    let left = ledger.grants_left(account_id).await?;
    let same = left.into_iter().find(|grant| grant.grant_id == grant_id);
    let expiring = same.and_then(|grant| {
        Some(Expiring {
            account_id: account_id.to_owned(),
            grant_id: grant.grant_id,
            left: grant.left,
            expires_at: grant.expires_at?,
        })
    });
    let is_usable = |one: &Expiring| one.expires_at > context.now && one.left >= MIN_AMOUNT;
    Ok(expiring.filter(is_usable))
}

fn finding(expiring: &Expiring) -> Finding {
    let Expiring {
        account_id,
        grant_id,
        left,
        expires_at,
    } = expiring;
    Finding {
        kind: KIND,
        subject: format!("{account_id}/{grant_id}"),
        detail: json!({
            "account": account_id,
            "grant": grant_id,
            "left": left,
            "expires_at": timestamp::shown(*expires_at),
        }),
    }
}
