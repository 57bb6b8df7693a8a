//! Check for accounts whose ledger entries do not add up, whichever audit found them: the one at the start, the one
//! of every minute, or an operator's.

use serde_json::json;

use super::{CheckContext, CheckResult, Finding};
use crate::{backoffice::AlertKind, ledger::LedgerError};

const KIND: AlertKind = AlertKind::AuditMismatch;
/// Number of accounts that are counted.
const MAX_COUNTED: usize = 100;
/// Number of accounts whose IDs are in the alert.
const MAX_NAMED: usize = 10;

pub(crate) async fn check<'a>(context: &CheckContext<'a>) -> Result<CheckResult<'a>, LedgerError> {
    let Some(accounts) = context.gateway.ledger.frozen_accounts(MAX_COUNTED).await? else {
        // This gateway has just started and has not audited the ledger yet.
        return Ok(CheckResult::default());
    };
    if accounts.is_empty() {
        return Ok(context.resolve_all(KIND));
    }
    let named = &accounts[..accounts.len().min(MAX_NAMED)];
    let detail = json!({ "accounts": accounts.len(), "some": named });
    let findings = vec![Finding {
        kind: KIND,
        subject: "ledger".into(),
        detail,
    }];
    Ok(context.resolve_others(KIND, findings))
}
