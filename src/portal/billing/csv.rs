//! The entries of the account's ledger as CSV, newest first: everything that changed the balance.
//!
//! The file is read and sent in pieces. It ends after [`csv::MAX_ROWS`] rows; its last line then says how to get the rest.

use std::{collections::HashMap, fmt::Write as _, sync::Arc};

use axum::{body::Body, extract::State, response::Response};
use futures_util::stream;
use serde::Deserialize;

use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{Entry, LedgerError},
    portal::{
        csv::{self, field},
        error::PortalError,
        paging,
        query::ReadQuery,
        session::SignedIn,
    },
};

const PIECE: usize = 1_000;
const COLUMNS: &str = "time,entry,kind,grant or call,reason,amount USD,balance after USD\r\n";

#[derive(Deserialize)]
pub(crate) struct CsvQuery {
    /// The number of the last entry of a file before, which was cut.
    before: Option<String>,
}

pub(crate) async fn download(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<CsvQuery>,
) -> Result<Response, PortalError> {
    let before = paging::cursor(query.before.as_ref(), "entries", |text| text.parse().ok())?;
    let grants = gateway.ledger.grants(&me.account.id).await?;
    let reasons = grants
        .into_iter()
        .filter_map(|grant| Some((grant.id, grant.reason?)));
    let rows = Rows {
        gateway,
        account_id: me.account.id,
        reasons: reasons.collect(),
        before,
        written: 0,
        is_begun: false,
    };
    let pieces = stream::try_unfold(Some(rows), |rows| async {
        match rows {
            Some(rows) => Box::pin(rows.piece()).await.map(Some),
            None => Ok(None),
        }
    });
    let name = format!("billing-{}", timestamp::day(timestamp::now()));
    Ok(csv::attachment(&name, Body::from_stream(pieces)))
}

/// The rows that are still to be sent.
struct Rows {
    gateway: Arc<Gateway>,
    account_id: String,
    /// By the ID of the grant.
    reasons: HashMap<String, String>,
    before: Option<i64>,
    written: usize,
    is_begun: bool,
}

impl Rows {
    /// The next piece, and the rows after it.
    async fn piece(mut self) -> Result<(String, Option<Self>), LedgerError> {
        let limit = PIECE.min(csv::MAX_ROWS + 1 - self.written);
        let page = self
            .gateway
            .ledger
            .entries_page(&self.account_id, self.before, limit);
        let mut entries = page.await?;
        let more = entries.len() == limit;
        let is_cut = self.written + entries.len() > csv::MAX_ROWS;
        entries.truncate(csv::MAX_ROWS - self.written);
        let mut text = String::new();
        if !std::mem::replace(&mut self.is_begun, true) {
            text.push_str(COLUMNS);
        }
        for entry in &entries {
            self.write(&mut text, entry);
        }
        self.written += entries.len();
        self.before = entries.last().map(|entry| entry.seq).or(self.before);
        if is_cut {
            let rest = format!(
                "The file ends here after {} rows. The rest is at /portal/billing.csv?before={}.",
                self.written,
                self.before.unwrap_or_default()
            );
            text.push_str(&field(&rest));
            text.push_str("\r\n");
        }
        Ok((text, (more && !is_cut).then_some(self)))
    }

    fn write(&self, text: &mut String, entry: &Entry) {
        let reason = self.reasons.get(&entry.reference);
        let _ = write!(
            text,
            "{},{},{},{},{},{},{}\r\n",
            timestamp::shown(entry.at),
            entry.seq,
            entry.kind.as_str(),
            field(&entry.reference),
            field(reason.map_or("", String::as_str)),
            entry.delta,
            entry.balance_after,
        );
    }
}
