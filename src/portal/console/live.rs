//! The live page: current traffic of this gateway. A script refreshes it every two seconds.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};

use super::{
    access::SignedInOperator,
    bars::{Bars, Series},
    frame::{self, Place},
    live_breakdown,
    live_tail::{self, TailQuery},
};
use crate::{
    base::money::NanoUsd,
    gateway::{
        Gateway,
        traffic::{SECONDS, Sums},
    },
    portal::{
        error::PortalError,
        formatting::{count, money, money_rounded},
        layout::Page,
        query::ReadQuery,
        table,
    },
};

const SECONDS_PER_BAR: usize = 5;

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<TailQuery>,
) -> Result<Page, PortalError> {
    let tail = live_tail::section(&gateway, &query).await?;
    let shared = gateway.ledger.is_shared();
    let content = html! {
        h1 { "Live" }
        @if shared {
            p.muted { "Activity of the gateway that serves this page. Other gateways of the fleet count their own." }
        }
        div #live hx-get="/portal/console/live" hx-trigger="every 2s" hx-swap="innerHTML" { (figures(&gateway)) }
        (tail)
        noscript { p.muted { "Without JavaScript, reload the page to update it." } }
    };
    Ok(frame::page(&me, Place::Live, "Live", &content))
}

/// The latest requests, refreshed like the figures.
pub(crate) async fn tail_fragment(
    State(gateway): State<Arc<Gateway>>,
    me: Result<SignedInOperator, PortalError>,
    ReadQuery(query): ReadQuery<TailQuery>,
) -> Response {
    match me {
        Ok(_) => match live_tail::fragment(&gateway, &query).await {
            Ok(rows) => fragment(&rows),
            Err(error) => error.into_response(),
        },
        Err(error) => without_session(error),
    }
}

/// The refreshed part of the page. When the session has ended, the response makes htmx reload the whole page,
/// which then redirects to the sign-in page.
pub(crate) async fn figures_fragment(
    State(gateway): State<Arc<Gateway>>,
    me: Result<SignedInOperator, PortalError>,
) -> Response {
    match me {
        Ok(_) => fragment(&figures(&gateway)),
        Err(error) => without_session(error),
    }
}

/// A part of the page. Its tables get their labels here, because it gets no frame.
fn fragment(html: &Markup) -> Response {
    let mut response = Response::new(Body::from(table::labelled(html).into_string()));
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

/// Makes htmx reload the whole page when the session has ended.
fn without_session(error: PortalError) -> Response {
    if let PortalError::OperatorSignedOut { .. } = error {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let anew = HeaderValue::from_static("true");
        response.headers_mut().insert("hx-refresh", anew);
        return response;
    }
    error.into_response()
}

fn figures(gateway: &Gateway) -> Markup {
    let seconds = gateway.traffic.seconds();
    let (calls, held) = gateway.ledger.all_held();
    let calls = u64::try_from(calls).unwrap_or(u64::MAX);
    let last = |count: usize| Sums::of(&seconds[SECONDS.saturating_sub(count)..]);
    let (ten, minute, all) = (last(10), last(60), Sums::of(&seconds));
    let spent = |sums: Sums| NanoUsd::new(i64::try_from(sums.spent).unwrap_or(i64::MAX));
    html! {
        div.grid {
            section.card {
                h2 { "Requests a second" }
                p.figure { (tenths(ten.requests)) }
                p.muted { "in the last ten seconds; " (count(all.requests)) " in five minutes" }
            }
            section.card {
                h2 { "Errors" }
                p.figure { (share(minute.refused.saturating_add(minute.failed), minute.requests)) }
                p.muted { "in the last minute: " (count(minute.refused)) " refused, " (count(minute.failed)) " failed" }
            }
            section.card {
                h2 { "Tokens" }
                p.figure { (count(minute.tokens)) }
                p.muted { "in the last minute; " (count(all.tokens)) " in five minutes" }
            }
            section.card {
                h2 { "Spend" }
                p.figure title=(money(spent(minute))) { (money_rounded(spent(minute))) }
                p.muted { "in the last minute; " (money_rounded(spent(all))) " in five minutes" }
            }
            section.card {
                h2 { "Running" }
                p.figure { (count(calls)) }
                p.muted { "with " (money_rounded(held)) " reserved" }
            }
        }
        div.charts { (requests(&seconds)) (tokens(&seconds)) }
        (live_breakdown::tables(&gateway.breakdown.last_minutes(&gateway.metrics)))
    }
}

fn requests(seconds: &[Sums]) -> Markup {
    let served = |sums: Sums| {
        let rest = sums.requests.saturating_sub(sums.refused);
        rest.saturating_sub(sums.failed)
    };
    Bars {
        title: "Requests",
        seconds_per_bar: SECONDS_PER_BAR,
        series: vec![
            Series::new("Served", 3, seconds, SECONDS_PER_BAR, served),
            Series::new("Refused", 2, seconds, SECONDS_PER_BAR, |sums| sums.refused),
            Series::new("Failed", 6, seconds, SECONDS_PER_BAR, |sums| sums.failed),
        ],
    }
    .draw()
}

fn tokens(seconds: &[Sums]) -> Markup {
    Bars {
        title: "Charged tokens",
        seconds_per_bar: SECONDS_PER_BAR,
        series: vec![Series::new("Tokens", 1, seconds, SECONDS_PER_BAR, |sums| {
            sums.tokens
        })],
    }
    .draw()
}

/// Requests a second with one decimal, from the number of requests in ten seconds.
fn tenths(number: u64) -> String {
    format!("{}.{}", count(number / 10), number % 10)
}

/// A ratio in per cent, with one decimal.
fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    let per_mille = (u128::from(part) * 1_000 + u128::from(whole) / 2) / u128::from(whole);
    format!("{}.{} %", per_mille / 10, per_mille % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_tenths_have_one_decimal() {
        assert_eq!((share(0, 0), share(1, 3)), ("–".into(), "33.3 %".into()));
        assert_eq!(share(u64::MAX, u64::MAX), "100.0 %");
        assert_eq!(
            (tenths(7), tenths(12_345)),
            ("0.7".into(), "1,234.5".into())
        );
    }
}
