//! The latest requests of all accounts, refused ones included, on the live page: filtered, refreshed by htmx, and paused by
//! a link.

use maud::{Markup, html};
use serde::Deserialize;

use super::{account_filter::AccountFilter, account_names::AccountNames, requests};
use crate::{
    gateway::Gateway,
    portal::{
        error::PortalError,
        formatting::moment,
        query::non_empty,
        requests::{
            filter::{Filter, RequestsQuery},
            merged::{Of, Requests},
            operator_label,
        },
    },
};

/// Rows that are shown.
const SHOWN: usize = 25;
const PAGE: &str = "/portal/console";
const FRAGMENT: &str = "/portal/console/live/requests";

#[derive(Deserialize)]
pub(crate) struct TailQuery {
    paused: Option<String>,
    #[serde(flatten)]
    filter: RequestsQuery,
}

impl TailQuery {
    /// What its form has of the filter of a list of requests.
    fn filter(&self) -> Result<Filter<'_>, PortalError> {
        let read = Filter::read(&self.filter)?;
        Ok(Filter {
            account: read.account,
            model: read.model,
            upstream: read.upstream,
            ended: read.ended,
            ..Filter::default()
        })
    }

    fn is_paused(&self) -> bool {
        non_empty(self.paused.as_ref()).is_some()
    }
}

/// The form of the filter and the requests.
pub(super) async fn section(gateway: &Gateway, query: &TailQuery) -> Result<Markup, PortalError> {
    let filter = query.filter()?;
    let rows = rows(gateway, &filter).await?;
    let is_paused = query.is_paused();
    Ok(html! {
        h2 #latest { "Latest requests" }
        (form(gateway, &filter, is_paused))
        p {
            a.button href=(page(&filter, !is_paused)) { @if is_paused { "Resume" } @else { "Pause" } }
            " " span.muted { @if is_paused { "Paused." } @else { "Refreshed every two seconds." } }
        }
        @if is_paused { div #tail { (rows) } }
        @else { div #tail hx-get=(filter.path(FRAGMENT, None)) hx-trigger="every 2s" hx-swap="innerHTML" { (rows) } }
    })
}

/// The requests alone.
pub(super) async fn fragment(gateway: &Gateway, query: &TailQuery) -> Result<Markup, PortalError> {
    rows(gateway, &query.filter()?).await
}

/// The URL of the page with this filter.
fn page(filter: &Filter<'_>, is_paused: bool) -> String {
    let path = filter.path(PAGE, None);
    let separator = if path.contains('?') { '&' } else { '?' };
    let paused = is_paused.then(|| format!("{separator}paused=yes"));
    format!("{path}{}#latest", paused.unwrap_or_default())
}

/// The latest requests that the filter selects.
async fn rows(gateway: &Gateway, filter: &Filter<'_>) -> Result<Markup, PortalError> {
    let account = AccountFilter::find(gateway, filter.account).await?;
    let account_id = match account.id() {
        Ok(account_id) => account_id,
        Err(message) => return Ok(html! { p.empty { (message) } }),
    };
    let of = Of {
        account_id,
        ..Of::default()
    };
    let found = Requests::read(gateway, filter, of, SHOWN).await?;
    let names = AccountNames::read(gateway, found.account_ids()).await?;
    Ok(html! {
        (requests::listed(&found.rows, &names))
        @if let Some(ms) = found.searched_to_ms {
            p.muted { "Searched back to " (moment(ms.div_euclid(1_000))) "." }
        }
    })
}

fn form(gateway: &Gateway, filter: &Filter<'_>, is_paused: bool) -> Markup {
    let routes = gateway.routes();
    html! {
        form.inline method="get" action={ (PAGE) "#latest" } {
            @if is_paused { input type="hidden" name="paused" value="yes"; }
            label { "Account "
                span.muted { "(ID or email)" }
                input type="text" name="account" value=(filter.account.unwrap_or_default()) placeholder="all" autocomplete="off";
            }
            label { "Model"
                select name="model" {
                    option value="" { "All" }
                    @for one in routes.catalog.models() { option value=(one.id) selected[filter.model == Some(one.id.as_str())] { (one.id) } }
                }
            }
            label { "Upstream"
                select name="upstream" {
                    option value="" { "All" }
                    @for one in &routes.providers { option value=(one) selected[filter.upstream == Some(one.as_str())] { (one) } }
                }
            }
            label { "Outcome"
                select name="outcome" { (filter.ended.options(operator_label)) }
            }
            button type="submit" { "Show" }
            @if !filter.is_any() { a.button href=(page(&Filter::default(), is_paused)) { "Show all" } }
        }
    }
}
