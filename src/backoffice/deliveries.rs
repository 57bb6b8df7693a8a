//! Deliveries of alerts by webhook and email, and their state.
//!
//! A gateway claims a delivery before it attempts it, by moving the time of the next attempt into the future. Until then
//! no other gateway attempts it; if the gateway dies, another one takes over afterwards. A message may therefore arrive
//! twice, with the same ID.

use super::{
    Backoffice, BackofficeError,
    sql::{Row, Statement, statement, unexpected},
};

/// How an alert is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    Webhook,
    /// An email to an operator.
    Mail,
    /// An email to the people of an account; the recipient is the account's ID.
    Customer,
}

impl Channel {
    const ALL: [Self; 3] = [Self::Webhook, Self::Mail, Self::Customer];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Mail => "mail",
            Self::Customer => "customer",
        }
    }
}

/// The change of an alert that a delivery reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Opened,
    Closed,
}

impl Event {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed => "closed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    Waiting,
    Delivered,
    GivenUp,
}

impl DeliveryState {
    const ALL: [Self; 3] = [Self::Waiting, Self::Delivered, Self::GivenUp];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::GivenUp => "given_up",
        }
    }
}

/// A channel and its recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub channel: Channel,
    pub recipient: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub id: String,
    pub alert_id: String,
    pub event: Event,
    pub channel: Channel,
    pub recipient: String,
    pub state: DeliveryState,
    /// The number of attempts, including one in progress.
    pub attempts: i64,
    pub next_at: i64,
    /// When the alert was delivered or the delivery given up.
    pub done_at: Option<i64>,
    pub last_error: Option<String>,
}

/// The columns that `Delivery::read` expects.
macro_rules! delivery_columns {
    () => {
        "backoffice_deliveries.id, alert_id, event, channel, recipient, state, attempts, next_at,
         coalesce(done_at, 0), last_error"
    };
}
pub(super) use delivery_columns;

/// Condition that `closed` is not delivered to a recipient whose `opened` of the same alert is still waiting.
macro_rules! is_next {
    ($delivery:literal) => {
        concat!(
            "NOT (",
            $delivery,
            ".event = 'closed' AND EXISTS (
                 SELECT 1 FROM backoffice_deliveries earlier
                 WHERE earlier.alert_id = ",
            $delivery,
            ".alert_id AND earlier.channel = ",
            $delivery,
            ".channel AND earlier.recipient = ",
            $delivery,
            ".recipient AND earlier.event = 'opened' AND earlier.state = 'waiting'))"
        )
    };
}

/// Inserts a delivery for each route, if the alert is announced and, for `Closed`, is closed.
pub(super) fn insert_deliveries(
    alert_id: &str,
    event: Event,
    routes: &[Route],
    now: i64,
) -> Vec<Statement> {
    let sql = match event {
        Event::Opened => {
            "INSERT INTO backoffice_deliveries
                 (id, alert_id, event, channel, recipient, state, attempts, next_at)
             SELECT $1, id, $2, $3, $4, 'waiting', 0, $5 FROM backoffice_alerts
             WHERE id = $6 AND announced = 1
             ON CONFLICT (id) DO NOTHING"
        }
        Event::Closed => {
            "INSERT INTO backoffice_deliveries
                 (id, alert_id, event, channel, recipient, state, attempts, next_at)
             SELECT $1, id, $2, $3, $4, 'waiting', 0, $5 FROM backoffice_alerts
             WHERE id = $6 AND announced = 1 AND closed_at IS NOT NULL
             ON CONFLICT (id) DO NOTHING"
        }
    };
    let numbered = routes.iter().enumerate();
    let inserts = numbered.map(|(number, route)| {
        let id = format!("{alert_id}_{}_{number}", event.as_str());
        let values = [
            id.as_str().into(),
            event.as_str().into(),
            route.channel.as_str().into(),
            route.recipient.as_str().into(),
            now.into(),
            alert_id.into(),
        ];
        statement(sql, values)
    });
    inserts.collect()
}

