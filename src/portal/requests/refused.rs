//! The list of refused requests, newest first, with how many there were in the last 24 hours.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    filter::{Cursor, Filter, RequestsQuery, error_inputs},
    found::keys_seen,
    key_label,
    list::{key_select, model_input, selectable_keys},
    open::find_form,
    path, remedy,
};
use crate::{
    backoffice::{RefusedCount, RefusedPage, RefusedRequest},
    base::timestamp,
    gateway::Gateway,
    ledger::Key,
    portal::{
        error::PortalError,
        formatting::{count, moment},
        layout::{self, Page, Place},
        paging,
        query::ReadQuery,
        session::SignedIn,
        sight::Sight,
        table::scrolled,
    },
};

pub(crate) const PATH: &str = "/portal/requests/refused";
const MINUTES_OF_DAY: i64 = 24 * 60;

/// Which ones are kept. [`crate::backoffice::KEPT_OF_ACCOUNT`] and the job that deletes old ones see to it.
pub(crate) const KEPT: &str =
    "The last 1,000 refused requests of an account are kept, for at most 30 days.";

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<RequestsQuery>,
) -> Result<Page, PortalError> {
    let sight = Sight::of(&gateway, &me).await?;
    let seen = sight.calls();
    let filter = Filter {
        account: None,
        ..Filter::read_refused(&query)?
    };
    let page = RefusedPage {
        seen: seen.map(|seen| (seen.member_id.as_str(), seen.project_ids.as_slice())),
        ..filter.refused_page(Some(&me.account.id), timestamp::now(), paging::QUERIED)
    };
    gateway.write_refused_now().await;
    let mut found = gateway.backoffice.refused_page(&page).await?;
    let older = found.cut(paging::PAGE_SIZE);
    let refused = found.requests;
    let counts = counts_seen(&gateway, &me, &sight).await?;
    // Links to this page may name deleted keys.
    let of_refused = refused.iter().map(|one| one.key_id.as_str());
    let keys = keys_seen(&gateway, &me, of_refused.chain(filter.key)).await?;
    let selectable = selectable_keys(&gateway, &me).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/requests" { "All requests" } }
        h1 { "Refused requests" }
        p.muted {
            "Requests that got an error before a model was called. They cost nothing. " (KEPT) " "
            span data-zone-note { "Times are in UTC." }
        }
        (find_form(""))
        (last_day(&counts, PATH))
        h2 { "Latest" }
        form.inline method="get" action=(PATH) {
            (filter.times.inputs())
            (key_select(filter.key, &selectable, &keys))
            (model_input(&gateway, filter.model))
            (error_inputs(filter.status, filter.code))
            button.primary type="submit" { "Show" }
            @if !filter.is_any() { a.button href=(PATH) { "Show all" } }
        }
        @if refused.is_empty() {
            p.empty { "No matching requests." }
        } @else {
            (table(&refused, &keys))
        }
        (links(&filter, PATH, older))
    };
    Ok(layout::page(
        &me,
        Place::Requests,
        "Refused requests",
        &content,
    ))
}

/// Links to the first page of a list, and to the one that begins at `older`. The console's list has them too.
pub(crate) fn links(filter: &Filter<'_>, list: &str, older: Option<(i64, String)>) -> Markup {
    let newest = filter.before.is_some().then(|| filter.path(list, None));
    let older = older.map(|(at_ms, id)| {
        let before = Cursor::after_refused(at_ms, &id);
        filter.path(list, Some(before))
    });
    paging::links("requests", newest.as_deref(), older.as_deref())
}

/// The counts of the last 24 hours of the keys that the person sees.
async fn counts_seen(
    gateway: &Gateway,
    me: &SignedIn,
    sight: &Sight,
) -> Result<Vec<RefusedCount>, PortalError> {
    let since = this_minute() - MINUTES_OF_DAY;
    let account_id = Some(me.account.id.as_str());
    let mut counts = gateway.backoffice.refused_counts(account_id, since).await?;
    if sight.calls().is_some() {
        let ids = counts.iter().map(|count| count.key_id.as_str());
        let keys = gateway.ledger.keys_with_ids(ids).await?;
        counts.retain(|count| {
            let key = keys.iter().find(|key: &&Key| key.id == count.key_id);
            key.is_some_and(|key| {
                let payer = &key.payer;
                sight.sees(payer.member_id.as_deref(), payer.project_id.as_deref())
            })
        });
    }
    Ok(counts)
}

