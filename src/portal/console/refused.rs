//! Refused requests of all accounts: the list, and the details of one.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    access::SignedInOperator,
    account_filter::AccountFilter,
    account_names::AccountNames,
    frame::{self, Place},
    paging, requests,
};
use crate::{
    backoffice::{RefusedFound, RefusedRequest},
    base::timestamp,
    gateway::Gateway,
    portal::{
        error::PortalError,
        formatting::moment,
        layout::{self, Page},
        query::ReadQuery,
        requests::{
            filter::{Filter, RequestsQuery, error_inputs},
            list::{model_input, searched},
            refused as customers,
            refused_details::{HowOften, advice, facts, verdict},
        },
        table::scrolled,
    },
};

const PATH: &str = "/portal/console/requests/refused";
const MINUTES_OF_DAY: i64 = 24 * 60;

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<RequestsQuery>,
) -> Result<Page, PortalError> {
    let filter = Filter::read_refused(&query)?;
    let account = AccountFilter::find(&gateway, filter.account).await?;
    gateway.write_refused_now().await;
    let mut found = RefusedFound::default();
    let mut counts = Vec::new();
    if let Ok(account_id) = account.id() {
        let page = filter.refused_page(account_id, timestamp::now(), paging::QUERIED);
        found = gateway.backoffice.refused_page(&page).await?;
        let since = customers::this_minute() - MINUTES_OF_DAY;
        let counted = gateway.backoffice.refused_counts(account_id, since);
        counts = counted.await?;
    }
    let searched_to_ms = found.searched_to_ms;
    let older = found.cut(paging::PAGE_SIZE);
    let refused = found.requests;
    let ids = refused.iter().map(|one| one.account_id.as_str());
    let names = AccountNames::read(&gateway, ids).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/console/requests" { "All requests" } }
        h1 { "Refused requests" }
        p.muted {
            "Requests with a known API key that got an error before a model was called. " (customers::KEPT) " "
            span data-zone-note { "Times are in UTC." }
        }
        (requests::find_form(""))
        (customers::last_day(&counts, PATH))
        h2 { "Latest" }
        (filter_form(&gateway, &filter))
        @if let Err(message) = account.id() {
            p.problem role="alert" { (message) }
        } @else {
            (table(&refused, &names))
            (searched(searched_to_ms))
        }
        (customers::links(&filter, PATH, older))
    };
    Ok(frame::page(
        &me,
        Place::Requests,
        "Refused requests",
        &content,
    ))
}

fn filter_form(gateway: &Gateway, filter: &Filter<'_>) -> Markup {
    html! {
        form.inline method="get" action=(PATH) {
            (filter.times.inputs())
            (requests::field("Account", "account", filter.account, "ID or email"))
            (requests::field("Key", "key", filter.key, "key_…"))
            (model_input(gateway, filter.model))
            (error_inputs(filter.status, filter.code))
            button type="submit" { "Show" }
            @if !filter.is_any() { a.button href=(PATH) { "Show all" } }
        }
    }
}

/// The page of a refused request.
pub(super) async fn details(
    gateway: &Gateway,
    me: &SignedInOperator,
    one: &RefusedRequest,
) -> Result<Page, PortalError> {
    let often = HowOften::of(gateway, one).await?;
    let same = Filter {
        account: Some(&one.account_id),
        key: Some(&one.key_id),
        status: Some(one.status),
        code: Some(&one.code),
        ..Filter::default()
    };
    let names = AccountNames::read(gateway, [one.account_id.as_str()]).await?;
    let content = html! {
        nav.back aria-label="Back" { a href=(PATH) { "Refused requests" } }
        h1 { "Refused request " code.whole { (one.id) } }
        (verdict(one))
        section { (advice(one)) }
        dl {
            dt { "Account" } dd { (names.link(&one.account_id)) }
            dt { "Key" } dd { a href={ "/portal/console/requests?key=" (layout::encoded(&one.key_id)) } { code { (one.key_id) } } }
            (facts(one))
        }
        (often.shown(&same.path(PATH, None)))
    };
    Ok(frame::page(
        me,
        Place::Requests,
        "Refused request",
        &content,
    ))
}

pub(super) fn table(refused: &[RefusedRequest], names: &AccountNames) -> Markup {
    if refused.is_empty() {
        return html! { p.empty { "No matching requests." } };
    }
    let table = html! {
        table {
            caption { "Refused requests, newest first" }
            thead { tr {
                th scope="col" { "Time" }
                th scope="col" { "Account" }
                th scope="col" { "Model" }
                th scope="col" { "Endpoint" }
                th.number scope="col" { "Status" }
                th scope="col" { "Code" }
                th scope="col" { "Message" }
            } }
            tbody { @for one in refused { (row(one, names)) } }
        }
    };
    scrolled("Refused requests", &table)
}

fn row(one: &RefusedRequest, names: &AccountNames) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(requests::path(&one.id)) { (moment(one.at_ms.div_euclid(1_000))) } }
            td { (names.link(&one.account_id)) }
            td { (customers::model(one)) }
            td { (customers::endpoint(one)) }
            td.number { (one.status) }
            td { span.badge.bad { (one.code) } }
            td.failure { (one.message) }
        }
    }
}
