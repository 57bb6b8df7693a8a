//! The list of requests, newest first, with filters.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{key_label, outcome, path};
use crate::{
    catalog::Plan,
    gateway::Gateway,
    ledger::{Call, CallId, CallsPage, Key, KeyFilter, KeysPage, Outcome},
    portal::{
        error::PortalError,
        formatting,
        keys::shown_name,
        layout::{self, Page, Place},
        query::{ReadQuery, non_empty},
        session::SignedIn,
        sight::Sight,
    },
};

const PAGE_SIZE: usize = 50;
/// Most keys that the filter offers, newest first.
const SELECTABLE_KEYS: usize = 200;

#[derive(Deserialize)]
pub(crate) struct RequestsQuery {
    key: Option<String>,
    model: Option<String>,
    outcome: Option<String>,
    before: Option<String>,
}

/// The validated query.
#[derive(Clone, Copy)]
struct Filter<'a> {
    key: Option<&'a str>,
    model: Option<&'a str>,
    outcome: Option<Outcome>,
    before: Option<Cursor>,
}

impl<'a> Filter<'a> {
    fn read(query: &'a RequestsQuery) -> Result<Self, PortalError> {
        let outcome = non_empty(query.outcome.as_ref()).map(|text| {
            Outcome::parse(text)
                .ok_or_else(|| PortalError::Invalid("No request ends in that way.".into()))
        });
        let before = non_empty(query.before.as_ref()).map(|text| {
            Cursor::parse(text)
                .ok_or_else(|| PortalError::Invalid("There is no such page of requests.".into()))
        });
        Ok(Self {
            key: non_empty(query.key.as_ref()),
            model: non_empty(query.model.as_ref()),
            outcome: outcome.transpose()?,
            before: before.transpose()?,
        })
    }

    fn is_any(&self) -> bool {
        self.key.is_none() && self.model.is_none() && self.outcome.is_none()
    }

    /// The URL of the list with this filter: its first page, or the page after `last`.
    fn path(&self, last: Option<Cursor>) -> String {
        let outcome = self.outcome.map(Outcome::as_str);
        let named = [
            ("key", self.key.map(layout::encoded)),
            ("model", self.model.map(layout::encoded)),
            ("outcome", outcome.map(str::to_owned)),
            ("before", last.map(|last| last.to_string())),
        ];
        let pairs: Vec<_> = named
            .into_iter()
            .filter_map(|(name, value)| Some(format!("{name}={}", value?)))
            .collect();
        format!("/portal/requests?{}", pairs.join("&"))
    }
}

/// The last request of a page, after which the next page starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cursor {
    ended_ms: i64,
    id: CallId,
}

impl Cursor {
    fn of(call: &Call) -> Self {
        Self {
            ended_ms: call.ended_ms,
            id: call.id,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (ended_ms, id) = text.split_once('-')?;
        Some(Self {
            ended_ms: ended_ms.parse().ok()?,
            id: CallId::parse(id)?,
        })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.ended_ms, self.id)
    }
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<RequestsQuery>,
) -> Result<Page, PortalError> {
    let filter = Filter::read(&query)?;
    let sight = Sight::of(&gateway, &me).await?;
    let page = CallsPage {
        account_id: Some(&me.account.id),
        key_id: filter.key,
        model: filter.model,
        outcome: filter.outcome,
        seen: sight.calls(),
        before: filter.before.map(|last| (last.ended_ms, last.id)),
        limit: PAGE_SIZE + 1,
    };
    let selectable = KeysPage {
        account_id: &me.account.id,
        filter: KeyFilter::Live,
        member_id: me.only_own_keys(),
        before: None,
        limit: SELECTABLE_KEYS,
    };
    let (mut calls, selectable) = tokio::try_join!(
        gateway.ledger.calls_page(&page),
        gateway.ledger.keys_page(selectable)
    )?;
    let more = calls.len() > PAGE_SIZE;
    calls.truncate(PAGE_SIZE);
    let next = calls.last().filter(|_| more).map(Cursor::of);
    // Calls, and links to this page, may name deleted keys.
    let named = calls.iter().map(|call| call.payer.key_id.as_str());
    let keys = gateway.ledger.keys_with_ids(named.chain(filter.key));
    let mut keys = keys.await?;
    keys.retain(|key| key.account_id == me.account.id && me.sees_key(key));
    let content = html! {
        h1 { "Requests" }
        p.muted { "Prompts and responses are not part of this list." }
        (form(&gateway, &filter, &selectable, &keys))
        @if calls.is_empty() {
            (nothing(&filter))
        } @else {
            (table(&calls, &keys))
        }
        nav.pages aria-label="Pages" {
            @if filter.before.is_some() {
                a href=(filter.path(None)) { "Newest requests" }
            }
            @if let Some(last) = next {
                a rel="next" href=(filter.path(Some(last))) { "Older requests" }
            }
        }
    };
    Ok(layout::page(&me, Place::Requests, "Requests", &content))
}