/// Minutes since 1970.
pub(crate) fn this_minute() -> i64 {
    timestamp::now_ms().div_euclid(60_000)
}

/// A table of how many requests were refused in the last 24 hours, by status and code. The console has it too.
pub(crate) fn last_day(counts: &[RefusedCount], list: &str) -> Markup {
    let mut sums: Vec<(u16, &str, i64)> = Vec::new();
    for RefusedCount {
        status,
        code,
        requests,
        ..
    } in counts
    {
        let same = |sum: &&mut (u16, &str, i64)| (sum.0, sum.1) == (*status, code.as_str());
        match sums.iter_mut().find(same) {
            Some(sum) => sum.2 += requests,
            None => sums.push((*status, code, *requests)),
        }
    }
    sums.sort_by_key(|(_, _, requests)| std::cmp::Reverse(*requests));
    html! {
        section {
            h2 { "Last 24 hours" }
            @if sums.is_empty() {
                p.empty { "No requests were refused in the last 24 hours." }
            } @else {
                (scrolled("Refused in the last 24 hours", &html! {
                    table {
                        caption { "Refused in the last 24 hours" }
                        thead {
                            tr {
                                th scope="col" { "Reason" }
                                th scope="col" { "Code" }
                                th.number scope="col" { "Status" }
                                th.number scope="col" { "Requests" }
                            }
                        }
                        tbody {
                            @for (status, code, requests) in &sums {
                                @let same = Filter { status: Some(*status), code: Some(code), ..Filter::default() };
                                tr {
                                    th scope="row" {
                                        a href=(same.path(list, None)) { (remedy::of(code, *status).title) }
                                    }
                                    td { code { (code) } }
                                    td.number { (status) }
                                    td.number { (count(requests.unsigned_abs())) }
                                }
                            }
                        }
                    }
                }))
            }
        }
    }
}

/// A table of refused requests with their keys.
pub(crate) fn table(refused: &[RefusedRequest], keys: &[Key]) -> Markup {
    html! {
        (scrolled("Refused requests", &html! {
            table {
                caption { "Refused requests, newest first" }
                thead {
                    tr {
                        th scope="col" { "When" }
                        th scope="col" { "Key" }
                        th scope="col" { "Model" }
                        th scope="col" { "Endpoint" }
                        th.number scope="col" { "Status" }
                        th scope="col" { "Code" }
                        th scope="col" { "Message" }
                        th scope="col" { "What to do" }
                        th scope="col" { "Reason" }
                    }
                }
                tbody {
                    @for one in refused { (row(one, keys)) }
                }
            }
        }))
    }
}

fn row(one: &RefusedRequest, keys: &[Key]) -> Markup {
    html! {
        tr {
            th scope="row" {
                a href=(path(&one.id)) { (moment(one.at_ms.div_euclid(1_000))) }
            }
            td { (key_label(keys, &one.key_id)) }
            td { (model(one)) }
            td { (endpoint(one)) }
            td.number { (one.status) }
            td { code { (one.code) } }
            td.words { (one.message) }
            td.words { (remedy::of(&one.code, one.status).brief()) }
            td { (badge(one)) }
        }
    }
}

pub(crate) fn model(one: &RefusedRequest) -> Markup {
    html! {
        @match one.model.as_deref() {
            Some(model) => { code { (model) } },
            None => "–",
        }
    }
}

/// The path of the request, as developers know it.
pub(crate) fn endpoint(one: &RefusedRequest) -> Markup {
    html! {
        @if one.path.starts_with("/portal/playground") { "Playground" } @else { code { (one.path) } }
    }
}

pub(crate) fn badge(one: &RefusedRequest) -> Markup {
    html! { span.badge.bad { (remedy::of(&one.code, one.status).title) } }
}
