//! Telling people, until they have heard or it is no use.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::timeout;

use super::words;
use crate::{
    backoffice::{
        Alert, BackofficeError, Channel, Delivery, Event, mail::Email, webhook::WebhookError,
    },
    base::timestamp,
    gateway::Gateway,
};

/// How many are under way at once.
const AT_ONCE: i64 = 16;
/// How long a delivery is nobody else's, in seconds: longer than any attempt takes.
const LEASE: i64 = 60;
/// How long a letter may take in all.
const EMAIL_TIMEOUT: Duration = Duration::from_secs(30);
/// Seconds after each attempt that failed; after as many and one it is given up.
const WAITS: [i64; 7] = [5, 60, 300, 1_800, 7_200, 28_800, 86_400];

/// Looks are not held up for longer than about this; what is left is told at the next turn.
const A_TURN: Duration = Duration::from_secs(10);

/// Why nobody has heard.
enum Unheard {
    /// It is worth another attempt.
    Failed(String),
    /// It is not.
    Hopeless(String),
}

/// Tries what is due, now and while it goes on.
pub async fn deliver(gateway: &Gateway, begun_at: i64) -> Result<(), BackofficeError> {
    let backoffice = &gateway.backoffice;
    let begun = Instant::now();
    loop {
        let elapsed = begun.elapsed();
        let now = begun_at.saturating_add_unsigned(elapsed.as_secs());
        let claimed = backoffice
            .claim_deliveries(now, now + LEASE, AT_ONCE)
            .await?;
        let tried = claimed.iter().map(|one| attempt(gateway, one, now));
        for tried in join_all(tried).await {
            tried?;
        }
        if claimed.is_empty() || begun.elapsed() >= A_TURN {
            return Ok(());
        }
    }
}

async fn attempt(gateway: &Gateway, delivery: &Delivery, now: i64) -> Result<(), BackofficeError> {
    let backoffice = &gateway.backoffice;
    let alert = backoffice.alert(&delivery.alert_id).await?;
    let told = match &alert {
        Some(alert) => tell(gateway, delivery, alert, now).await,
        None => Err(Unheard::Hopeless("the alert is gone".into())),
    };
    let done = usize::try_from(delivery.attempts).unwrap_or(0);
    let wait = WAITS.get(done.saturating_sub(1)).copied();
    let channel = delivery.channel.as_str();
    let (outcome, written) = match (told, wait) {
        (Ok(()), _) => ("delivered", backoffice.delivered(delivery, now).await),
        (Err(Unheard::Failed(why)), Some(wait)) => {
            tracing::warn!(
                alert.id = delivery.alert_id,
                channel,
                "an alert was not delivered: {why}"
            );
            let next_at = now + wait;
            let written = backoffice.not_delivered(delivery, next_at, &why).await;
            ("failed", written)
        }
        (Err(Unheard::Failed(why) | Unheard::Hopeless(why)), _) => {
            tracing::error!(
                alert.id = delivery.alert_id,
                channel,
                "an alert is not delivered any more: {why}"
            );
            let written = backoffice.give_up_delivery(delivery, now, &why).await;
            ("given_up", written)
        }
    };
    gateway.metrics.told_of_alert(channel, outcome);
    written
}

async fn tell(
    gateway: &Gateway,
    delivery: &Delivery,
    alert: &Alert,
    now: i64,
) -> Result<(), Unheard> {
    match delivery.channel {
        Channel::Webhook => {
            let Some(webhook) = &gateway.alerts.webhook else {
                return Err(Unheard::Failed("no webhook is configured".into()));
            };
            let sent = webhook.send(&delivery.id, now, message(alert, delivery.event));
            sent.await.map_err(|error| match error {
                WebhookError::Gone => Unheard::Hopeless(error.to_string()),
                WebhookError::Failed(why) => Unheard::Failed(why),
            })
        }
        Channel::Mail => {
            let portal = &gateway.portal;
            let console = (portal.enabled && portal.console)
                .then(|| format!("{}/portal/console/alerts", portal.url));
            let (to, event) = (&delivery.recipient, delivery.event);
            let message = words::to_operator(to, alert, event, console.as_deref());
            send(gateway, message).await
        }
        Channel::Customer if alert.closed_at.is_some() => {
            let why = "it was over before it could be told";
            Err(Unheard::Hopeless(why.into()))
        }
        Channel::Customer => tell_customer(gateway, &delivery.recipient, alert).await,
    }
}

/// Each of the account's people gets a letter. It is heard once one of them has it: another attempt
/// would write to that one again.
async fn tell_customer(gateway: &Gateway, account_id: &str, alert: &Alert) -> Result<(), Unheard> {
    let readers = readers(gateway, account_id).await?;
    let letters = readers
        .iter()
        .filter_map(|to| words::to_customer(to, alert, &gateway.links.billing));
    let mut heard = false;
    let mut unheard = Unheard::Hopeless("it is no customer's affair".into());
    for sent in join_all(letters.map(|message| send(gateway, message))).await {
        match sent {
            Ok(()) => heard = true,
            Err(why) => unheard = why,
        }
    }
    if heard { Ok(()) } else { Err(unheard) }
}

/// Those who sign in to the account; where nobody does, the address that it was made with.
async fn readers(gateway: &Gateway, account_id: &str) -> Result<Vec<String>, Unheard> {
    let people = gateway.backoffice.people_of(account_id).await;
    let people = people.map_err(|error| Unheard::Failed(error.to_string()))?;
    if !people.is_empty() {
        return Ok(people.into_iter().map(|person| person.email).collect());
    }
    let account = gateway.ledger.account(account_id).await;
    let account = account.map_err(|error| Unheard::Failed(error.to_string()))?;
    Ok(vec![account.email])
}

async fn send(gateway: &Gateway, message: Email) -> Result<(), Unheard> {
    let Some(mail) = &gateway.mail else {
        return Err(Unheard::Failed("no mail is configured".into()));
    };
    let sent = timeout(EMAIL_TIMEOUT, mail.send(message)).await;
    let sent = sent.map_err(|_| Unheard::Failed("the mail server took too long".into()))?;
    sent.map_err(|error| Unheard::Failed(error.to_string()))
}

/// What a program is told: identifiers, amounts and counts, no keys, no addresses, nothing that was said.
fn message(alert: &Alert, event: Event) -> String {
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
            "summary": words::summary(alert.kind, &alert.subject, &alert.detail),
            "detail": detail,
            "opened_at": timestamp::shown(alert.opened_at),
            "closed_at": alert.closed_at.map(timestamp::shown),
        },
    });
    message.to_string()
}
