//! The list of all requests, newest first, with filters and a search by ID.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::SignedInOperator,
    accounts,
    frame::{self, Place, scrolled},
    paging,
};
use crate::{
    api::loggable,
    gateway::Gateway,
    ledger::{Call, CallId, CallsPage, Outcome},
    portal::{
        error::PortalError,
        formatting, layout,
        query::{ReadQuery, non_empty},
        requests::operator_label,
    },
};

#[derive(Deserialize)]
pub(crate) struct RequestsQuery {
    /// A call ID, or the request ID that the client received.
    id: Option<String>,
    account: Option<String>,
    key: Option<String>,
    model: Option<String>,
    outcome: Option<String>,
    before: Option<String>,
}

/// The path of a request's details page.
pub(crate) fn path(id: CallId) -> String {
    format!("/portal/console/requests/{id}")
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<RequestsQuery>,
) -> Result<Response, PortalError> {
    if let Some(id) = non_empty(query.id.as_ref()) {
        return find_by_id(&gateway, &me, id).await;
    }
    let outcome = non_empty(query.outcome.as_ref()).map(|text| {
        Outcome::parse(text)
            .ok_or_else(|| PortalError::Invalid("No request ends in that way.".into()))
    });
    let page = CallsPage {
        account_id: non_empty(query.account.as_ref()),
        key_id: non_empty(query.key.as_ref()),
        model: non_empty(query.model.as_ref()),
        outcome: outcome.transpose()?,
        seen: None,
        before: paging::cursor(query.before.as_ref(), "requests", cursor)?,
        limit: paging::QUERIED,
    };
    let mut calls = gateway.ledger.calls_page(&page).await?;
    let older = paging::cut(&mut calls).map(|last| list_url(&page, Some(last)));
    let newest = page.before.is_some().then(|| list_url(&page, None));
    let content = html! {
        h1 { "Requests" }
        (find_form(""))
        (filter_form(&page))
        (table(&calls))
        (paging::links("requests", newest.as_deref(), older.as_deref()))
    };
    Ok(frame::page(&me, Place::Requests, "Requests", &content).into_response())
}

/// Finds requests by call ID or by request ID. Clients may choose the request ID, so several requests can share
/// one.
async fn find_by_id(
    gateway: &Gateway,
    me: &SignedInOperator,
    id: &str,
) -> Result<Response, PortalError> {
    let calls = gateway.ledger.find_calls(&loggable(id)).await?;
    if let [only] = calls.as_slice() {
        return Ok(layout::redirect(&path(only.id)));
    }
    let content = html! {
        h1 { "Requests" }
        (find_form(id))
        @if calls.is_empty() {
            p.empty { "No request that was admitted has this ID. One that was refused before that is in the log alone." }
        } @else {
            p { (formatting::count(calls.len() as u64)) " requests have this ID." }
            (table(&calls))
        }
        p { a href="/portal/console/requests" { "All requests" } }
    };
    Ok(frame::page(me, Place::Requests, "Requests", &content).into_response())
}

/// Parses a page cursor: end time and call ID of the last row of the previous page.
fn cursor(text: &str) -> Option<(i64, CallId)> {
    let (ended_ms, id) = text.split_once('-')?;
    Some((ended_ms.parse().ok()?, CallId::parse(id)?))
}

/// The URL of the list with these filters: its first page, or the page after `last`.
fn list_url(page: &CallsPage<'_>, last: Option<&Call>) -> String {
    let named = [
        ("account", page.account_id.map(layout::encoded)),
        ("key", page.key_id.map(layout::encoded)),
        ("model", page.model.map(layout::encoded)),
        (
            "outcome",
            page.outcome.map(|outcome| outcome.as_str().into()),
        ),
        (
            "before",
            last.map(|call| format!("{}-{}", call.ended_ms, call.id)),
        ),
    ];
    let pairs: Vec<_> = named
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
        .collect();
    format!("/portal/console/requests?{}", pairs.join("&"))
}

fn find_form(id: &str) -> Markup {
    html! {
        form.inline method="get" action="/portal/console/requests" role="search" {
            label { "Request ID or call ID"
                input type="search" name="id" value=(id) required placeholder="req_… or call_…" autocomplete="off";
            }
            button.primary type="submit" { "Find" }
        }
    }
}

fn filter_form(page: &CallsPage<'_>) -> Markup {
    let field = |label: &str, name: &str, value: Option<&str>| {
        html! {
            label { (label) input type="text" name=(name) value=(value.unwrap_or_default()) placeholder="all" autocomplete="off"; }
        }
    };
    html! {
        form.inline method="get" action="/portal/console/requests" {
            (field("Account", "account", page.account_id))
            (field("Key", "key", page.key_id))
            (field("Model", "model", page.model))
            label { "Outcome"
                select name="outcome" {
                    option value="" { "all" }
                    @for one in Outcome::ALL {
                        option value=(one.as_str()) selected[page.outcome == Some(one)] { (operator_label(one)) }
                    }
                }
            }
            button type="submit" { "Show" }
            @if page.account_id.or(page.key_id).or(page.model).is_some() || page.outcome.is_some() {
                a.button href="/portal/console/requests" { "Show all" }
            }
        }
    }
}

pub(crate) fn table(calls: &[Call]) -> Markup {
    if calls.is_empty() {
        return html! { p.empty { "There are no such requests." } };
    }
    let table = html! {
        table {
            caption { "Requests, newest first" }
            thead { tr {
                th scope="col" { "When" }
                th scope="col" { "Account" }
                th scope="col" { "Model" }
                th scope="col" { "Upstream" }
                th.number scope="col" { "Tokens" }
                th.number scope="col" { "Cost" }
                th.number scope="col" { "Took" }
                th scope="col" { "Outcome" }
            } }
            tbody { @for call in calls { (row(call)) } }
        }
    };
    scrolled("Requests", &table)
}

fn row(call: &Call) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(path(call.id)) { (formatting::moment(call.ended_ms.div_euclid(1_000))) } }
            td { a href=(accounts::path(&call.account_id)) { code { (call.account_id) } } }
            td {
                code { (call.model) }
                @if call.routed_model != call.model { " → " code { (call.routed_model) } }
            }
            td { (call.upstream.as_deref().unwrap_or("–")) }
            td.number { @match call.charged { Some(charged) => { (formatting::count(charged.usage.total())) }, None => { "–" } } }
            td.number { (formatting::money(call.charged.map(|charged| charged.cost).unwrap_or_default())) }
            td.number { (formatting::duration(call.ended_ms - call.admitted_ms)) }
            td { (outcome(call.outcome)) }
        }
    }
}

/// The outcome, with its identifier in the ledger, the operator API and the metrics as a hint.
pub(crate) fn outcome(outcome: Outcome) -> Markup {
    let class = match outcome {
        Outcome::Answered => "badge good",
        Outcome::ClientLeft => "badge",
        _ => "badge bad",
    };
    html! { span class=(class) title=(outcome.as_str()) { (operator_label(outcome)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_links_keep_the_filter() {
        let page = CallsPage {
            account_id: Some("acct_1"),
            model: Some("a&b"),
            outcome: Some(Outcome::NoUsage),
            ..CallsPage::default()
        };
        assert_eq!(
            list_url(&page, None),
            "/portal/console/requests?account=acct%5F1&model=a%26b&outcome=no_usage"
        );
        assert_eq!(cursor("5-call_0000000000000"), Some((5, CallId(0))));
        assert_eq!((cursor("5"), cursor("5-6")), (None, None));
    }
}
