//! `GET /operator/alerts`: open alerts, and those closed lately.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{accounts::List, error::OperatorError};
use crate::{
    api::Json,
    backoffice::{AlertWithDeliveries, Delivery},
    base::timestamp,
    gateway::{Gateway, alerts::messages},
};

const MAX_OPEN: usize = 1_000;
const MAX_CLOSED: usize = 100;

#[derive(Serialize)]
struct AlertObject {
    id: String,
    object: &'static str,
    kind: &'static str,
    subject: String,
    summary: String,
    detail: Option<Box<RawValue>>,
    opened_at: String,
    /// `null` while the alert is open.
    closed_at: Option<String>,
    deliveries: Vec<DeliveryObject>,
}

#[derive(Serialize)]
struct DeliveryObject {
    event: &'static str,
    channel: &'static str,
    state: &'static str,
    attempts: i64,
    next_attempt_at: Option<String>,
    error: Option<String>,
}

impl From<AlertWithDeliveries> for AlertObject {
    fn from(AlertWithDeliveries { alert, deliveries }: AlertWithDeliveries) -> Self {
        Self {
            summary: messages::summary(alert.kind, &alert.subject, &alert.detail),
            id: alert.id,
            object: "alert",
            kind: alert.kind.as_str(),
            subject: alert.subject,
            detail: RawValue::from_string(alert.detail).ok(),
            opened_at: timestamp::shown(alert.opened_at),
            closed_at: alert.closed_at.map(timestamp::shown),
            deliveries: deliveries.into_iter().map(DeliveryObject::from).collect(),
        }
    }
}

impl From<Delivery> for DeliveryObject {
    fn from(delivery: Delivery) -> Self {
        let is_done = delivery.done_at.is_some();
        Self {
            event: delivery.event.as_str(),
            channel: delivery.channel.as_str(),
            state: delivery.state.as_str(),
            attempts: delivery.attempts,
            next_attempt_at: (!is_done).then(|| timestamp::shown(delivery.next_at)),
            error: delivery.last_error,
        }
    }
}

/// Lists the open alerts, then the closed ones, each with the latest first.
pub(crate) async fn list(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    let backoffice = &gateway.backoffice;
    let (open, closed) = tokio::try_join!(
        backoffice.open_alerts_with_deliveries(MAX_OPEN),
        backoffice.closed_alerts_with_deliveries(None, MAX_CLOSED),
    )?;
    let all = open.into_iter().chain(closed).map(AlertObject::from);
    Ok(Json(List::new(all.collect())).into_response())
}
