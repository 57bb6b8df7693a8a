//! The deployments page: circuit state, counters and last failure of each, as seen by this gateway.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use axum::extract::State;
use maud::{Markup, html};

use super::{
    access::SignedInOperator,
    frame::{self, Place},
};
use crate::{
    gateway::Gateway,
    portal::{
        formatting::{count, duration, moment},
        layout::Page,
        table::scrolled,
    },
    upstream::deployments::{CircuitState as Circuit, ConfiguredDeployment},
};

pub(crate) async fn show(State(gateway): State<Arc<Gateway>>, me: SignedInOperator) -> Page {
    let routes = gateway.routes();
    let listed = routes.deployments.configured();
    let table = html! {
        table {
            caption { "In the order of the configuration" }
            thead { tr {
                th scope="col" { "Model" }
                th scope="col" { "Provider" }
                th.number scope="col" { "Priority" }
                th.number scope="col" { "Weight" }
                th scope="col" { "Circuit" }
                th.number scope="col" { "Running" }
                th.number scope="col" { "Answered" }
                th.number scope="col" { "Failed" }
                th.number scope="col" { "First byte" }
                th scope="col" { "Last failure" }
            } }
            tbody { @for one in listed { (row(one)) } }
        }
    };
    let content = html! {
        h1 { "Deployments" }
        p.muted { "Counted by this gateway since it started. Requests go to the deployments with the lowest priority number, in proportion to their weights. A deployment whose circuit is open is skipped for a while." }
        @if listed.is_empty() { p.empty { "No deployments." } }
        @else { (scrolled("Deployments", &table)) }
    };
    frame::page(&me, Place::Deployments, "Deployments", &content)
}

fn row(listed: &ConfiguredDeployment) -> Markup {
    let (counts, now) = (listed.counts(), Instant::now());
    html! {
        tr {
            th scope="row" {
                code { (listed.model) }
                @if let Some(name) = &listed.upstream_model { " " span.muted { "as " (name) } }
            }
            td { (listed.provider) }
            td.number { (listed.priority) }
            td.number { (listed.weight) }
            td {
                (circuit(counts.circuit.state(now)))
                @if let Some(until) = counts.circuit.open_until().filter(|until| *until > now) {
                    @let rest = until.saturating_duration_since(now).as_millis();
                    " " span.muted { "for " (duration(i64::try_from(rest).unwrap_or(i64::MAX))) }
                }
            }
            td.number { (count(counts.running)) }
            td.number { (count(counts.answered)) }
            td.number {
                (count(counts.failed))
                @if counts.circuit.consecutive_failures() > 0 { " " span.muted { "(" (counts.circuit.consecutive_failures()) " in a row)" } }
            }
            td.number { @match counts.first_byte { Some(seconds) => { (milliseconds(seconds)) }, None => { "–" } } }
            td.failure {
                @match &counts.last_failure {
                    Some((at, reason)) => { (moment(seconds_since_1970(*at))) ": " (reason) },
                    None => { span.muted { "none" } },
                }
            }
        }
    }
}

fn circuit(state: Circuit) -> Markup {
    let (class, label) = match state {
        Circuit::Closed => ("badge good", "closed"),
        Circuit::HalfOpen => ("badge", "half open"),
        Circuit::Open => ("badge bad", "open"),
    };
    html! { span class=(class) { (label) } }
}

#[expect(clippy::cast_possible_truncation, reason = "milliseconds of a call")]
fn milliseconds(seconds: f64) -> String {
    duration((seconds * 1_000.0).round() as i64)
}

fn seconds_since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}
