//! Key lookups in the database, batched: all that are requested at the same time are one query.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_postgres::types::Type;

use super::Inner;
use crate::{
    base::{keys::KeyDigest, outage::Outage},
    catalog::{Plan, Tier, Track},
    db::postgres::{Connected, Error},
    ledger::{KeyTerms, Payer},
};

/// The most keys in one query.
const MAX_BATCH: usize = 512;

/// The caller of an active key.
#[derive(Clone, Debug)]
pub(crate) struct KnownCaller {
    pub account_id: String,
    pub payer: Arc<Payer>,
    pub terms: Arc<KeyTerms>,
    pub plan: Plan,
    pub closed: bool,
    pub version: i64,
    pub credits_expire_at: Option<i64>,
}

/// The key's caller, if it is active, and the version of the settings at that moment.
pub(crate) type LookedUp = (Option<KnownCaller>, i64);

/// A key to look up; `None` to read the settings' version only.
pub(crate) struct Lookup {
    digest: Option<KeyDigest>,
    reply: oneshot::Sender<LookedUp>,
}

/// The sending end of the queue of lookups.
pub(crate) struct Lookups {
    queue: mpsc::UnboundedSender<Lookup>,
    deadline: Duration,
}

impl Lookups {
    pub(crate) fn new(deadline: Duration) -> (Self, mpsc::UnboundedReceiver<Lookup>) {
        let (queue, lookups) = mpsc::unbounded_channel();
        (Self { queue, deadline }, lookups)
    }

    /// `None` if the database does not reply within the deadline.
    pub(crate) async fn lookup(&self, digest: Option<KeyDigest>) -> Option<LookedUp> {
        let (reply, seen) = oneshot::channel();
        self.queue.send(Lookup { digest, reply }).ok()?;
        timeout(self.deadline, seen).await.ok()?.ok()
    }
}

#[derive(Deserialize)]
struct Reply {
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
    project: Option<String>,
    member: Option<String>,
    key_expires: Option<i64>,
    models: Option<String>,
    rpm: Option<u32>,
    tpm: Option<u32>,
}

/// Runs as long as the ledger exists.
pub(crate) async fn run(inner: Weak<Inner>, mut lookups: mpsc::UnboundedReceiver<Lookup>) {
    let mut connection = None;
    let mut looking = Outage::new("looking up keys");
    while let Some(first) = lookups.recv().await {
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH
            && let Ok(lookup) = lookups.try_recv()
        {
            batch.push(lookup);
        }
        batch.retain(|lookup| !lookup.reply.is_closed());
        let Some(inner) = inner.upgrade() else { return };
        let queried = timeout(inner.deadline, query(&inner, &mut connection, &batch)).await;
        match queried.unwrap_or(Err(Error::TimedOut)) {
            Ok(found) => {
                looking.works();
                send_replies(batch, found);
            }
            Err(error) => {
                // The callers notice it by their closed channels.
                looking.fails(&error);
                connection = None;
            }
        }
    }
}

async fn query(
    inner: &Inner,
    connection: &mut Option<Connected>,
    batch: &[Lookup],
) -> Result<Reply, Error> {
    let open = match connection.take() {
        Some(open) if !open.is_closed() => open,
        _ => inner.address.connect().await?,
    };
    let digests: Vec<&[u8]> = batch
        .iter()
        .filter_map(|lookup| lookup.digest.as_ref())
        .map(|digest| digest.0.as_slice())
        .collect();
    let now = inner.clock.manual_now();
    let rows = open
        .query_typed(
            "SELECT look_up($1, $2)::text",
            &[(&digests, Type::BYTEA_ARRAY), (&now, Type::INT8)],
        )
        .await?;
    *connection = Some(open);
    let row = rows.first().ok_or_else(unreadable)?;
    serde_json::from_str(row.try_get(0)?).map_err(|_| unreadable())
}

fn send_replies(batch: Vec<Lookup>, found: Reply) {
    let known: HashMap<String, KnownCaller> = found
        .callers
        .into_iter()
        .filter_map(|row| {
            let plan = Track::parse(&row.track).zip(Tier::parse(&row.tier));
            let (track, tier) = plan?;
            let known = KnownCaller {
                account_id: row.account,
                payer: Arc::new(Payer {
                    key_id: row.key,
                    project_id: row.project,
                    member_id: row.member,
                }),
                terms: Arc::new(KeyTerms {
                    expires_at: row.key_expires,
                    // A list that cannot be parsed allows nothing: the key is unknown.
                    models: KeyTerms::read_models(row.models.as_deref()).ok()?,
                    rpm: row.rpm,
                    tpm: row.tpm,
                }),
                plan: Plan::new(track, tier)?,
                closed: row.closed,
                version: row.version,
                credits_expire_at: row.expires,
            };
            Some((row.digest, known))
        })
        .collect();
    for Lookup { digest, reply } in batch {
        let caller = digest.and_then(|digest| known.get(&digest.to_hex()).cloned());
        let _ = reply.send((caller, found.settings));
    }
}

fn unreadable() -> Error {
    Error::Unexpected("the reply to a key lookup cannot be parsed by this version".into())
}
