//! The alerts page: open alerts, closed alerts and the deliveries of each.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{OperatorForm, SignedInOperator},
    account_names::AccountNames,
    accounts,
    frame::{self, Place},
    paging,
};
use crate::{
    backoffice::{Alert, AlertKind, AlertWithDeliveries, Channel, Delivery, DeliveryState, Event},
    gateway::{Gateway, alerts::messages},
    portal::{
        confirmation::Confirmation, error::PortalError, form::EmptyForm, formatting::moment,
        layout::Page, query::ReadQuery, table::scrolled,
    },
};

/// The most open alerts that are listed. The metrics count all.
const SHOWN_OPEN: usize = 200;
const HERE: &str = "/portal/console/alerts";

#[derive(Deserialize)]
pub(crate) struct AlertsQuery {
    before: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<AlertsQuery>,
) -> Result<Page, PortalError> {
    let before = paging::cursor(query.before.as_ref(), "alerts", |text| text.parse().ok())?;
    let backoffice = &gateway.backoffice;
    let (open, mut past) = tokio::try_join!(
        backoffice.open_alerts_with_deliveries(SHOWN_OPEN),
        backoffice.closed_alerts_with_deliveries(before, paging::QUERIED),
    )?;
    let older = paging::cut(&mut past).map(|last| format!("{HERE}?before={}", last.alert.seq));
    let newest = before.is_some().then_some(HERE);
    let accounts = open.iter().chain(&past);
    let accounts = accounts.filter_map(|listed| account_of(&listed.alert));
    let names = AccountNames::read(&gateway, accounts).await?;
    let content = html! {
        h1 { "Alerts" }
        (channels(&gateway, &me))
        @if before.is_none() {
            section {
                h2 { "Open" }
                @if open.is_empty() { p.empty { "No open alerts." } }
                @else { (scrolled("Open alerts", &open_table(&open, &names))) }
            }
        }
        section {
            h2 { "Resolved" }
            @if past.is_empty() { p.empty { "No resolved alerts yet." } }
            @else { (scrolled("Resolved alerts", &past_table(&past, &names))) }
            (paging::links("alerts", newest, older.as_deref()))
        }
    };
    Ok(frame::page(&me, Place::Alerts, "Alerts", &content))
}

/// The configured channels for alerts, and a form to send a test alert.
fn channels(gateway: &Gateway, me: &SignedInOperator) -> Markup {
    let alerts = &gateway.alerts;
    let recipients = &alerts.settings.mail_to;
    let has_channel = alerts.webhook.is_some() || !recipients.is_empty();
    html! {
        @if !alerts.settings.enabled {
            p.problem { "Alerts are turned off in the configuration of this gateway: nothing is checked." }
        }
        p.muted {
            "An alert is resolved by itself when its cause is gone. "
            @if has_channel {
                "Sent by "
                @if alerts.webhook.is_some() { "webhook" }
                @if alerts.webhook.is_some() && !recipients.is_empty() { " and " }
                @if !recipients.is_empty() { "email to " (recipients.join(", ")) }
                "."
            } @else {
                "No notifications are sent: the configuration has neither a webhook nor email addresses."
            }
        }
        @if has_channel && alerts.settings.enabled {
            form method="post" action={ (HERE) "/test" } {
                (me.token_field())
                button type="submit" { "Send test alert" }
            }
        }
    }
}

pub(crate) async fn test(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form: _ }: OperatorForm<EmptyForm>,
) -> Result<Response, PortalError> {
    me.actions(&gateway).test_alert().await??;
    let done = Confirmation::new("Test alert sent. It appears below with who was notified.");
    Ok(me.redirect(HERE, &done))
}

fn open_table(open: &[AlertWithDeliveries], names: &AccountNames) -> Markup {
    html! {
        table {
            caption { "Open alerts, newest first" }
            thead { tr {
                th scope="col" { "Alert" }
                th scope="col" { "Since" }
                th scope="col" { "Details" }
                th scope="col" { "What to do" }
                th scope="col" { "Notified" }
            } }
            tbody {
                @for AlertWithDeliveries { alert, deliveries } in open {
                    tr {
                        th scope="row" { (what(alert)) }
                        td { (moment(alert.opened_at)) }
                        td.prose { (how(alert, names)) }
                        td.prose { (messages::advice(alert.kind)) }
                        td.prose { (deliveries_list(deliveries)) }
                    }
                }
            }
        }
    }
}

