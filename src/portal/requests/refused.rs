//! The list of refused requests, newest first, with how many there were in the last 24 hours.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{found::keys_seen, key_label, open::find_form, path, remedy};
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
        query::{ReadQuery, non_empty},
        session::SignedIn,
        sight::Sight,
        table::scrolled,
    },
};

pub(crate) const PATH: &str = "/portal/requests/refused";
const MINUTES_OF_DAY: i64 = 24 * 60;

#[derive(Deserialize)]
pub(crate) struct RefusedQuery {
    key: Option<String>,
    model: Option<String>,
    status: Option<String>,
    code: Option<String>,
    account: Option<String>,
    before: Option<String>,
}

impl RefusedQuery {
    /// The page that it asks for. `account` is for operators alone; the account of others is set by their page.
    pub(crate) fn page(&self) -> Result<RefusedPage<'_>, PortalError> {
        let status = non_empty(self.status.as_ref()).map(|text| {
            let status = text.parse().ok().filter(|status| *status > 0);
            status.ok_or_else(|| PortalError::Invalid("Invalid HTTP status.".into()))
        });
        let before = non_empty(self.before.as_ref()).map(|text| {
            let unknown = || PortalError::Invalid("There is no such page of requests.".into());
            cursor(text).ok_or_else(unknown)
        });
        Ok(RefusedPage {
            account_id: non_empty(self.account.as_ref()),
            key_id: non_empty(self.key.as_ref()),
            model: non_empty(self.model.as_ref()),
            status: status.transpose()?,
            code: non_empty(self.code.as_ref()),
            before: before.transpose()?,
            limit: paging::QUERIED,
            ..RefusedPage::default()
        })
    }
}

/// Parses a cursor: time and ID of the last record of the page before.
fn cursor(text: &str) -> Option<(i64, &str)> {
    let (at_ms, id) = text.split_once('-')?;
    Some((at_ms.parse().ok()?, id))
}

/// The URL of a list with this filter: its first page, or the page after `last`.
pub(crate) fn list_url(
    path: &str,
    page: &RefusedPage<'_>,
    last: Option<&RefusedRequest>,
) -> String {
    let named = [
        ("account", page.account_id.map(layout::encoded)),
        ("key", page.key_id.map(layout::encoded)),
        ("model", page.model.map(layout::encoded)),
        ("status", page.status.map(|status| status.to_string())),
        ("code", page.code.map(layout::encoded)),
        (
            "before",
            last.map(|last| format!("{}-{}", last.at_ms, last.id)),
        ),
    ];
    let pairs: Vec<_> = named
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
        .collect();
    format!("{path}?{}", pairs.join("&"))
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<RefusedQuery>,
) -> Result<Page, PortalError> {
    let sight = Sight::of(&gateway, &me).await?;
    let seen = sight.calls();
    let page = RefusedPage {
        account_id: None,
        ..query.page()?
    };
    let of_account = RefusedPage {
        account_id: Some(&me.account.id),
        seen: seen.map(|seen| (seen.member_id.as_str(), seen.project_ids.as_slice())),
        ..page
    };
    gateway.write_refused_now().await;
    let mut refused = gateway.backoffice.refused_page(&of_account).await?;
    let older = paging::cut(&mut refused).map(|last| list_url(PATH, &page, Some(last)));
    let newest = page.before.is_some().then(|| list_url(PATH, &page, None));
    let counts = counts_seen(&gateway, &me, &sight).await?;
    let keys = keys_seen(&gateway, &me, refused.iter().map(|one| one.key_id.as_str())).await?;
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/requests" { "All requests" } }
        h1 { "Refused requests" }
        p.muted {
            "Requests that got an error before a model was called. They cost nothing. "
            "The last 1,000 of the account are kept, for at most 30 days."
        }
        (find_form(""))
        (last_day(&counts, PATH))
        h2 { "Latest" }
        (filter_note(&page, PATH))
        @if refused.is_empty() {
            p.empty { "No matching requests." }
        } @else {
            (table(&refused, &keys))
        }
        (paging::links("requests", newest.as_deref(), older.as_deref()))
    };
    Ok(layout::page(
        &me,
        Place::Requests,
        "Refused requests",
        &content,
    ))
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
                                @let page = RefusedPage { status: Some(*status), code: Some(code), ..RefusedPage::default() };
                                tr {
                                    th scope="row" {
                                        a href=(list_url(list, &page, None)) { (remedy::of(code, *status).title) }
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

/// What the list is filtered by, and the way back to all.
pub(crate) fn filter_note(page: &RefusedPage<'_>, list: &str) -> Markup {
    let status = page.status.map(|status| status.to_string());
    let filters = [
        ("Account", page.account_id),
        ("Key", page.key_id),
        ("Model", page.model),
        ("Status", status.as_deref()),
        ("Code", page.code),
    ];
    let mut filters = filters
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .peekable();
    html! {
        @if filters.peek().is_some() {
            p {
                @for (name, value) in filters { (name) " " code { (value) } " · " }
                a href=(list) { "Show all" }
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
        @if one.path == "/portal/playground/run" { "Playground" } @else { code { (one.path) } }
    }
}

pub(crate) fn badge(one: &RefusedRequest) -> Markup {
    html! { span.badge.bad { (remedy::of(&one.code, one.status).title) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_links_keep_the_filter() {
        let query = RefusedQuery {
            key: Some("key_1".into()),
            model: Some("a&b".into()),
            status: Some("404".into()),
            code: Some(String::new()),
            account: None,
            before: Some("5-refused_x".into()),
        };
        let page = query.page().unwrap();
        assert_eq!(page.before, Some((5, "refused_x")));
        assert_eq!(
            list_url("/l", &page, None),
            "/l?key=key%5F1&model=a%26b&status=404"
        );
        for status in ["0", "-1", "x", "99999"] {
            let query = RefusedQuery {
                status: Some(status.into()),
                ..RefusedQuery {
                    key: None,
                    model: None,
                    status: None,
                    code: None,
                    account: None,
                    before: None,
                }
            };
            assert!(query.page().is_err(), "{status}");
        }
    }
}
