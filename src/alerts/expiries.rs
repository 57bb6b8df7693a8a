//! Credit that expires soon, and that somebody could still use.

use std::collections::HashSet;

use serde_json::json;

use super::{Found, Sighting, View};
use crate::{
    ledger::{Expiring, ExpiringPage, LedgerError},
    money::NanoUsd,
    office::AlertKind,
    time_text,
};

const KIND: AlertKind = AlertKind::CreditExpiring;
/// Credit expires in days: it is looked for every so many seconds.
const EVERY: i64 = 600;
const ON_A_PAGE: usize = 500;
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
    let mut known = HashSet::new();
    let mut page = ExpiringPage {
        from: view.now,
        until: view.now.saturating_add(within),
        after: None,
        limit: ON_A_PAGE,
    };
    loop {
        let expiring = view.gateway.ledger.expiring(&page).await?;
        page.after = expiring
            .last()
            .map(|last| (last.expires_at, last.grant_id.clone()));
        let is_last = expiring.len() < ON_A_PAGE;
        for one in expiring {
            if one.left >= WORTH_TELLING {
                known.insert(one.grant_id.clone());
                if !alerts.knows_expiring(&one.grant_id) {
                    found.seen.push(sighting(&one));
                }
            }
        }
        if is_last {
            break;
        }
    }
    alerts.looked_at_expiries(view.now, known);
    Ok(found)
}

/// What an open alert is about, as long as it is there.
async fn still_expiring(view: &View<'_>, subject: &str) -> Result<Option<Expiring>, LedgerError> {
    let Some((account_id, grant_id)) = subject.split_once('/') else {
        return Ok(None);
    };
    let left = view.gateway.ledger.grants_left(account_id).await?;
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
            "expires_at": time_text::shown(*expires_at),
        }),
    }
}
