//! Runs all checks and stores their results in the backoffice.

use super::{
    CheckContext, CheckError, CheckResult, Finding, audit, balances, budgets, expiries, messages,
    over_bound, refusing, unbilled, upstreams,
};
use crate::{
    backoffice::{Alert, AlertKind, BackofficeError, Channel, NewAlert, Route},
    base::keys::random_id,
    gateway::Gateway,
};

/// Number of open alerts of a kind that one round checks; the next rounds check the others.
const MAX_OPEN: usize = 100;
/// Seconds during which a repeated alert of one kind and subject is not delivered again.
const QUIET_PERIOD: i64 = 3_600;

/// Runs all checks as of `now`. If one fails, the others still run, and the next round repeats it.
pub async fn check(gateway: &Gateway, now: i64) -> Result<(), CheckError> {
    let mut open = Vec::new();
    for kind in AlertKind::ALL {
        open.extend(gateway.backoffice.open_alerts(kind, MAX_OPEN).await?);
    }
    let noted = gateway.alerts.take_low_balances();
    let context = CheckContext {
        gateway,
        now,
        open: &open,
    };
    let results = [
        (AlertKind::UpstreamFailing, Ok(upstreams::check(&context))),
        (
            AlertKind::BalanceLow,
            balances::check(&context, &noted).await,
        ),
        (AlertKind::CreditExpiring, expiries::check(&context).await),
        (AlertKind::BudgetReached, budgets::check(&context).await),
        (AlertKind::UpstreamRefuses, Ok(refusing::check(&context))),
        (AlertKind::StreamUnbilled, unbilled::check(&context).await),
        (AlertKind::UsageOverBound, Ok(over_bound::check(&context))),
        (AlertKind::AuditMismatch, audit::check(&context).await),
    ];
    let mut first_error = None;
    for (kind, result) in results {
        let stored = match result {
            Ok(result) => store(&context, result).await.map_err(CheckError::from),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = stored {
            match kind {
                AlertKind::BalanceLow => gateway.alerts.restore_low_balances(&noted),
                AlertKind::CreditExpiring => gateway.alerts.forget_expiring(),
                _ => {}
            }
            first_error.get_or_insert(error);
        }
    }
    // A test alert is closed when it is opened; one is still open only if its gateway died in between.
    for test in context.open_of(AlertKind::Test) {
        gateway.backoffice.close_alert(test, &[], now).await?;
    }
    update_counts(gateway).await?;
    first_error.map_or(Ok(()), Err)
}

/// Opens, refreshes and closes alerts according to the result of a check.
async fn store(context: &CheckContext<'_>, result: CheckResult<'_>) -> Result<(), BackofficeError> {
    let backoffice = &context.gateway.backoffice;
    for Finding {
        kind,
        subject,
        detail,
    } in result.findings
    {
        let detail = detail.to_string();
        if let Some(alert) = context.open_alert(kind, &subject) {
            backoffice
                .see_alert(&alert.id, &detail, context.now)
                .await?;
            if !alert.announced {
                let routes = to_all(context.gateway, kind, &subject);
                let announced_after = context.now - QUIET_PERIOD;
                let announced =
                    backoffice.announce_alert(alert, &routes, context.now, announced_after);
                announced.await?;
            }
            continue;
        }
        let new = NewAlert {
            kind,
            subject: &subject,
            detail: &detail,
            routes: &to_all(context.gateway, kind, &subject),
            now: context.now,
            announced_after: context.now - QUIET_PERIOD,
        };
        if let Some(id) = backoffice.open_alert(new).await? {
            let summary = messages::summary(kind, &subject, &detail);
            tracing::warn!(
                alert.id = id,
                kind = kind.as_str(),
                "alert opened: {summary}"
            );
        }
    }
    for alert in result.resolved {
        close(context, alert).await?;
    }
    Ok(())
}

async fn close(context: &CheckContext<'_>, alert: &Alert) -> Result<(), BackofficeError> {
    // The end of a customer's budget alert is no news to anyone.
    let routes = match alert.kind {
        AlertKind::BudgetReached => Vec::new(),
        _ => to_operators(context.gateway),
    };
    let backoffice = &context.gateway.backoffice;
    if backoffice.close_alert(alert, &routes, context.now).await? {
        let (kind, subject) = (alert.kind.as_str(), &alert.subject);
        tracing::info!(alert.id = alert.id, kind, subject, "alert closed");
    }
    Ok(())
}

/// Refreshes the counts of open alerts that `/metrics` and the console show.
async fn update_counts(gateway: &Gateway) -> Result<(), BackofficeError> {
    let counts = gateway.backoffice.open_alert_counts().await?;
    gateway.alerts.set_open_counts(counts);
    Ok(())
}

/// Queues a test alert to operators on every configured channel. The alert is closed at once.
pub async fn send_test(gateway: &Gateway, now: i64) -> Result<(), BackofficeError> {
    let (kind, backoffice) = (AlertKind::Test, &gateway.backoffice);
    let new = NewAlert {
        kind,
        subject: &random_id("test_"),
        detail: "{}",
        routes: &to_operators(gateway),
        now,
        // A test is delivered every time, without a quiet period.
        announced_after: i64::MAX,
    };
    if let Some(id) = backoffice.open_alert(new).await?
        && let Some(alert) = backoffice.alert(&id).await?
    {
        backoffice.close_alert(&alert, &[], now).await?;
    }
    gateway.alerts.request_check();
    Ok(())
}

fn to_operators(gateway: &Gateway) -> Vec<Route> {
    let webhook = gateway.alerts.webhook.as_ref().map(|_| Route {
        channel: Channel::Webhook,
        recipient: String::new(),
    });
    let emails = gateway.alerts.settings.mail_to.iter().map(|to| Route {
        channel: Channel::Mail,
        recipient: to.clone(),
    });
    webhook.into_iter().chain(emails).collect()
}

/// Returns the routes to the operators and, for an alert about credit, to the account's people. Budgets are the account's
/// own affair: their alerts go to its people and to the webhook.
fn to_all(gateway: &Gateway, kind: AlertKind, subject: &str) -> Vec<Route> {
    let mut routes = to_operators(gateway);
    let is_budget = kind == AlertKind::BudgetReached;
    if is_budget {
        routes.retain(|route| route.channel == Channel::Webhook);
    }
    let tells_customers = gateway.alerts.settings.tell_customers || is_budget;
    let notify_customers = tells_customers && gateway.mail.is_some();
    let account = messages::account_of(kind, subject).filter(|_| notify_customers);
    routes.extend(account.map(|account| Route {
        channel: Channel::Customer,
        recipient: account.to_owned(),
    }));
    routes
}
