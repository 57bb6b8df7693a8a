//! Books that do not add up, whichever audit has found them: at the start, of the last minute, or an
//! operator's.

use serde_json::json;

use super::{Found, Sighting, View};
use crate::{backoffice::AlertKind, ledger::LedgerError};

const KIND: AlertKind = AlertKind::AuditMismatch;
/// How many are counted, and how many of them are named.
const MOST: usize = 100;
const NAMED: usize = 10;

pub async fn look<'a>(view: &View<'a>) -> Result<Found<'a>, LedgerError> {
    let Some(accounts) = view.gateway.ledger.frozen_accounts(MOST).await? else {
        // A gateway that has just begun knows nothing of it yet.
        return Ok(Found::default());
    };
    if accounts.is_empty() {
        return Ok(view.all_over(KIND));
    }
    let named = &accounts[..accounts.len().min(NAMED)];
    let detail = json!({ "accounts": accounts.len(), "some": named });
    let seen = vec![Sighting {
        kind: KIND,
        subject: "ledger".into(),
        detail,
    }];
    Ok(view.over_but(KIND, seen))
}
