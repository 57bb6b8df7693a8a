//! Delivers alerts to operators and customers, with retries until a delivery succeeds or cannot succeed any more.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::timeout;

use super::messages;
use crate::{
    backoffice::{
        Alert, BackofficeError, Channel, Delivery, Event, TeamRole, mail::Email,
        webhook::WebhookError,
    },
    base::timestamp,
    gateway::Gateway,
};

/// Number of deliveries that are attempted at once.
const CONCURRENT: i64 = 16;
/// Seconds for which a gateway claims a delivery: longer than any attempt takes.
const LEASE: i64 = 60;
/// Timeout of sending one email.
const EMAIL_TIMEOUT: Duration = Duration::from_secs(30);
/// Seconds to wait after each failed attempt. The delivery is given up when the attempt after the last delay fails.
const RETRY_DELAYS: [i64; 7] = [5, 60, 300, 1_800, 7_200, 28_800, 86_400];

/// Time after which a round starts no more deliveries, because checks wait for it. The next round continues.
const ROUND_LIMIT: Duration = Duration::from_secs(10);

/// Why a delivery failed.
enum DeliveryError {
    /// Another attempt may succeed.
    Temporary(String),
    /// No further attempt is made.
    Permanent(String),
}

/// Attempts all deliveries that are due, including those that become due meanwhile. The round
/// starts at `begun_at`.
pub async fn deliver(gateway: &Gateway, begun_at: i64) -> Result<(), BackofficeError> {
    let backoffice = &gateway.backoffice;
    let begun = Instant::now();
    loop {
        let elapsed = begun.elapsed();
        let now = begun_at.saturating_add_unsigned(elapsed.as_secs());
        let claimed = backoffice
            .claim_deliveries(now, now + LEASE, CONCURRENT)
            .await?;
        let tried = claimed.iter().map(|one| attempt(gateway, one, now));
        for tried in join_all(tried).await {
            tried?;
        }
        if claimed.is_empty() || begun.elapsed() >= ROUND_LIMIT {
            return Ok(());
        }
    }
}

/// Makes one attempt and stores its outcome.
async fn attempt(gateway: &Gateway, delivery: &Delivery, now: i64) -> Result<(), BackofficeError> {
    let backoffice = &gateway.backoffice;
    let alert = backoffice.alert(&delivery.alert_id).await?;
    let sent = match &alert {
        Some(alert) => send(gateway, delivery, alert, now).await,
        None => Err(DeliveryError::Permanent(
            "the alert no longer exists".into(),
        )),
    };
    let done = usize::try_from(delivery.attempts).unwrap_or(0);
    let wait = RETRY_DELAYS.get(done.saturating_sub(1)).copied();
    let channel = delivery.channel.as_str();
    let (outcome, written) = match (sent, wait) {
        (Ok(()), _) => ("delivered", backoffice.delivered(delivery, now).await),
        (Err(DeliveryError::Temporary(why)), Some(wait)) => {
            tracing::warn!(
                alert.id = delivery.alert_id,
                channel,
                "delivering an alert failed; retrying in {wait} s: {why}"
            );
            let next_at = now + wait;
            let written = backoffice.not_delivered(delivery, next_at, &why).await;
            ("failed", written)
        }
        (Err(DeliveryError::Temporary(why) | DeliveryError::Permanent(why)), _) => {
            tracing::error!(
                alert.id = delivery.alert_id,
                channel,
                "delivering an alert failed and is given up: {why}"
            );
            let written = backoffice.give_up_delivery(delivery, now, &why).await;
            ("given_up", written)
        }
    };
    gateway.metrics.attempted_delivery(channel, outcome);
    written
}

