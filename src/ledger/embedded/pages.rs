//! Queries for pages. They run beside the writer, after it has posted everything that was sent to it before.

use std::collections::HashMap;

use super::{
    Embedded,
    command::Command,
    sqlite::{
        account_days, calls, days,
        pages::{self, Calls},
    },
};
use crate::ledger::{
    Account, AccountDays, AccountFound, Call, CallId, CallsFound, CallsPage, DayRange, DayUse,
    Entry, GrantLeft, HistoryEdges, LedgerError, SumsOf,
    conditions::{Conditions, Sql},
};

impl Embedded {
    pub(crate) async fn usage_days(
        &self,
        account_id: &str,
        (from_day, to_day): (&str, &str),
        sums_of: SumsOf,
    ) -> Result<Vec<DayUse>, LedgerError> {
        self.all_written().await;
        let of = [account_id, from_day, to_day].map(str::to_owned);
        let query = move |database: &_| days::between(database, &of, sums_of);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn last_used(
        &self,
        account_id: &str,
    ) -> Result<HashMap<String, i64>, LedgerError> {
        self.all_written().await;
        let account_id = account_id.to_owned();
        let query = move |database: &_| days::last_used(database, &account_id);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn calls_page(&self, page: &CallsPage<'_>) -> Result<CallsFound, LedgerError> {
        self.all_written().await;
        let calls = Calls::of(page);
        let query = move |database: &_| calls.find(database);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn call(&self, id: CallId) -> Result<Option<Call>, LedgerError> {
        self.all_written().await;
        let query = move |database: &_| calls::one(database, id);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn entries_page(
        &self,
        account_id: &str,
        before: i64,
        limit: usize,
    ) -> Result<Vec<Entry>, LedgerError> {
        self.all_written().await;
        let account_id = account_id.to_owned();
        let query = move |database: &_| pages::entries(database, &account_id, before, limit);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) fn grants_left(&self, account_id: &str) -> Vec<GrantLeft> {
        let directory = self.read();
        directory.credit(account_id).grants_left(self.clock.now())
    }

    pub(crate) async fn find_accounts(
        &self,
        text: &str,
        before: Option<(i64, String)>,
        limit: usize,
    ) -> Result<Vec<AccountFound>, LedgerError> {
        let conditions = Conditions::of_accounts(Sql::Lite, text, before);
        let query = move |database: &_| pages::accounts(database, &conditions, limit);
        let found = self.reader.query(query).await?;
        let (directory, now) = (self.read(), self.clock.now());
        let found = found.into_iter().map(|account| AccountFound {
            balances: directory.credit(&account.id).balances(now),
            frozen: directory.is_frozen(&account.id),
            account,
        });
        Ok(found.collect())
    }

    pub(crate) fn accounts_with_ids(&self, ids: &[&str]) -> Vec<Account> {
        let directory = self.read();
        let found = ids.iter().filter_map(|id| directory.account(id).ok());
        found.cloned().collect()
    }

    pub(crate) async fn ensure_account(&self, account: Account) -> Result<Account, LedgerError> {
        self.writer
            .execute(|reply| Command::EnsureAccount(account, reply))
            .await
    }

    pub(crate) async fn account_days(
        &self,
        account_id: &str,
        range: &DayRange,
    ) -> Result<AccountDays, LedgerError> {
        self.all_written().await;
        let (account_id, range) = (account_id.to_owned(), range.clone());
        let query = move |database: &_| account_days::between(database, &account_id, &range);
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn history_edges(
        &self,
        account_id: &str,
        before: i64,
    ) -> Result<HistoryEdges, LedgerError> {
        self.all_written().await;
        let account_id = account_id.to_owned();
        let query = move |database: &_| account_days::edges(database, &account_id, before);
        Ok(self.reader.query(query).await?)
    }
}
