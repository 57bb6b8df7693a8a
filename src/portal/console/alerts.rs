//! What operators must hear of: what is so now, what was, and whether anyone has heard.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{OperatorForm, OperatorIn},
    accounts,
    frame::{self, Place, scrolled},
};
use crate::{
    backoffice::{Alert, AlertKind, AlertWithDeliveries, Channel, Delivery, DeliveryState, Event},
    gateway::{Gateway, alerts::words},
    portal::{
        error::PortalError,
        form::Nothing,
        layout::{self, Page},
        query::{ReadQuery, given},
        words::moment,
    },
};

const ON_A_PAGE: usize = 50;
/// Of more, the rest is in the counts of the metrics.
const SHOWN_OPEN: usize = 200;
const HERE: &str = "/portal/console/alerts";

#[derive(Deserialize)]
pub struct Asked {
    before: Option<String>,
}

pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: OperatorIn,
    ReadQuery(asked): ReadQuery<Asked>,
) -> Result<Page, PortalError> {
    let before = given(asked.before.as_ref()).map(str::parse).transpose();
    let before =
        before.map_err(|_| PortalError::Invalid("There is no such page of alerts.".into()))?;
    let backoffice = &gateway.backoffice;
    let (open, mut past) = tokio::try_join!(
        backoffice.open_alerts_with_deliveries(SHOWN_OPEN),
        backoffice.closed_alerts_with_deliveries(before, ON_A_PAGE + 1),
    )?;
    let more = past.len() > ON_A_PAGE;
    past.truncate(ON_A_PAGE);
    let next = past.last().filter(|_| more);
    let content = html! {
        h1 { "Alerts" }
        (channels(&gateway, &me))
        @if before.is_none() {
            section {
                h2 { "Open" }
                @if open.is_empty() { p.empty { "Nothing is wrong that an operator must hear of." } }
                @else { (scrolled("Open alerts", &open_table(&open))) }
            }
        }
        section {
            h2 { "Over" }
            @if past.is_empty() { p.empty { "There are none." } }
            @else { (scrolled("Alerts that are over", &past_table(&past))) }
            nav.pages aria-label="Pages" {
                @if before.is_some() { a href=(HERE) { "Newest alerts" } }
                @if let Some(last) = next {
                    a rel="next" href={ (HERE) "?before=" (last.alert.seq) } { "Older alerts" }
                }
            }
        }
    };
    Ok(frame::page(&me, Place::Alerts, "Alerts", &content))
}

/// Who hears of alerts, and a form to see whether they do.
fn channels(gateway: &Gateway, me: &OperatorIn) -> Markup {
    let alerts = &gateway.alerts;
    let letters = &alerts.settings.mail_to;
    let told = alerts.webhook.is_some() || !letters.is_empty();
    html! {
        @if !alerts.settings.enabled {
            p.problem { "Alerts are turned off in the configuration of this gateway: nothing is looked for." }
        }
        p.muted {
            "Each opens once and is over by itself. "
            @if told {
                "Told by "
                @if alerts.webhook.is_some() { "a webhook" }
                @if alerts.webhook.is_some() && !letters.is_empty() { " and " }
                @if !letters.is_empty() { "letters to " (letters.join(", ")) }
                "."
            } @else {
                "Nobody is told of them elsewhere: the configuration has neither a webhook nor addresses."
            }
        }
        @if told && alerts.settings.enabled {
            form method="post" action={ (HERE) "/test" } {
                (me.token_field())
                button type="submit" { "Send a test alert" }
            }
        }
    }
}

pub async fn test(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form: _ }: OperatorForm<Nothing>,
) -> Result<Response, PortalError> {
    me.acts(&gateway).test_alert().await??;
    Ok(layout::redirect(HERE))
}

fn open_table(open: &[AlertWithDeliveries]) -> Markup {
    html! {
        table {
            caption { "Open alerts, the latest first" }
            thead { tr {
                th scope="col" { "What" }
                th scope="col" { "Since" }
                th scope="col" { "How it is" }
                th scope="col" { "What to do" }
                th scope="col" { "Told" }
            } }
            tbody {
                @for AlertWithDeliveries { alert, deliveries } in open {
                    tr {
                        th scope="row" { (what(alert)) }
                        td { (moment(alert.opened_at)) }
                        td { (how(alert)) }
                        td { (words::advice(alert.kind)) }
                        td { (told(deliveries)) }
                    }
                }
            }
        }
    }
}

fn past_table(past: &[AlertWithDeliveries]) -> Markup {
    html! {
        table {
            caption { "Alerts that are over, the latest first" }
            thead { tr {
                th scope="col" { "What" }
                th scope="col" { "From" }
                th scope="col" { "To" }
                th scope="col" { "How it was" }
                th scope="col" { "Told" }
            } }
            tbody {
                @for AlertWithDeliveries { alert, deliveries } in past {
                    tr {
                        th scope="row" { (what(alert)) }
                        td { (moment(alert.opened_at)) }
                        td { @if let Some(at) = alert.closed_at { (moment(at)) } }
                        td { (how(alert)) }
                        td { (told(deliveries)) }
                    }
                }
            }
        }
    }
}

fn what(alert: &Alert) -> Markup {
    html! { (words::title(alert.kind)) " " code { (alert.kind.as_str()) } }
}

/// In words, with where to look.
fn how(alert: &Alert) -> Markup {
    let summary = words::summary(alert.kind, &alert.subject, &alert.detail);
    let (first, rest) = summary.split_at(summary.chars().next().map_or(0, char::len_utf8));
    let (to, name): (String, &str) = match alert.kind {
        AlertKind::BalanceLow | AlertKind::CreditExpiring => {
            let account = words::account_of(alert.kind, &alert.subject);
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
        // An identifier stays as it is written.
        @if summary.starts_with(&alert.subject) { (summary) } @else { (first.to_uppercase()) (rest) }
        ". "
        @if alert.kind != AlertKind::Test { a href=(to) { (name) } }
    }
}

fn told(deliveries: &[Delivery]) -> Markup {
    if deliveries.is_empty() {
        return html! { span.muted { "nobody" } };
    }
    html! { ul.plain { @for delivery in deliveries { li { (one_told(delivery)) } } } }
}

fn one_told(delivery: &Delivery) -> Markup {
    let (class, state) = match delivery.state {
        DeliveryState::Waiting => ("badge", "waiting"),
        DeliveryState::Delivered => ("badge good", "delivered"),
        DeliveryState::GivenUp => ("badge bad", "given up"),
    };
    html! {
        @match delivery.channel {
            Channel::Webhook => "Webhook",
            Channel::Mail => { "Letter to " (delivery.recipient) },
            Channel::Customer => "Letter to the account's owner",
        }
        @if delivery.event == Event::Closed { ", that it is over" }
        ": " span class=(class) { (state) }
        @match (delivery.state, delivery.done_at) {
            (DeliveryState::Waiting, _) if delivery.attempts > 0 => {
                " " span.muted { "after " (delivery.attempts) " attempts, until " (moment(delivery.next_at)) }
            },
            (_, Some(at)) => { " " span.muted { (moment(at)) } },
            _ => {},
        }
        @if let Some(error) = &delivery.last_error { " " span.failure { (error) } }
    }
}
