//! The page of a request by its ID, which errors of the API link to, and the search for one.

use std::sync::Arc;

use axum::{
    extract::{Path, State, rejection::PathRejection},
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{details, found::Found, list, refused, refused_details};
use crate::{
    gateway::Gateway,
    ledger::Key,
    portal::{
        error::PortalError,
        layout::{self, Page, Place},
        query::{ReadQuery, non_empty},
        session::SignedIn,
    },
};

/// `GET /portal/requests/{id}`: the details of a request, or a list if several requests have this ID.
pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    id: Result<Path<String>, PathRejection>,
) -> Result<Response, PortalError> {
    let Ok(Path(id)) = id else {
        return Ok(not_found(&me));
    };
    let found = Found::with_id(&gateway, &me, &id).await?;
    if found.is_nothing() {
        return Ok(not_found(&me));
    }
    let keys = found.keys(&gateway, &me).await?;
    let page = match (found.calls.as_slice(), found.refused.as_slice()) {
        ([call], []) => details::page(&gateway, &me, call, &keys).await,
        ([], [one]) => refused_details::page(&gateway, &me, one, &keys).await,
        _ => {
            let title = "Requests with the same ID";
            let content = html! {
                nav.back aria-label="Back" { a href="/portal/requests" { "All requests" } }
                h1 { (title) }
                p { "Clients can send the same request ID several times, for example with retries." }
                (tables(&found, &keys))
            };
            Ok(layout::page(&me, Place::Requests, title, &content))
        }
    };
    Ok(page?.into_response())
}

fn not_found(me: &SignedIn) -> Response {
    (StatusCode::NOT_FOUND, nothing(me)).into_response()
}

/// The page of a request that the person does not see, or that is not kept. It does not say which.
fn nothing(me: &SignedIn) -> Page {
    let title = "Request not found";
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/requests" { "All requests" } }
        h1 { (title) }
        p { "There is no such request in this account, or you have no access to it." }
        p {
            (refused::KEPT) " Requests without a key, or with a key that is not one of the account, are not listed here."
        }
        (find_form(""))
    };
    layout::page(me, Place::Requests, title, &content)
}

#[derive(Deserialize)]
pub(crate) struct FindQuery {
    id: Option<String>,
}

/// `GET /portal/requests/find`: leads to the request with this ID.
pub(crate) async fn find(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<FindQuery>,
) -> Result<Response, PortalError> {
    let id = non_empty(query.id.as_ref()).unwrap_or_default();
    let found = Found::with_id(&gateway, &me, id).await?;
    if let Some(path) = found.only() {
        return Ok(layout::redirect(&path));
    }
    let keys = found.keys(&gateway, &me).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/requests" { "All requests" } }
        h1 { "Find a request" }
        (find_form(id))
        @if id.is_empty() {
            p.muted { "The request ID is in the header X-Request-ID of a response." }
        } @else if found.is_nothing() {
            p.empty {
                "No matching requests. Check the ID: it is in the header X-Request-ID of the response. "
                (refused::KEPT)
            }
        } @else {
            p { "Several requests have this ID." }
            (tables(&found, &keys))
        }
    };
    Ok(layout::page(&me, Place::Requests, "Find a request", &content).into_response())
}

/// The search for a request by its ID.
pub(crate) fn find_form(id: &str) -> Markup {
    html! {
        form.inline method="get" action="/portal/requests/find" role="search" {
            label { "Request ID or call ID"
                input type="search" name="id" value=(id) required placeholder="req_… or call_…" autocomplete="off";
            }
            button type="submit" { "Find" }
        }
    }
}

fn tables(found: &Found, keys: &[Key]) -> Markup {
    html! {
        @if !found.calls.is_empty() { (list::table(&found.calls, keys)) }
        @if !found.refused.is_empty() { (refused::table(&found.refused, keys)) }
    }
}
