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
    account_filter::AccountFilter,
    account_names::AccountNames,
    frame::{self, Place},
    paging, refused,
};
use crate::{
    api::loggable,
    backoffice::RefusedRequest,
    base::money::NanoUsd,
    gateway::Gateway,
    ledger::{Call, Outcome},
    portal::{
        error::PortalError,
        formatting, layout,
        query::{ReadQuery, non_empty},
        requests::{
            csv,
            filter::{Filter, RequestsQuery, error_inputs},
            list as customers,
            merged::{Listed, Of, Requests},
            operator_label, refused as customers_refused,
        },
        table::scrolled,
    },
};

const LIST: &str = "/portal/console/requests";

#[derive(Deserialize)]
pub(crate) struct ConsoleQuery {
    /// A call ID, or the request ID that the client received.
    id: Option<String>,
    #[serde(flatten)]
    filter: RequestsQuery,
}

/// The path of a request's details page.
pub(crate) fn path(id: impl std::fmt::Display) -> String {
    format!("/portal/console/requests/{id}")
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<ConsoleQuery>,
) -> Result<Response, PortalError> {
    if let Some(id) = non_empty(query.id.as_ref()) {
        return find_by_id(&gateway, &me, id).await;
    }
    let filter = Filter::read(&query.filter)?;
    let account = AccountFilter::find(&gateway, filter.account).await?;
    let found = match account.id() {
        Ok(account_id) => {
            let of = Of {
                account_id,
                ..Of::default()
            };
            Requests::read(&gateway, &filter, of, paging::PAGE_SIZE).await?
        }
        Err(_) => Requests::default(),
    };
    let older = found.next().map(|last| filter.path(LIST, Some(last)));
    let newest = filter.before.is_some().then(|| filter.path(LIST, None));
    let csv = filter.path("/portal/console/requests.csv", None);
    let names = AccountNames::read(&gateway, found.account_ids()).await?;
    let content = html! {
        h1 { "Requests" }
        p.muted data-zone-note { "Times are in UTC." }
        (find_form(""))
        p { a href="/portal/console/requests/refused" { "Why requests were refused" } }
        (filter.presets(LIST))
        (filter_form(&gateway, &filter))
        @if let Err(message) = account.id() {
            p.problem role="alert" { (message) }
        } @else {
            (listed(&found.rows, &names))
            (customers::searched(found.searched_to_ms))
        }
        (paging::links("requests", newest.as_deref(), older.as_deref()))
        p { a.button href=(csv) download { "Download as CSV" } }
    };
    Ok(frame::page(&me, Place::Requests, "Requests", &content).into_response())
}

/// The requests of the list with the same filter, as CSV.
pub(crate) async fn csv(
    State(gateway): State<Arc<Gateway>>,
    _: SignedInOperator,
    ReadQuery(query): ReadQuery<RequestsQuery>,
) -> Result<Response, PortalError> {
    let account = AccountFilter::find(&gateway, Filter::read(&query)?.account).await?;
    let account_id = account.id().map_err(PortalError::Invalid)?;
    let account_id = account_id.map(str::to_owned);
    csv::file(gateway, query, csv::Reader::Operator { account_id })
}

/// Finds requests by call ID or by request ID. Clients may choose the request ID, so several requests can share
/// one.
async fn find_by_id(
    gateway: &Gateway,
    me: &SignedInOperator,
    id: &str,
) -> Result<Response, PortalError> {
    let id = &*loggable(id).replace('\0', "\u{fffd}");
    let calls = gateway.ledger.find_calls(id).await?;
    gateway.write_refused_now().await;
    let refused = gateway.backoffice.find_refused(id, None).await?;
    match (calls.as_slice(), refused.as_slice()) {
        ([only], []) => return Ok(layout::redirect(&path(only.id))),
        ([], [only]) => return Ok(layout::redirect(&path(&only.id))),
        _ => {}
    }
    let of_calls = calls.iter().map(|call| call.account_id.as_str());
    let of_refused = refused.iter().map(|one| one.account_id.as_str());
    let names = AccountNames::read(gateway, of_calls.chain(of_refused)).await?;
    let content = html! {
        h1 { "Requests" }
        (find_form(id))
        @if calls.is_empty() && refused.is_empty() {
            p.empty { "No matching requests. Requests refused without a known key are only in the log." }
        } @else {
            p { (formatting::count((calls.len() + refused.len()) as u64)) " requests have this ID." }
        }
        @if !calls.is_empty() { (table(&calls, &names)) }
        @if !refused.is_empty() { (refused::table(&refused, &names)) }
        p { a href="/portal/console/requests" { "All requests" } }
    };
    Ok(frame::page(me, Place::Requests, "Requests", &content).into_response())
}

