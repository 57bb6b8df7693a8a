//! Which account a filter of the console means: its ID or email, or part of its email or name if only one fits.

use super::paging;
use crate::{
    gateway::Gateway,
    ledger::{AccountFound, LedgerError},
    portal::error::PortalError,
};

/// The account of a filter, which is given by ID or email.
pub(super) enum AccountFilter {
    Any,
    One(String),
    /// None has this email, or several do.
    Unclear(String),
}

impl AccountFilter {
    pub(super) async fn find(gateway: &Gateway, text: Option<&str>) -> Result<Self, PortalError> {
        Self::search(gateway, text, true).await
    }

    /// For changes: a part of an email is not enough.
    pub(super) async fn exactly(
        gateway: &Gateway,
        text: Option<&str>,
    ) -> Result<Self, PortalError> {
        Self::search(gateway, text, false).await
    }

    async fn search(
        gateway: &Gateway,
        text: Option<&str>,
        takes_parts: bool,
    ) -> Result<Self, PortalError> {
        let Some(text) = text else {
            return Ok(Self::Any);
        };
        if text.starts_with("acct_") && !text.contains('\0') {
            match gateway.ledger.account(text).await {
                Ok(account) => return Ok(Self::One(account.id)),
                Err(LedgerError::NotFound { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The search finds parts of emails and names as well, newest accounts first.
        let found = gateway
            .ledger
            .find_accounts(text, None, paging::QUERIED)
            .await?;
        let is_exact = |account: &AccountFound| {
            let account = &account.account;
            account.email.eq_ignore_ascii_case(text)
        };
        let exact: Vec<_> = found.iter().filter(|one| is_exact(one)).collect();
        let partly = if takes_parts { found.as_slice() } else { &[] };
        Ok(match (exact.as_slice(), partly) {
            ([one], _) => Self::One(one.account.id.clone()),
            ([], [one]) => Self::One(one.account.id.clone()),
            ([], []) => Self::Unclear(format!("No account has the ID or email “{text}”.")),
            _ => Self::Unclear(format!(
                "Several accounts match “{text}”. Enter the ID of one; the page Accounts finds it."
            )),
        })
    }

    pub(super) fn id(&self) -> Result<Option<&str>, String> {
        match self {
            Self::Any => Ok(None),
            Self::One(id) => Ok(Some(id)),
            Self::Unclear(message) => Err(message.clone()),
        }
    }
}