fn nothing(filter: &Filter<'_>) -> Markup {
    html! {
        p.empty {
            @if filter.before.is_some() {
                "There are no older requests."
            } @else if filter.is_any() {
                "There are no requests yet. "
                a href="/portal/keys" { "Create a key" }
                " and send the first one."
            } @else {
                "No request is like that. "
                a href="/portal/requests" { "Show all" }
            }
        }
    }
}

/// The form to filter by key, model and ending. `named` has the key of the filter, also if it is deleted.
fn form(gateway: &Gateway, filter: &Filter<'_>, selectable: &[Key], named: &[Key]) -> Markup {
    let models = gateway.published_models(Plan::ALL);
    let is_selected = |key: &&Key| filter.key == Some(key.id.as_str());
    let other = match selectable.iter().find(is_selected) {
        Some(_) => None,
        None => named.iter().find(is_selected),
    };
    html! {
        form.inline method="get" action="/portal/requests" {
            label { "Key"
                select name="key" {
                    option value="" { "All keys" }
                    @for key in selectable.iter().chain(other) {
                        option value=(key.id) selected[is_selected(&key)] {
                            (shown_name(key)) " (" (key.prefix) "…)"
                        }
                    }
                }
            }
            label { "Model"
                input type="text" name="model" list="models" placeholder="All models"
                    autocomplete="off" value=(filter.model.unwrap_or_default());
                datalist #models {
                    @for model in &models { option value=(model.id) {} }
                }
            }
            label { "Ending"
                select name="outcome" {
                    option value="" { "All endings" }
                    @for one in Outcome::ALL {
                        option value=(one.as_str()) selected[filter.outcome == Some(one)] {
                            (outcome::label(one))
                        }
                    }
                }
            }
            button.primary type="submit" { "Show" }
            @if !filter.is_any() {
                a.button href="/portal/requests" { "Show all" }
            }
        }
    }
}

/// A table of requests with their keys. The overview page shows it too.
pub(crate) fn table(calls: &[Call], keys: &[Key]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Requests" {
            table {
                caption { "Requests, newest first" }
                thead {
                    tr {
                        th scope="col" { "When" }
                        th scope="col" { "Key" }
                        th scope="col" { "Model" }
                        th.number scope="col" { "Input tokens" }
                        th.number scope="col" { "Output tokens" }
                        th.number scope="col" { "Cost" }
                        th.number scope="col" { "Took" }
                        th scope="col" { "Ending" }
                    }
                }
                tbody {
                    @for call in calls { (row(call, keys)) }
                }
            }
        }
    }
}

fn row(call: &Call, keys: &[Key]) -> Markup {
    let usage = call.charged.map(|charged| charged.usage);
    let tokens = |count: Option<u32>| match count {
        Some(count) => formatting::count(count.into()),
        None => "–".into(),
    };
    let cost = call.charged.map(|charged| charged.cost);
    html! {
        tr {
            th scope="row" {
                a href=(path(call.id)) { (formatting::moment(call.ended_ms.div_euclid(1_000))) }
            }
            td { (key_label(keys, &call.payer.key_id)) }
            td { code { (call.model) } }
            td.number { (tokens(usage.map(|usage| usage.prompt))) }
            td.number { (tokens(usage.map(|usage| usage.completion))) }
            td.number { (formatting::money(cost.unwrap_or_default())) }
            td.number { (formatting::duration(call.ended_ms - call.admitted_ms)) }
            td { (outcome::badge(call.outcome)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_parses_as_it_was_written() {
        let cursor = Cursor {
            ended_ms: 1_800_000_000_007,
            id: CallId(943_718_400_000_000_000),
        };
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        for wrong in [
            "",
            "-",
            "1-",
            "1-call_",
            "x-call_0000000000000",
            "call_0000000000000",
            "-1-call_0000000000000",
        ] {
            assert_eq!(Cursor::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn page_links_keep_the_filter() {
        let query = RequestsQuery {
            key: Some("key_1".into()),
            model: Some(" a&b=\"c ".into()),
            outcome: Some("no_usage".into()),
            before: Some(String::new()),
        };
        let filter = Filter::read(&query).unwrap();
        let last = Cursor {
            ended_ms: 5,
            id: CallId(0),
        };
        assert_eq!(
            filter.path(Some(last)),
            "/portal/requests?key=key%5F1&model=a%26b%3D%22c&outcome=no_usage\
             &before=5-call_0000000000000"
        );
        assert!(!filter.path(None).contains("before"));
    }
}
