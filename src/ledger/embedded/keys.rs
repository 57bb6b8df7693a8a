//! Keys: live ones are in memory, deleted ones are read from the file.

use super::{Embedded, command::Command, sqlite::keys};
use crate::{
    base::keys::KeyDigest,
    ledger::{Key, KeyChange, KeyState, KeysPage, LedgerError, rotation::Rotation},
};

impl Embedded {
    /// Stores a key by its digest, unless the account has `max` live keys.
    pub(crate) async fn create_key(&self, key: Key, max: u32) -> Result<Key, LedgerError> {
        self.writer
            .execute(|reply| Command::CreateKey(key, max, reply))
            .await
    }

    pub(crate) async fn set_key_state(
        &self,
        id: &str,
        state: KeyState,
    ) -> Result<Key, LedgerError> {
        self.writer
            .execute(|reply| Command::SetKeyState(id.to_owned(), state, reply))
            .await
    }

    pub(crate) async fn change_key(&self, id: &str, change: KeyChange) -> Result<Key, LedgerError> {
        let (id, change) = (id.to_owned(), Box::new(change));
        self.writer
            .execute(|reply| Command::ChangeKey(id, change, reply))
            .await
    }

    pub(crate) async fn rotate_key(&self, id: &str, new: Rotation) -> Result<Key, LedgerError> {
        let (id, now) = (id.to_owned(), self.clock.now());
        self.writer
            .execute(|reply| Command::RotateKey(id, Box::new(new), now, reply))
            .await
    }

    /// The account's live keys, oldest first.
    pub(crate) fn keys(&self, account_id: &str) -> Result<Vec<Key>, LedgerError> {
        let directory = self.read();
        directory.account(account_id)?;
        Ok(directory.keys_of(account_id).cloned().collect())
    }

    pub(crate) async fn keys_page(&self, page: KeysPage<'_>) -> Result<Vec<Key>, LedgerError> {
        self.read().account(page.account_id)?;
        let account_id = page.account_id.to_owned();
        let member_id = page.member_id.map(str::to_owned);
        let (filter, before, limit) = (page.filter, page.before, page.limit);
        let query = move |database: &_| {
            let page = KeysPage {
                account_id: &account_id,
                filter,
                member_id: member_id.as_deref(),
                before,
                limit,
            };
            keys::page(database, page)
        };
        Ok(self.reader.query(query).await?)
    }

    pub(crate) async fn keys_with_ids(&self, ids: Vec<String>) -> Result<Vec<Key>, LedgerError> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        {
            let directory = self.read();
            for id in ids {
                match directory.key(&id) {
                    Some(key) => found.push(key.clone()),
                    None => missing.push(id),
                }
            }
        }
        if !missing.is_empty() {
            let query = move |database: &_| keys::with_ids(database, &missing);
            found.extend(self.reader.query(query).await?);
        }
        Ok(found)
    }

    /// The keys with these secrets, whether or not they are valid.
    pub(crate) async fn keys_with_digests(
        &self,
        digests: Vec<KeyDigest>,
    ) -> Result<Vec<Key>, LedgerError> {
        let query = move |database: &_| keys::with_digests(database, &digests);
        Ok(self.reader.query(query).await?)
    }
}
