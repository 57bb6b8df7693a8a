//! Alerts: conditions that operators must know of. An alert is opened once, updated while the condition holds, and closed
//! when it is over.
//!
//! A unique index allows one open alert per kind and subject, however many gateways check the condition. The deliveries
//! that announce an alert are inserted in the transaction that opens or closes it.

use std::collections::{BTreeMap, HashMap};

use super::{
    Backoffice, BackofficeError,
    deliveries::{Delivery, Event, Route, delivery_columns, insert_deliveries},
    sql::{Row, Statement, Value, statement, unexpected},
};
use crate::base::keys::random_id;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertKind {
    /// An account in use has little credit left.
    BalanceLow,
    /// A grant that is not used up expires soon.
    CreditExpiring,
    /// A share of a budget was spent that people want to know of.
    BudgetReached,
    /// The circuit of a deployment is open, because requests to it failed.
    UpstreamFailing,
    /// A provider refuses the operator's key, account or model name.
    UpstreamRefuses,
    /// Calls were served and could not be charged.
    StreamUnbilled,
    /// A provider reported more tokens than the upper bound of the request.
    UsageOverBound,
    /// The audit of the ledger found entries that do not add up.
    AuditMismatch,
    /// An operator sent a test alert.
    Test,
}

impl AlertKind {
    pub(crate) const ALL: [Self; 9] = [
        Self::BalanceLow,
        Self::CreditExpiring,
        Self::BudgetReached,
        Self::UpstreamFailing,
        Self::UpstreamRefuses,
        Self::StreamUnbilled,
        Self::UsageOverBound,
        Self::AuditMismatch,
        Self::Test,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BalanceLow => "balance.low",
            Self::CreditExpiring => "credit.expiring",
            Self::BudgetReached => "budget.reached",
            Self::UpstreamFailing => "upstream.failing",
            Self::UpstreamRefuses => "upstream.refuses",
            Self::StreamUnbilled => "stream.unbilled",
            Self::UsageOverBound => "usage.over_bound",
            Self::AuditMismatch => "audit.mismatch",
            Self::Test => "alert.test",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
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
    /// ID of the account, grant, deployment or other object that the alert is about.
    pub subject: String,
    /// Details of the condition as of `seen_at`, as JSON.
    pub detail: String,
    pub opened_at: i64,
    /// When the condition was last found to hold.
    pub seen_at: i64,
    /// `None` while the alert is open.
    pub closed_at: Option<i64>,
    /// Whether deliveries are made; not if an alert of the same kind and subject was announced shortly before.
    pub announced: bool,
}

/// An alert and its deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertWithDeliveries {
    pub alert: Alert,
    pub deliveries: Vec<Delivery>,
}

