//! Credit that expires soon, and that somebody could still use.

use std::collections::HashSet;

use serde_json::json;

use super::{Found, Sighting, View};
use crate::{
    backoffice::AlertKind,
    base::{money::NanoUsd, timestamp},
    ledger::{Expiring, ExpiringPage, Ledger, LedgerError},
};

const KIND: AlertKind = AlertKind::CreditExpiring;
/// Credit expires in days: it is looked for every so many seconds.
const EVERY: i64 = 600;
const ON_A_PAGE: usize = 500;
/// How many that are new are written down in a look; the others have their turn at the next.
const MOST_NEW: usize = 500;
/// A cent: nobody wants a letter about less.
const WORTH_TELLING: NanoUsd = NanoUsd::new(10_000_000);

pub async fn look<'a>(view: &View<'a>) -> Result<Found<'a>, LedgerError> {
    let alerts = &view.gateway.alerts;
    let Some(within) = alerts.settings.expiring_within else {
        return Ok(view.all_over(KIND));
    };
    let mut found = Found::default();
    for alert in view.open_of(KIND) {
        match still_expiring(view, &alert.subject).await? {
            Some(expiring) => found.seen.push(sighting(&expiring)),
            None => found.over.push(alert),
        }
    }
    if !alerts.is_time_for_expiries(view.now, EVERY) {
        return Ok(found);
    }
    let (mut known, mut new, mut all) = (HashSet::new(), 0, true);
    let limit = on_a_page(&view.gateway.ledger);
    let mut page = ExpiringPage {
        from: view.now,
        until: view.now.saturating_add(within),
        after: None,
        limit,
    };
    loop {
        let expiring = view.gateway.ledger.expiring(&page).await?;
        page.after = expiring
            .last()
            .map(|last| (last.expires_at, last.grant_id.clone()));
        let is_last = expiring.len() < limit;
        for one in expiring {
            if one.left < WORTH_TELLING {
                continue;
            }
            if !alerts.knows_expiring(&one.grant_id) {
                if new == MOST_NEW {
                    all = false;
                    continue;
                }
                new += 1;
                found.seen.push(sighting(&one));
            }
            known.insert(one.grant_id);
        }
        if is_last {
            break;
        }
    }
    let looked_at = if all { view.now } else { i64::MIN };
    alerts.looked_at_expiries(looked_at, known);
    Ok(found)
}

/// What is in memory is walked through once, and not once for each page.
fn on_a_page(ledger: &Ledger) -> usize {
    match ledger {
        Ledger::Embedded(_) => usize::MAX,
        Ledger::Shared(_) => ON_A_PAGE,
    }
}

/// What an open alert is about, as long as it is there and somebody can use it.
async fn still_expiring(view: &View<'_>, subject: &str) -> Result<Option<Expiring>, LedgerError> {
    let Some((account_id, grant_id)) = subject.split_once('/') else {
        return Ok(None);
    };
    let ledger = &view.gateway.ledger;
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
    let open = |one: &Expiring| one.expires_at > view.now && one.left >= WORTH_TELLING;
    Ok(expiring.filter(open))
}

fn sighting(expiring: &Expiring) -> Sighting {
    let Expiring {
        account_id,
        grant_id,
        left,
        expires_at,
    } = expiring;
    Sighting {
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
