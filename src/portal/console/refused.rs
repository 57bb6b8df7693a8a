//! Refused requests of all accounts: the list, and the details of one.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    access::SignedInOperator,
    accounts,
    frame::{self, Place},
    paging, requests,
};
use crate::{
    backoffice::{RefusedPage, RefusedRequest},
    gateway::Gateway,
    portal::{
        error::PortalError,
        formatting::moment,
        layout::{self, Page},
        query::ReadQuery,
        requests::refused::{self as customers, RefusedQuery, list_url},
        requests::refused_details::{HowOften, facts, verdict},
        table::scrolled,
    },
};

const PATH: &str = "/portal/console/requests/refused";
const MINUTES_OF_DAY: i64 = 24 * 60;

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<RefusedQuery>,
) -> Result<Page, PortalError> {
    let page = query.page()?;
    gateway.write_refused_now().await;
    let mut refused = gateway.backoffice.refused_page(&page).await?;
    let older = paging::cut(&mut refused).map(|last| list_url(PATH, &page, Some(last)));
    let newest = page.before.is_some().then(|| list_url(PATH, &page, None));
    let since = customers::this_minute() - MINUTES_OF_DAY;
    let counts = gateway.backoffice.refused_counts(page.account_id, since);
    let counts = counts.await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/console/requests" { "All requests" } }
        h1 { "Refused requests" }
        p.muted { "Requests with a known API key that got an error before a model was called. The last 1,000 of each account are kept, for at most 30 days." }
        (requests::find_form(""))
        (customers::last_day(&counts, PATH))
        h2 { "Latest" }
        (customers::filter_note(&page, PATH))
        (table(&refused))
        (paging::links("requests", newest.as_deref(), older.as_deref()))
    };
    Ok(frame::page(
        &me,
        Place::Requests,
        "Refused requests",
        &content,
    ))
}

/// The page of a refused request.
pub(super) async fn details(
    gateway: &Gateway,
    me: &SignedInOperator,
    one: &RefusedRequest,
) -> Result<Page, PortalError> {
    let often = HowOften::of(gateway, one).await?;
    let page = RefusedPage {
        account_id: Some(&one.account_id),
        key_id: Some(&one.key_id),
        status: Some(one.status),
        code: Some(&one.code),
        ..RefusedPage::default()
    };
    let content = html! {
        nav.back aria-label="Back" { a href=(PATH) { "Refused requests" } }
        h1 { "Refused request " code.whole { (one.id) } }
        (verdict(one))
        dl {
            dt { "Account" } dd { a href=(accounts::path(&one.account_id)) { code { (one.account_id) } } }
            dt { "Key" } dd { a href={ "/portal/console/requests?key=" (layout::encoded(&one.key_id)) } { code { (one.key_id) } } }
            (facts(one))
        }
        (often.shown(&list_url(PATH, &page, None)))
    };
    Ok(frame::page(
        me,
        Place::Requests,
        "Refused request",
        &content,
    ))
}

pub(super) fn table(refused: &[RefusedRequest]) -> Markup {
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
            tbody { @for one in refused { (row(one)) } }
        }
    };
    scrolled("Refused requests", &table)
}

fn row(one: &RefusedRequest) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(requests::path(&one.id)) { (moment(one.at_ms.div_euclid(1_000))) } }
            td { a href=(accounts::path(&one.account_id)) { code { (one.account_id) } } }
            td { (customers::model(one)) }
            td { (customers::endpoint(one)) }
            td.number { (one.status) }
            td { span.badge.bad { (one.code) } }
            td.failure { (one.message) }
        }
    }
}