async fn send(
    gateway: &Gateway,
    delivery: &Delivery,
    alert: &Alert,
    now: i64,
) -> Result<(), DeliveryError> {
    match delivery.channel {
        Channel::Webhook => {
            let Some(webhook) = &gateway.alerts.webhook else {
                return Err(DeliveryError::Temporary("no webhook is configured".into()));
            };
            let sent = webhook.send(&delivery.id, now, webhook_body(alert, delivery.event));
            sent.await.map_err(|error| match error {
                WebhookError::Gone => DeliveryError::Permanent(error.to_string()),
                WebhookError::Failed(why) => DeliveryError::Temporary(why),
            })
        }
        Channel::Mail => {
            let portal = &gateway.portal;
            let console = (portal.enabled && portal.console)
                .then(|| format!("{}/portal/console/alerts", portal.url));
            let (to, event) = (&delivery.recipient, delivery.event);
            let message = messages::to_operator(to, alert, event, console.as_deref());
            send_email(gateway, message).await
        }
        Channel::Customer if alert.closed_at.is_some() => {
            let why = "the alert was closed before it could be delivered";
            Err(DeliveryError::Permanent(why.into()))
        }
        Channel::Customer => notify_customer(gateway, &delivery.recipient, alert).await,
    }
}

/// Sends an email to each of the account's people who see its credit. One success counts as delivered, because another attempt would
/// send those people the email again.
async fn notify_customer(
    gateway: &Gateway,
    account_id: &str,
    alert: &Alert,
) -> Result<(), DeliveryError> {
    let recipients = recipients(gateway, account_id).await?;
    let emails = recipients
        .iter()
        .filter_map(|to| messages::to_customer(to, alert, &gateway.links.billing));
    let mut delivered = false;
    let mut error =
        DeliveryError::Permanent("customers get no email about this kind of alert".into());
    for sent in join_all(emails.map(|message| send_email(gateway, message))).await {
        match sent {
            Ok(()) => delivered = true,
            Err(why) => error = why,
        }
    }
    if delivered { Ok(()) } else { Err(error) }
}

/// Returns the addresses of the account's people who see its credit; without any, the address that the account was
/// created with.
async fn recipients(gateway: &Gateway, account_id: &str) -> Result<Vec<String>, DeliveryError> {
    let people = gateway.backoffice.people_of(account_id).await;
    let mut people = people.map_err(|error| DeliveryError::Temporary(error.to_string()))?;
    people.retain(|person| matches!(person.team_role, TeamRole::Owner | TeamRole::Billing));
    if !people.is_empty() {
        return Ok(people.into_iter().map(|person| person.email).collect());
    }
    let account = gateway.ledger.account(account_id).await;
    let account = account.map_err(|error| DeliveryError::Temporary(error.to_string()))?;
    Ok(vec![account.email])
}

async fn send_email(gateway: &Gateway, message: Email) -> Result<(), DeliveryError> {
    let Some(mail) = &gateway.mail else {
        return Err(DeliveryError::Temporary(
            "no mail server is configured".into(),
        ));
    };
    let sent = timeout(EMAIL_TIMEOUT, mail.send(message)).await;
    let sent = sent.map_err(|_| DeliveryError::Temporary("the mail server timed out".into()))?;
    sent.map_err(|error| DeliveryError::Temporary(error.to_string()))
}

/// Returns the body of a webhook message. It has identifiers, amounts and counts, but no keys, email addresses,
/// prompts or responses.
fn webhook_body(alert: &Alert, event: Event) -> String {
    let (kind, at) = match event {
        Event::Opened => ("alert.opened", alert.opened_at),
        Event::Closed => ("alert.closed", alert.closed_at.unwrap_or_default()),
    };
    let detail: serde_json::Value = serde_json::from_str(&alert.detail).unwrap_or_default();
    let message = json!({
        "type": kind,
        "timestamp": timestamp::shown(at),
        "data": {
            "id": alert.id,
            "kind": alert.kind.as_str(),
            "subject": alert.subject,
            "summary": messages::summary(alert.kind, &alert.subject, &alert.detail),
            "detail": detail,
            "opened_at": timestamp::shown(alert.opened_at),
            "closed_at": alert.closed_at.map(timestamp::shown),
        },
    });
    message.to_string()
}
