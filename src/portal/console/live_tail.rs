//! The latest requests of all accounts, on the live page: filtered, refreshed by htmx, and paused by a link.

use maud::{Markup, html};
use serde::Deserialize;

use super::{account_filter::AccountFilter, requests};
use crate::{
    gateway::Gateway,
    ledger::{CallsPage, Outcome},
    portal::{error::PortalError, layout, query::non_empty, requests::operator_label},
};

/// Rows that are shown.
const SHOWN: usize = 25;

#[derive(Default, Deserialize)]
pub(crate) struct Filter {
    account: Option<String>,
    model: Option<String>,
    upstream: Option<String>,
    outcome: Option<String>,
    paused: Option<String>,
}

impl Filter {
    fn outcome(&self) -> Result<Option<Outcome>, PortalError> {
        let Some(text) = non_empty(self.outcome.as_ref()) else {
            return Ok(None);
        };
        let unknown = || PortalError::Invalid("Unknown outcome.".into());
        Outcome::parse(text).map(Some).ok_or_else(unknown)
    }

    fn is_paused(&self) -> bool {
        non_empty(self.paused.as_ref()).is_some()
    }

    /// The query string of this filter.
    fn query(&self, paused: bool) -> String {
        let fields = [
            ("account", &self.account),
            ("model", &self.model),
            ("upstream", &self.upstream),
            ("outcome", &self.outcome),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| {
            Some(format!(
                "{name}={}",
                layout::encoded(non_empty(value.as_ref())?)
            ))
        });
        let paused = paused.then(|| "paused=yes".to_owned());
        fields.chain(paused).collect::<Vec<_>>().join("&")
    }
}

/// The form of the filter and the requests.
pub(super) async fn section(gateway: &Gateway, filter: &Filter) -> Result<Markup, PortalError> {
    let rows = rows(gateway, filter).await?;
    let refreshed = format!("/portal/console/live/requests?{}", filter.query(false));
    let is_paused = filter.is_paused();
    let other = format!("/portal/console?{}#latest", filter.query(!is_paused));
    Ok(html! {
        h2 #latest { "Latest requests" }
        (form(gateway, filter)?)
        p {
            a.button href=(other) { @if is_paused { "Resume" } @else { "Pause" } }
            " " span.muted { @if is_paused { "Paused." } @else { "Refreshed every two seconds." } }
        }
        @if is_paused { div #tail { (rows) } }
        @else { div #tail hx-get=(refreshed) hx-trigger="every 2s" hx-swap="innerHTML" { (rows) } }
    })
}

/// The latest requests that the filter selects.
pub(super) async fn rows(gateway: &Gateway, filter: &Filter) -> Result<Markup, PortalError> {
    let account = AccountFilter::find(gateway, non_empty(filter.account.as_ref())).await?;
    let account_id = match account.id() {
        Ok(account_id) => account_id,
        Err(message) => return Ok(html! { p.empty { (message) } }),
    };
    let page = CallsPage {
        account_id,
        model: non_empty(filter.model.as_ref()),
        upstream: non_empty(filter.upstream.as_ref()),
        outcome: filter.outcome()?,
        limit: SHOWN,
        ..CallsPage::default()
    };
    let calls = gateway.ledger.calls_page(&page).await?.calls;
    let names = requests::names(gateway, &calls).await?;
    Ok(requests::table(&calls, &names))
}

fn form(gateway: &Gateway, filter: &Filter) -> Result<Markup, PortalError> {
    let routes = gateway.routes();
    let outcome = filter.outcome()?;
    let (model, upstream) = (
        non_empty(filter.model.as_ref()),
        non_empty(filter.upstream.as_ref()),
    );
    Ok(html! {
        form.inline method="get" action="/portal/console#latest" {
            label { "Account "
                span.muted { "(ID or email)" }
                input type="text" name="account" value=(non_empty(filter.account.as_ref()).unwrap_or_default()) placeholder="all" autocomplete="off";
            }
            label { "Model"
                select name="model" {
                    option value="" { "all" }
                    @for one in routes.catalog.models() { option value=(one.id) selected[model == Some(one.id.as_str())] { (one.id) } }
                }
            }
            label { "Upstream"
                select name="upstream" {
                    option value="" { "all" }
                    @for one in &routes.providers { option value=(one) selected[upstream == Some(one.as_str())] { (one) } }
                }
            }
            label { "Status"
                select name="outcome" {
                    option value="" { "all" }
                    @for one in Outcome::ALL { option value=(one.as_str()) selected[outcome == Some(one)] { (operator_label(one)) } }
                }
            }
            button type="submit" { "Show" }
            @if !filter.query(false).is_empty() { a.button href="/portal/console#latest" { "Show all" } }
        }
    })
}