pub(super) fn find_form(id: &str) -> Markup {
    html! {
        form.inline method="get" action="/portal/console/requests" role="search" {
            label { "Request ID or call ID"
                input type="search" name="id" value=(id) required placeholder="req_… or call_…" autocomplete="off";
            }
            button.primary type="submit" { "Find" }
        }
    }
}

fn filter_form(gateway: &Gateway, filter: &Filter<'_>) -> Markup {
    html! {
        form.inline method="get" action=(LIST) {
            (filter.times.inputs())
            (field("Account", "account", filter.account, "ID or email"))
            (field("Key", "key", filter.key, "key_…"))
            (customers::model_input(gateway, filter.model))
            (field("Upstream", "upstream", filter.upstream, "All upstreams"))
            label { "Outcome"
                select name="outcome" { (filter.ended.options(operator_label)) }
            }
            details open[filter.is_narrow()] {
                summary { "More filters" }
                (field("Project", "project", filter.project, "proj_… or default"))
                (field("Member", "member", filter.member, "person_…"))
                (field("Session of a coding agent", "session", filter.session, "All sessions"))
                (error_inputs(filter.status, filter.code))
            }
            button type="submit" { "Show" }
            @if !filter.is_any() { a.button href=(LIST) { "Show all" } }
        }
    }
}

/// A text field of a filter.
pub(super) fn field(label: &str, name: &str, value: Option<&str>, hint: &str) -> Markup {
    html! {
        label { (label)
            input type="text" name=(name) value=(value.unwrap_or_default()) placeholder=(hint) autocomplete="off";
        }
    }
}

pub(crate) fn table(calls: &[Call], names: &AccountNames) -> Markup {
    if calls.is_empty() {
        return html! { p.empty { "No matching requests." } };
    }
    framed(&html! { @for call in calls { (row(call, names)) } })
}

pub(super) fn listed(rows: &[Listed], names: &AccountNames) -> Markup {
    if rows.is_empty() {
        return html! { p.empty { "No matching requests." } };
    }
    framed(&html! {
        @for listed in rows {
            @match listed {
                Listed::Call(call) => (row(call, names)),
                Listed::Refused(one) => (refused_row(one, names)),
            }
        }
    })
}

fn framed(rows: &Markup) -> Markup {
    let table = html! {
        table {
            caption { "Requests, newest first" }
            thead { tr {
                th scope="col" { "Time" }
                th scope="col" { "Account" }
                th scope="col" { "Model" }
                th scope="col" { "Upstream" }
                th.number scope="col" { "Tokens" }
                th.number scope="col" { "Cost" }
                th.number scope="col" { "Duration" }
                th scope="col" { "Outcome" }
            } }
            tbody { (rows) }
        }
    };
    scrolled("Requests", &table)
}

fn row(call: &Call, names: &AccountNames) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(path(call.id)) { (formatting::moment(call.ended_ms.div_euclid(1_000))) } }
            td { (names.link(&call.account_id)) }
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

/// A refused request has reached no upstream and cost nothing.
fn refused_row(one: &RefusedRequest, names: &AccountNames) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(path(&one.id)) { (formatting::moment(one.at_ms.div_euclid(1_000))) } }
            td { (names.link(&one.account_id)) }
            td { (customers_refused::model(one)) }
            td { "–" }
            td.number { "–" }
            td.number { (formatting::money(NanoUsd::default())) }
            td.number { (formatting::duration(one.took_ms)) }
            td { span.badge.bad title=(one.message) { (one.status) " " (one.code) } }
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