/// A condition that was found to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewAlert<'a> {
    pub kind: AlertKind,
    pub subject: &'a str,
    /// Details of the condition, as JSON.
    pub detail: &'a str,
    /// Where the alert is announced.
    pub routes: &'a [Route],
    pub now: i64,
    /// The alert is not announced if one of the same kind and subject was announced after this time.
    pub announced_after: i64,
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
    /// Opens an alert and returns its ID. If one of this kind and subject is open already, updates that one and returns
    /// `None`.
    pub(crate) async fn open_alert(
        &self,
        new: NewAlert<'_>,
    ) -> Result<Option<String>, BackofficeError> {
        let id = random_id("alert_");
        let update = statement(
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
                new.announced_after.into(),
            ],
        );
        let select = statement(
            "SELECT id FROM backoffice_alerts WHERE id = $1",
            [id.as_str().into()],
        );
        let mut statements = vec![update, open];
        statements.extend(insert_deliveries(&id, Event::Opened, new.routes, new.now));
        statements.push(select);
        let opened = self.run(statements).await?;
        Ok((!opened.is_empty()).then_some(id))
    }

    /// Updates an open alert whose condition still holds.
    pub(crate) async fn see_alert(
        &self,
        id: &str,
        detail: &str,
        now: i64,
    ) -> Result<(), BackofficeError> {
        let update = statement(
            "UPDATE backoffice_alerts SET seen_at = $1, detail = $2 WHERE id = $3 AND closed_at IS NULL",
            [now.into(), detail.into(), id.into()],
        );
        self.run(vec![update]).await?;
        Ok(())
    }

    /// Announces an open alert that was not announced when it opened, unless one of the same kind and subject was
    /// announced after `announced_after`.
    pub(crate) async fn announce_alert(
        &self,
        alert: &Alert,
        routes: &[Route],
        now: i64,
        announced_after: i64,
    ) -> Result<(), BackofficeError> {
        let announce = statement(
            "UPDATE backoffice_alerts SET announced = 1
             WHERE id = $1 AND announced = 0 AND closed_at IS NULL AND NOT EXISTS (
                 SELECT 1 FROM backoffice_alerts other
                 WHERE other.kind = $2 AND other.subject = $3 AND other.announced = 1
                     AND other.opened_at > $4)",
            [
                alert.id.as_str().into(),
                alert.kind.as_str().into(),
                alert.subject.as_str().into(),
                announced_after.into(),
            ],
        );
        let mut statements = vec![announce];
        statements.extend(insert_deliveries(&alert.id, Event::Opened, routes, now));
        self.run(statements).await?;
        Ok(())
    }

    /// Closes an alert unless it was updated since it was read, and announces that if the opening was announced. Returns
    /// whether it is closed.
    pub(crate) async fn close_alert(
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
        statements.extend(insert_deliveries(&alert.id, Event::Closed, routes, now));
        statements.push(statement(
            "SELECT id FROM backoffice_alerts WHERE id = $1 AND closed_at = $2",
            [alert.id.as_str().into(), now.into()],
        ));
        Ok(!self.run(statements).await?.is_empty())
    }

    pub(crate) async fn alert(&self, id: &str) -> Result<Option<Alert>, BackofficeError> {
        let select = statement(alerts_where!("id = $1"), [id.into()]);
        let rows = self.run(vec![select]).await?;
        rows.into_iter().next().map(Alert::read).transpose()
    }

    /// Open alerts of a kind, those with the oldest `seen_at` first.
    pub(crate) async fn open_alerts(
        &self,
        kind: AlertKind,
        limit: usize,
    ) -> Result<Vec<Alert>, BackofficeError> {
        let select = statement(
            alerts_where!("closed_at IS NULL AND kind = $1 ORDER BY seen_at, seq LIMIT $2"),
            [kind.as_str().into(), count(limit)],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(Alert::read).collect()
    }

    /// The number of open alerts by kind.
    pub(crate) async fn open_alert_counts(
        &self,
    ) -> Result<BTreeMap<AlertKind, i64>, BackofficeError> {
        let select = statement(
            "SELECT kind, count(*) FROM backoffice_alerts WHERE closed_at IS NULL GROUP BY kind",
            [],
        );
        let rows = self.run(vec![select]).await?;
        let counts = rows
            .into_iter()
            .map(|mut row| Ok((AlertKind::read(&mut row)?, row.int()?)));
        counts.collect()
    }

    /// Open alerts with their deliveries, newest first.
    pub async fn open_alerts_with_deliveries(
        &self,
        limit: usize,
    ) -> Result<Vec<AlertWithDeliveries>, BackofficeError> {
        let select = statement(
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
        self.with_deliveries(select, deliveries).await
    }

    /// A page of closed alerts with their deliveries, newest first; `before` is the last `seq` of the previous page.
    pub async fn closed_alerts_with_deliveries(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<AlertWithDeliveries>, BackofficeError> {
        let before = before.unwrap_or(i64::MAX);
        let select = statement(
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
        self.with_deliveries(select, deliveries).await
    }

    async fn with_deliveries(
        &self,
        alerts: Statement,
        deliveries: Statement,
    ) -> Result<Vec<AlertWithDeliveries>, BackofficeError> {
        let alerts = self.run(vec![alerts]).await?;
        let mut of_alert: HashMap<String, Vec<Delivery>> = HashMap::new();
        for row in self.run(vec![deliveries]).await? {
            let delivery = Delivery::read(row)?;
            let alert_id = delivery.alert_id.clone();
            of_alert.entry(alert_id).or_default().push(delivery);
        }
        let joined = alerts.into_iter().map(|row| {
            let alert = Alert::read(row)?;
            let deliveries = of_alert.remove(&alert.id).unwrap_or_default();
            Ok(AlertWithDeliveries { alert, deliveries })
        });
        joined.collect()
    }

    /// Deletes alerts that were closed before this time, with their deliveries.
    pub(crate) async fn prune_alerts(&self, before: i64) -> Result<(), BackofficeError> {
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
