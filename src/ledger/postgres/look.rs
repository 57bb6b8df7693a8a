//! Whose key it is, asked of the database: all who ask at once are asked for together.

use std::{collections::HashMap, sync::Weak, time::Duration};

use serde::Deserialize;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_postgres::types::Type;

use super::Inner;
use crate::{
    base::keys::KeyDigest,
    catalog::{Plan, Tier, Track},
    db::postgres::{Connected, Error},
};

/// The most keys that are asked for together.
const MAX_BATCH: usize = 512;

/// What the database says of a key that may be used.
#[derive(Clone, Debug)]
pub struct Known {
    pub account_id: String,
    pub key_id: String,
    pub plan: Plan,
    pub closed: bool,
    pub version: i64,
    pub credits_expire_at: Option<i64>,
}

/// The key's caller, if it has one, and the version of the settings at that moment.
pub type Seen = (Option<Known>, i64);

/// A key to look up, or only the settings' version.
pub struct Look {
    digest: Option<KeyDigest>,
    tell: oneshot::Sender<Seen>,
}

/// Where looks are handed in.
pub struct Looks {
    queue: mpsc::UnboundedSender<Look>,
    deadline: Duration,
}

impl Looks {
    pub fn new(deadline: Duration) -> (Self, mpsc::UnboundedReceiver<Look>) {
        let (queue, looks) = mpsc::unbounded_channel();
        (Self { queue, deadline }, looks)
    }

    /// `None` where the database does not answer in time.
    pub async fn look(&self, digest: Option<KeyDigest>) -> Option<Seen> {
        let (tell, seen) = oneshot::channel();
        self.queue.send(Look { digest, tell }).ok()?;
        timeout(self.deadline, seen).await.ok()?.ok()
    }
}

#[derive(Deserialize)]
struct Answer {
    settings: i64,
    callers: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    digest: String,
    key: String,
    account: String,
    track: String,
    tier: String,
    closed: bool,
    version: i64,
    expires: Option<i64>,
}

/// Works as long as the ledger lives.
pub async fn run(inner: Weak<Inner>, mut looks: mpsc::UnboundedReceiver<Look>) {
    let mut connection = None;
    while let Some(first) = looks.recv().await {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Ok(look) = looks.try_recv()
        {
            batch.push(look);
        }
        batch.retain(|look| !look.tell.is_closed());
        let Some(inner) = inner.upgrade() else { return };
        let asked = timeout(inner.deadline, ask(&inner, &mut connection, &batch)).await;
        match asked.unwrap_or(Err(Error::TimedOut)) {
            Ok(answer) => tell(batch, answer),
            Err(error) => {
                // Whoever asked hears nothing, and that is an answer.
                tracing::warn!(%error, "keys could not be looked up");
                connection = None;
            }
        }
    }
}

async fn ask(
    inner: &Inner,
    connection: &mut Option<Connected>,
    batch: &[Look],
) -> Result<Answer, Error> {
    let open = match connection.take() {
        Some(open) if !open.is_closed() => open,
        _ => inner.address.connect().await?,
    };
    let digests: Vec<&[u8]> = batch
        .iter()
        .filter_map(|look| look.digest.as_ref())
        .map(|digest| digest.0.as_slice())
        .collect();
    let rows = open
        .query_typed("SELECT look_up($1)::text", &[(&digests, Type::BYTEA_ARRAY)])
        .await?;
    *connection = Some(open);
    let row = rows.first().ok_or_else(unreadable)?;
    serde_json::from_str(row.try_get(0)?).map_err(|_| unreadable())
}

fn tell(batch: Vec<Look>, answer: Answer) {
    let known: HashMap<String, Known> = answer
        .callers
        .into_iter()
        .filter_map(|row| {
            let plan = Track::parse(&row.track).zip(Tier::parse(&row.tier));
            let (track, tier) = plan?;
            let known = Known {
                account_id: row.account,
                key_id: row.key,
                plan: Plan::new(track, tier)?,
                closed: row.closed,
                version: row.version,
                credits_expire_at: row.expires,
            };
            Some((row.digest, known))
        })
        .collect();
    for Look { digest, tell } in batch {
        let found = digest.and_then(|digest| known.get(&hex(&digest)).cloned());
        let _ = tell.send((found, answer.settings));
    }
}

fn hex(digest: &KeyDigest) -> String {
    use std::fmt::Write as _;
    digest.0.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unreadable() -> Error {
    Error::Unexpected("keys were looked up in words that this version does not know".into())
}
