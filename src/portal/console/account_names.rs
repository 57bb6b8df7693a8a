//! The names of the accounts on a page, read in one query, so that lists need not show IDs.

use std::collections::HashMap;

use maud::{Markup, html};

use super::accounts;
use crate::{
    gateway::Gateway,
    ledger::{Account, LedgerError},
};

#[derive(Default)]
pub(crate) struct AccountNames(HashMap<String, Account>);

impl AccountNames {
    /// Reads the accounts with these IDs, which may be repeated.
    pub(crate) async fn read(
        gateway: &Gateway,
        ids: impl IntoIterator<Item = &str>,
    ) -> Result<Self, LedgerError> {
        Ok(Self::of(gateway.ledger.accounts_with_ids(ids).await?))
    }

    pub(crate) fn of(accounts: impl IntoIterator<Item = Account>) -> Self {
        let accounts = accounts.into_iter();
        let by_id = accounts.map(|account| (account.id.clone(), account));
        Self(by_id.collect())
    }

    /// The account's name or else its email address; the ID of an unknown account.
    pub(crate) fn name<'a>(&'a self, id: &'a str) -> &'a str {
        let account = self.0.get(id);
        account.map_or(id, |account| {
            account.name.as_ref().unwrap_or(&account.email)
        })
    }

    /// A link to the account's page: its name or else its email address, with the address and the ID as a tooltip. An
    /// unknown account is shown by its ID.
    pub(crate) fn link(&self, id: &str) -> Markup {
        self.link_to(id, "")
    }

    /// The same link to a part of the page, e.g. `#people`.
    pub(crate) fn link_to(&self, id: &str, part: &str) -> Markup {
        let path = accounts::path(id) + part;
        html! {
            @match self.0.get(id) {
                Some(Account { email, .. }) => {
                    a.account href=(path) title={ (email) " · " (id) } { (self.name(id)) }
                },
                None => a href=(path) { code { (id) } },
            }
        }
    }
}
