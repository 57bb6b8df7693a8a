//! One look at everything, and what is written down of it.

use super::{
    Found, Sighting, Trouble, View, balances, books, expiries, over_bound, refusing, unbilled,
    upstreams, words,
};
use crate::{
    backoffice::{Alert, AlertKind, BackofficeError, Channel, NewAlert, Route},
    base::keys::random_id,
    gateway::Gateway,
};

/// How many open alerts of a kind are looked at; the others have their turn at the next look.
const AT_ONCE: usize = 100;
/// Who was told of something is not told of the same again within so many seconds.
const QUIET: i64 = 3_600;

/// Looks at everything, as it is `now`; what could not be looked at is tried again with the next look.
pub async fn look(gateway: &Gateway, now: i64) -> Result<(), Trouble> {
    let mut open = Vec::new();
    for kind in AlertKind::ALL {
        open.extend(gateway.backoffice.open_alerts(kind, AT_ONCE).await?);
    }
    let noted = gateway.alerts.take_noted();
    let view = View {
        gateway,
        now,
        open: &open,
    };
    let found = [
        (AlertKind::UpstreamFailing, Ok(upstreams::look(&view))),
        (AlertKind::BalanceLow, balances::look(&view, &noted).await),
        (AlertKind::CreditExpiring, expiries::look(&view).await),
        (AlertKind::UpstreamRefuses, Ok(refusing::look(&view))),
        (AlertKind::StreamUnbilled, unbilled::look(&view).await),
        (AlertKind::UsageOverBound, Ok(over_bound::look(&view))),
        (AlertKind::AuditMismatch, books::look(&view).await),
    ];
    let mut trouble = None;
    for (kind, found) in found {
        let written = match found {
            Ok(found) => write_down(&view, found).await.map_err(Trouble::from),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = written {
            match kind {
                AlertKind::BalanceLow => gateway.alerts.note_again(&noted),
                AlertKind::CreditExpiring => gateway.alerts.forget_expiries(),
                _ => {}
            }
            trouble.get_or_insert(error);
        }
    }
    // A test is over as it begins, unless its gateway has died in between.
    for test in view.open_of(AlertKind::Test) {
        gateway.backoffice.close_alert(test, &[], now).await?;
    }
    count(gateway).await?;
    trouble.map_or(Ok(()), Err)
}

async fn write_down(view: &View<'_>, found: Found<'_>) -> Result<(), BackofficeError> {
    let backoffice = &view.gateway.backoffice;
    for Sighting {
        kind,
        subject,
        detail,
    } in found.seen
    {
        let detail = detail.to_string();
        if let Some(alert) = view.is_open(kind, &subject) {
            backoffice.see_alert(&alert.id, &detail, view.now).await?;
            if !alert.announced {
                let routes = to_all(view.gateway, kind, &subject);
                let announced_after = view.now - QUIET;
                let announced =
                    backoffice.announce_alert(alert, &routes, view.now, announced_after);
                announced.await?;
            }
            continue;
        }
        let new = NewAlert {
            kind,
            subject: &subject,
            detail: &detail,
            routes: &to_all(view.gateway, kind, &subject),
            now: view.now,
            announced_after: view.now - QUIET,
        };
        if let Some(id) = backoffice.open_alert(new).await? {
            let summary = words::summary(kind, &subject, &detail);
            tracing::warn!(alert.id = id, kind = kind.as_str(), "an alert: {summary}");
        }
    }
    for alert in found.over {
        close(view, alert).await?;
    }
    Ok(())
}

async fn close(view: &View<'_>, alert: &Alert) -> Result<(), BackofficeError> {
    let routes = to_operators(view.gateway);
    let backoffice = &view.gateway.backoffice;
    if backoffice.close_alert(alert, &routes, view.now).await? {
        let (kind, subject) = (alert.kind.as_str(), &alert.subject);
        tracing::info!(alert.id = alert.id, kind, subject, "an alert is over");
    }
    Ok(())
}

async fn count(gateway: &Gateway) -> Result<(), BackofficeError> {
    let counts = gateway.backoffice.open_alert_counts().await?;
    gateway.alerts.are_open(counts);
    Ok(())
}

/// Tells operators that this is a test, by every way there is. It is over as it begins.
pub async fn send_test(gateway: &Gateway, now: i64) -> Result<(), BackofficeError> {
    let (kind, backoffice) = (AlertKind::Test, &gateway.backoffice);
    let new = NewAlert {
        kind,
        subject: &random_id("test_"),
        detail: "{}",
        routes: &to_operators(gateway),
        now,
        // However often.
        announced_after: i64::MAX,
    };
    if let Some(id) = backoffice.open_alert(new).await?
        && let Some(alert) = backoffice.alert(&id).await?
    {
        backoffice.close_alert(&alert, &[], now).await?;
    }
    gateway.alerts.want();
    Ok(())
}

fn to_operators(gateway: &Gateway) -> Vec<Route> {
    let webhook = gateway.alerts.webhook.as_ref().map(|_| Route {
        channel: Channel::Webhook,
        recipient: String::new(),
    });
    let letters = gateway.alerts.settings.mail_to.iter().map(|to| Route {
        channel: Channel::Mail,
        recipient: to.clone(),
    });
    webhook.into_iter().chain(letters).collect()
}

/// Operators, and whoever's credit it is about.
fn to_all(gateway: &Gateway, kind: AlertKind, subject: &str) -> Vec<Route> {
    let mut routes = to_operators(gateway);
    let tells = gateway.alerts.settings.tell_customers && gateway.mail.is_some();
    let account = words::account_of(kind, subject).filter(|_| tells);
    routes.extend(account.map(|account| Route {
        channel: Channel::Customer,
        recipient: account.to_owned(),
    }));
    routes
}