impl Backoffice {
    /// Claims up to `limit` deliveries that are due; no other gateway can claim them until `leased_until`.
    pub(crate) async fn claim_deliveries(
        &self,
        now: i64,
        leased_until: i64,
        limit: i64,
    ) -> Result<Vec<Delivery>, BackofficeError> {
        // The outer WHERE repeats the conditions of the inner one: after waiting for another gateway's row lock,
        // PostgreSQL evaluates only the outer one on the updated row.
        let claim = statement(
            concat!(
                "UPDATE backoffice_deliveries SET attempts = attempts + 1, next_at = $1
                 WHERE state = 'waiting' AND next_at <= $2 AND ",
                is_next!("backoffice_deliveries"),
                " AND id IN (
                     SELECT one.id FROM backoffice_deliveries one
                     WHERE one.state = 'waiting' AND one.next_at <= $2 AND ",
                is_next!("one"),
                " ORDER BY one.next_at LIMIT $3)
                 RETURNING ",
                delivery_columns!()
            ),
            [leased_until.into(), now.into(), limit.into()],
        );
        let rows = self.run(vec![claim]).await?;
        rows.into_iter().map(Delivery::read).collect()
    }

    pub(crate) async fn delivered(
        &self,
        delivery: &Delivery,
        now: i64,
    ) -> Result<(), BackofficeError> {
        let done = statement(
            "UPDATE backoffice_deliveries SET state = 'delivered', done_at = $1, last_error = NULL
             WHERE id = $2",
            [now.into(), delivery.id.as_str().into()],
        );
        self.run(vec![done]).await?;
        Ok(())
    }

    /// Schedules the next attempt, unless another gateway has claimed the delivery since.
    pub(crate) async fn not_delivered(
        &self,
        delivery: &Delivery,
        next_at: i64,
        error: &str,
    ) -> Result<(), BackofficeError> {
        let reschedule = statement(
            "UPDATE backoffice_deliveries SET next_at = $1, last_error = $2
             WHERE id = $3 AND attempts = $4 AND state = 'waiting'",
            [
                next_at.into(),
                error.into(),
                delivery.id.as_str().into(),
                delivery.attempts.into(),
            ],
        );
        self.run(vec![reschedule]).await?;
        Ok(())
    }

    /// Marks a delivery as given up, unless another gateway has claimed it since.
    pub(crate) async fn give_up_delivery(
        &self,
        delivery: &Delivery,
        now: i64,
        error: &str,
    ) -> Result<(), BackofficeError> {
        let give_up = statement(
            "UPDATE backoffice_deliveries SET state = 'given_up', done_at = $1, last_error = $2
             WHERE id = $3 AND attempts = $4 AND state = 'waiting'",
            [
                now.into(),
                error.into(),
                delivery.id.as_str().into(),
                delivery.attempts.into(),
            ],
        );
        self.run(vec![give_up]).await?;
        Ok(())
    }
}

impl Delivery {
    pub(super) fn read(mut row: Row) -> Result<Self, BackofficeError> {
        Ok(Self {
            id: row.text()?,
            alert_id: row.text()?,
            event: named(&row.text()?, [Event::Opened, Event::Closed], Event::as_str)?,
            channel: named(&row.text()?, Channel::ALL, Channel::as_str)?,
            recipient: row.text()?,
            state: named(&row.text()?, DeliveryState::ALL, DeliveryState::as_str)?,
            attempts: row.int()?,
            next_at: row.int()?,
            done_at: Some(row.int()?).filter(|at| *at != 0),
            last_error: row.text_or_null()?,
        })
    }
}

fn named<T: Copy, const N: usize>(
    text: &str,
    all: [T; N],
    name: fn(T) -> &'static str,
) -> Result<T, BackofficeError> {
    let found = all.into_iter().find(|one| name(*one) == text);
    found.ok_or_else(|| unexpected("a state of a delivery"))
}
