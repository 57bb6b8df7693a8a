//! What operators must hear of: opened once, seen for as long as it is so, closed by itself.
//!
//! However many gateways look, one row is open for a kind and a subject: the table has a unique key.
//! Who is to be told is written down in the same transaction.

use std::collections::{BTreeMap, HashMap};

use super::{
    Backoffice, BackofficeError,
    deliveries::{Delivery, Event, Route, delivery_columns, due},
    sql::{Row, Statement, Value, statement, unexpected},
};
use crate::base::keys::random_id;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    /// An account that is in use has little left.
    BalanceLow,
    /// A grant with something left expires soon.
    CreditExpiring,
    /// An upstream is left alone, because it failed too often.
    UpstreamFailing,
    /// A provider refuses the operator's key, account or name for a model.
    UpstreamRefuses,
    /// Calls were served and not charged.
    StreamUnbilled,
    /// A provider reported more tokens than requests could use.
    UsageOverBound,
    /// The books do not add up.
    AuditMismatch,
    /// Somebody wanted to know whether alerts arrive.
    Test,
}

impl AlertKind {
    pub const ALL: [Self; 8] = [
        Self::BalanceLow,
        Self::CreditExpiring,
        Self::UpstreamFailing,
        Self::UpstreamRefuses,
        Self::StreamUnbilled,
        Self::UsageOverBound,
        Self::AuditMismatch,
        Self::Test,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::BalanceLow => "balance.low",
            Self::CreditExpiring => "credit.expiring",
            Self::UpstreamFailing => "upstream.failing",
            Self::UpstreamRefuses => "upstream.refuses",
            Self::StreamUnbilled => "stream.unbilled",
            Self::UsageOverBound => "usage.over_bound",
            Self::AuditMismatch => "audit.mismatch",
            Self::Test => "alert.test",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    fn read(row: &mut Row) -> Result<Self, BackofficeError> {
        Self::parse(&row.text()?).ok_or_else(|| unexpected("a kind of alert"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Rises with every alert.
    pub seq: i64,
    /// `alert_…`
    pub id: String,
    pub kind: AlertKind,
    /// The account, grant or upstream that it is about.
    pub subject: String,
    /// How it was when it was last seen, as JSON.
    pub detail: String,
    pub opened_at: i64,
    pub seen_at: i64,
    /// None while it is open.
    pub closed_at: Option<i64>,
    /// Whether anybody is told of it: not where the same was told a moment ago.
    pub announced: bool,
}

/// An alert, and what became of telling people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToldAlert {
    pub alert: Alert,
    pub deliveries: Vec<Delivery>,
}

/// What was found to be so.
#[derive(Clone, Copy, Debug)]
pub struct NewAlert<'a> {
    pub kind: AlertKind,
    pub subject: &'a str,
    /// As JSON.
    pub detail: &'a str,
    /// Who is told.
    pub routes: &'a [Route],
    pub now: i64,
    /// Nobody is told if they were told of the same after this.
    pub told_after: i64,
}

macro_rules! alerts_where {
    ($condition:literal) => {
        concat!(
            "SELECT seq, id, kind, subject, detail, opened_at, seen_at, coalesce(closed_at, 0),
                 announced
             FROM backoffice_alerts WHERE ",
            $condition
        )
    };
}

macro_rules! deliveries_where {
    ($condition:literal) => {
        concat!(
            "SELECT ",
            delivery_columns!(),
            " FROM backoffice_deliveries JOIN backoffice_alerts ON backoffice_alerts.id = alert_id WHERE ",
            $condition,
            " ORDER BY backoffice_deliveries.id"
        )
    };
}

impl Backoffice {
    /// Opens an alert: its ID. One that is open already is seen once more, and that is all.
    pub async fn open_alert(&self, new: NewAlert<'_>) -> Result<Option<String>, BackofficeError> {
        let id = random_id("alert_");
        let see = statement(
            "UPDATE backoffice_alerts SET seen_at = $1, detail = $2
             WHERE kind = $3 AND subject = $4 AND closed_at IS NULL",
            [
                new.now.into(),
                new.detail.into(),
                new.kind.as_str().into(),
                new.subject.into(),
            ],
        );
        let open = statement(
            "INSERT INTO backoffice_alerts (id, kind, subject, detail, opened_at, seen_at, announced)
             SELECT $1, $2, $3, $4, $5, $5, CASE WHEN EXISTS (
                 SELECT 1 FROM backoffice_alerts
                 WHERE kind = $2 AND subject = $3 AND announced = 1 AND opened_at > $6
             ) THEN 0 ELSE 1 END
             WHERE NOT EXISTS (SELECT 1 FROM backoffice_alerts WHERE id = $1)
             ON CONFLICT (kind, subject) WHERE closed_at IS NULL DO NOTHING",
            [
                id.as_str().into(),
                new.kind.as_str().into(),
                new.subject.into(),
                new.detail.into(),
                new.now.into(),
                new.told_after.into(),
            ],
        );
        let look = statement(
            "SELECT id FROM backoffice_alerts WHERE id = $1",
            [id.as_str().into()],
        );
        let mut statements = vec![see, open];
        statements.extend(due(&id, Event::Opened, new.routes, new.now));
        statements.push(look);
        let opened = self.run(statements).await?;
        Ok((!opened.is_empty()).then_some(id))
    }

    /// It is still so.
    pub async fn see_alert(&self, id: &str, detail: &str, now: i64) -> Result<(), BackofficeError> {
        let see = statement(
            "UPDATE backoffice_alerts SET seen_at = $1, detail = $2 WHERE id = $3 AND closed_at IS NULL",
            [now.into(), detail.into(), id.into()],
        );
        self.run(vec![see]).await?;
        Ok(())
    }

    /// Tells of one that was quiet when it opened and is still open, unless the same was told after
    /// `told_after`.
    pub async fn announce_alert(
        &self,
        alert: &Alert,
        routes: &[Route],
        now: i64,
        told_after: i64,
    ) -> Result<(), BackofficeError> {
        let announce = statement(
            "UPDATE backoffice_alerts SET announced = 1
             WHERE id = $1 AND announced = 0 AND closed_at IS NULL AND NOT EXISTS (
                 SELECT 1 FROM backoffice_alerts told
                 WHERE told.kind = $2 AND told.subject = $3 AND told.announced = 1
                     AND told.opened_at > $4)",
            [
                alert.id.as_str().into(),
                alert.kind.as_str().into(),
                alert.subject.as_str().into(),
                told_after.into(),
            ],
        );
        let mut statements = vec![announce];
        statements.extend(due(&alert.id, Event::Opened, routes, now));
        self.run(statements).await?;
        Ok(())
    }

    /// It is over, unless somebody has seen it meanwhile. Those are told who were told of its opening.
    pub async fn close_alert(
        &self,
        alert: &Alert,
        routes: &[Route],
        now: i64,
    ) -> Result<bool, BackofficeError> {
        let close = statement(
            "UPDATE backoffice_alerts SET closed_at = $1
             WHERE id = $2 AND seen_at <= $3 AND closed_at IS NULL",
            [now.into(), alert.id.as_str().into(), alert.seen_at.into()],
        );
        let mut statements = vec![close];
        statements.extend(due(&alert.id, Event::Closed, routes, now));
        statements.push(statement(
            "SELECT id FROM backoffice_alerts WHERE id = $1 AND closed_at = $2",
            [alert.id.as_str().into(), now.into()],
        ));
        Ok(!self.run(statements).await?.is_empty())
    }

    pub async fn alert(&self, id: &str) -> Result<Option<Alert>, BackofficeError> {
        let look = statement(alerts_where!("id = $1"), [id.into()]);
        let rows = self.run(vec![look]).await?;
        rows.into_iter().next().map(Alert::read).transpose()
    }

    /// Those of a kind that are open and were not seen for the longest.
    pub async fn open_alerts(
        &self,
        kind: AlertKind,
        limit: usize,
    ) -> Result<Vec<Alert>, BackofficeError> {
        let look = statement(
            alerts_where!("closed_at IS NULL AND kind = $1 ORDER BY seen_at, seq LIMIT $2"),
            [kind.as_str().into(), count(limit)],
        );
        let rows = self.run(vec![look]).await?;
        rows.into_iter().map(Alert::read).collect()
    }

    /// How many are open, by kind.
    pub async fn open_alert_counts(&self) -> Result<BTreeMap<AlertKind, i64>, BackofficeError> {
        let look = statement(
            "SELECT kind, count(*) FROM backoffice_alerts WHERE closed_at IS NULL GROUP BY kind",
            [],
        );
        let rows = self.run(vec![look]).await?;
        let counts = rows
            .into_iter()
            .map(|mut row| Ok((AlertKind::read(&mut row)?, row.int()?)));
        counts.collect()
    }

    /// Those that are open, the latest first, and what became of telling people.
    pub async fn told_open_alerts(&self, limit: usize) -> Result<Vec<ToldAlert>, BackofficeError> {
        let look = statement(
            alerts_where!("closed_at IS NULL ORDER BY seq DESC LIMIT $1"),
            [count(limit)],
        );
        let deliveries = statement(
            deliveries_where!(
                "alert_id IN (SELECT id FROM backoffice_alerts WHERE closed_at IS NULL
                     ORDER BY seq DESC LIMIT $1)"
            ),
            [count(limit)],
        );
        self.told(look, deliveries).await
    }

    /// Those that are over, the latest first; `before` is the last of the page before.
    pub async fn told_closed_alerts(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<ToldAlert>, BackofficeError> {
        let before = before.unwrap_or(i64::MAX);
        let look = statement(
            alerts_where!("closed_at IS NOT NULL AND seq < $1 ORDER BY seq DESC LIMIT $2"),
            [before.into(), count(limit)],
        );
        let deliveries = statement(
            deliveries_where!(
                "alert_id IN (SELECT id FROM backoffice_alerts WHERE closed_at IS NOT NULL AND seq < $1
                     ORDER BY seq DESC LIMIT $2)"
            ),
            [before.into(), count(limit)],
        );
        self.told(look, deliveries).await
    }

    async fn told(
        &self,
        alerts: Statement,
        deliveries: Statement,
    ) -> Result<Vec<ToldAlert>, BackofficeError> {
        let alerts = self.run(vec![alerts]).await?;
        let mut of_alert: HashMap<String, Vec<Delivery>> = HashMap::new();
        for row in self.run(vec![deliveries]).await? {
            let delivery = Delivery::read(row)?;
            let alert_id = delivery.alert_id.clone();
            of_alert.entry(alert_id).or_default().push(delivery);
        }
        let told = alerts.into_iter().map(|row| {
            let alert = Alert::read(row)?;
            let deliveries = of_alert.remove(&alert.id).unwrap_or_default();
            Ok(ToldAlert { alert, deliveries })
        });
        told.collect()
    }

    /// Deletes what was over before this.
    pub async fn prune_alerts(&self, before: i64) -> Result<(), BackofficeError> {
        let deliveries = statement(
            "DELETE FROM backoffice_deliveries
             WHERE alert_id IN (SELECT id FROM backoffice_alerts WHERE closed_at < $1)",
            [before.into()],
        );
        let alerts = statement(
            "DELETE FROM backoffice_alerts WHERE closed_at < $1",
            [before.into()],
        );
        self.run(vec![deliveries, alerts]).await?;
        Ok(())
    }
}

fn count(limit: usize) -> Value {
    i64::try_from(limit).unwrap_or(i64::MAX).into()
}

impl Alert {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        Ok(Self {
            seq: row.int()?,
            id: row.text()?,
            kind: AlertKind::read(&mut row)?,
            subject: row.text()?,
            detail: row.text()?,
            opened_at: row.int()?,
            seen_at: row.int()?,
            closed_at: Some(row.int()?).filter(|at| *at != 0),
            announced: row.int()? == 1,
        })
    }
}