fn past_table(past: &[AlertWithDeliveries], names: &AccountNames) -> Markup {
    html! {
        table {
            caption { "Resolved alerts, newest first" }
            thead { tr {
                th scope="col" { "Alert" }
                th scope="col" { "Since" }
                th scope="col" { "Resolved" }
                th scope="col" { "Details" }
                th scope="col" { "Notified" }
            } }
            tbody {
                @for AlertWithDeliveries { alert, deliveries } in past {
                    tr {
                        th scope="row" { (what(alert)) }
                        td { (moment(alert.opened_at)) }
                        td { @if let Some(at) = alert.closed_at { (moment(at)) } }
                        td.prose { (how(alert, names)) }
                        td.prose { (deliveries_list(deliveries)) }
                    }
                }
            }
        }
    }
}

fn what(alert: &Alert) -> Markup {
    html! { (messages::title(alert.kind)) " " code { (alert.kind.as_str()) } }
}

/// The account that the alert is about, if it is about one.
fn account_of(alert: &Alert) -> Option<&str> {
    messages::account_of(alert.kind, &alert.subject)
}

/// The alert's summary, with a link to the page that helps to resolve it.
fn how(alert: &Alert, names: &AccountNames) -> Markup {
    let account = account_of(alert);
    let shown = account.map_or("", |id| names.name(id));
    let summary = messages::summary(alert.kind, &alert.subject, &alert.detail);
    let summary = account.map_or(summary.clone(), |id| summary.replace(id, shown));
    let (first, rest) = summary.split_at(summary.chars().next().map_or(0, char::len_utf8));
    let (to, name): (String, &str) = match alert.kind {
        AlertKind::BalanceLow | AlertKind::CreditExpiring | AlertKind::BudgetReached => {
            (accounts::path(account.unwrap_or_default()), "The account")
        }
        AlertKind::UpstreamFailing | AlertKind::UpstreamRefuses => {
            ("/portal/console/deployments".into(), "Deployments")
        }
        AlertKind::StreamUnbilled => {
            let outcome = if alert.subject == "gateway" {
                "not_charged"
            } else {
                "no_usage"
            };
            let to = format!("/portal/console/requests?outcome={outcome}");
            (to, "The requests")
        }
        AlertKind::UsageOverBound => ("/portal/console/requests".into(), "The requests"),
        AlertKind::AuditMismatch => ("/portal/console/audit".into(), "The audit"),
        AlertKind::Test => (HERE.into(), "Alerts"),
    };
    html! {
        // The sentence is capitalised unless it starts with an identifier or a name.
        @if summary.starts_with(&alert.subject) || account.is_some() && summary.starts_with(shown) { (summary) } @else { (first.to_uppercase()) (rest) }
        ". "
        @if alert.kind != AlertKind::Test { a href=(to) { (name) } }
    }
}

fn deliveries_list(deliveries: &[Delivery]) -> Markup {
    if deliveries.is_empty() {
        return html! { span.muted { "none" } };
    }
    html! { ul.plain { @for delivery in deliveries { li { (delivery_state(delivery)) } } } }
}

fn delivery_state(delivery: &Delivery) -> Markup {
    let (class, state) = match delivery.state {
        DeliveryState::Waiting => ("badge", "waiting"),
        DeliveryState::Delivered => ("badge good", "delivered"),
        DeliveryState::GivenUp => ("badge bad", "given up"),
    };
    html! {
        @match delivery.channel {
            Channel::Webhook => "Webhook",
            Channel::Mail => { "Email to " (delivery.recipient) },
            Channel::Customer => "Email to the account's owners and billing members",
        }
        @if delivery.event == Event::Closed { ", resolved" }
        ": " span class=(class) { (state) }
        @match (delivery.state, delivery.done_at) {
            (DeliveryState::Waiting, _) if delivery.attempts > 0 => {
                " " span.muted { "after " (delivery.attempts) " attempts, next at " (moment(delivery.next_at)) }
            },
            (_, Some(at)) => { " " span.muted { (moment(at)) } },
            _ => {},
        }
        @if let Some(error) = &delivery.last_error { " " span.failure { (error) } }
    }
}
