//! The list of requests, newest first, with filters.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};

use super::{
    filter::{Filter, RequestsQuery, error_inputs},
    key_label,
    merged::{Listed, Of, Requests},
    open::find_form,
    outcome, path, refused,
};
use crate::{
    backoffice::{Person, RefusedRequest},
    base::money::NanoUsd,
    catalog::Plan,
    gateway::Gateway,
    ledger::{Call, DEFAULT_PROJECT, Key, KeyFilter, KeysPage, Project},
    portal::{
        error::PortalError,
        formatting,
        keys::shown_name,
        layout::{self, Page, Place},
        paging, projects,
        query::ReadQuery,
        session::SignedIn,
        sight::Sight,
        table::scrolled,
    },
};

pub(crate) const LIST: &str = "/portal/requests";
pub(crate) const CSV: &str = "/portal/requests.csv";
/// Most keys that the filter offers, newest first.
const SELECTABLE_KEYS: usize = 200;

/// What the form offers to select.
struct Selectable {
    keys: Vec<Key>,
    projects: Vec<Project>,
    /// Of the account, for owners alone.
    members: Vec<Person>,
}

impl Selectable {
    async fn read(gateway: &Gateway, me: &SignedIn) -> Result<Self, PortalError> {
        Ok(Self {
            keys: selectable_keys(gateway, me).await?,
            projects: gateway.ledger.projects(&me.account.id).await?,
            members: if me.is_owner() {
                gateway.backoffice.people_of(&me.account.id).await?
            } else {
                Vec::new()
            },
        })
    }
}

/// The keys that a filter offers.
pub(super) async fn selectable_keys(
    gateway: &Gateway,
    me: &SignedIn,
) -> Result<Vec<Key>, PortalError> {
    let page = KeysPage {
        account_id: &me.account.id,
        filter: KeyFilter::Live,
        member_id: me.only_own_keys(),
        before: None,
        limit: SELECTABLE_KEYS,
    };
    Ok(gateway.ledger.keys_page(page).await?)
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<RequestsQuery>,
) -> Result<Page, PortalError> {
    let filter = own(Filter::read(&query)?, &me);
    let sight = Sight::of(&gateway, &me).await?;
    let of = Of {
        account_id: Some(&me.account.id),
        seen: sight.calls(),
    };
    let found = Requests::read(&gateway, &filter, of, paging::PAGE_SIZE).await?;
    let selectable = Selectable::read(&gateway, &me).await?;
    // Requests, and links to this page, may name deleted keys.
    let keys = gateway
        .ledger
        .keys_with_ids(found.key_ids().chain(filter.key));
    let mut keys = keys.await?;
    keys.retain(|key| key.account_id == me.account.id && me.sees_key(key));
    let newest = filter.before.is_some().then(|| filter.path(LIST, None));
    let older = found.next().map(|last| filter.path(LIST, Some(last)));
    let content = html! {
        h1 { "Requests" }
        p.muted { "Prompts and responses are not stored with requests. " span data-zone-note { "Times are in UTC." } }
        (find_form(""))
        p { a href=(refused::PATH) { "Why requests were refused" } }
        (filter.presets(LIST))
        (form(&gateway, &filter, &selectable, &keys))
        @if found.rows.is_empty() {
            (nothing(&filter, &found))
        } @else {
            (listed(&found.rows, &keys))
            (searched(found.searched_to_ms))
        }
        (paging::links("requests", newest.as_deref(), older.as_deref()))
        p { a.button href=(filter.path(CSV, None)) download { "Download as CSV" } }
    };
    Ok(layout::page(&me, Place::Requests, "Requests", &content))
}

/// The filter without what is for operators, and of members for owners alone.
pub(super) fn own<'a>(filter: Filter<'a>, me: &SignedIn) -> Filter<'a> {
    Filter {
        account: None,
        upstream: None,
        member: filter.member.filter(|_| me.is_owner()),
        ..filter
    }
}

/// Says how far the page has searched, if it did not search all.
pub(crate) fn searched(searched_to_ms: Option<i64>) -> Markup {
    html! {
        @if let Some(ms) = searched_to_ms {
            p.muted {
                "Searched back to " (formatting::moment(ms.div_euclid(1_000)))
                ". There may be older requests; a period makes the search faster."
            }
        }
    }
}

fn nothing(filter: &Filter<'_>, found: &Requests) -> Markup {
    html! {
        @if found.searched_to_ms.is_some() {
            p.empty { "No matching requests so far." }
            (searched(found.searched_to_ms))
        } @else if filter.before.is_some() {
            p.empty { "There are no older requests." }
        } @else if filter.is_any() {
            p.empty {
                "There are no requests yet. "
                a href="/portal/keys" { "Create a key" }
                " and send the first one."
            }
        } @else {
            p.empty { "No matching requests. " a href=(LIST) { "Show all" } }
        }
    }
}

/// The form of the filter. `named` has its key.
fn form(gateway: &Gateway, filter: &Filter<'_>, selectable: &Selectable, named: &[Key]) -> Markup {
    html! {
        form.inline method="get" action=(LIST) {
            (filter.times.inputs())
            (key_select(filter.key, &selectable.keys, named))
            (model_input(gateway, filter.model))
            label { "Outcome"
                select name="outcome" { (filter.ended.options(outcome::label)) }
            }
            details open[filter.is_narrow()] {
                summary { "More filters" }
                (project_select(filter, &selectable.projects))
                @if !selectable.members.is_empty() { (member_select(filter, &selectable.members)) }
                label { "Session of a coding agent"
                    input type="text" name="session" placeholder="All sessions" autocomplete="off"
                        value=(filter.session.unwrap_or_default());
                }
                (error_inputs(filter.status, filter.code))
            }
            button.primary type="submit" { "Show" }
            @if !filter.is_any() {
                a.button href=(LIST) { "Show all" }
            }
        }
    }
}

/// A field for a key. `named` has the chosen one, also if it is deleted.
pub(super) fn key_select(chosen: Option<&str>, selectable: &[Key], named: &[Key]) -> Markup {
    let is_selected = |key: &&Key| chosen == Some(key.id.as_str());
    let other = match selectable.iter().find(is_selected) {
        Some(_) => None,
        None => named.iter().find(is_selected),
    };
    html! {
        label { "Key"
            select name="key" {
                option value="" { "All keys" }
                @for key in selectable.iter().chain(other) {
                    option value=(key.id) selected[is_selected(&key)] {
                        (shown_name(key)) " (" (key.prefix) "…)"
                    }
                }
                // One that the person does not see stays in the filter.
                @if let Some(id) = chosen.filter(|id| !selectable.iter().chain(other).any(|key| key.id == *id)) {
                    option value=(id) selected { (id) }
                }
            }
        }
    }
}

/// A field for a model, which suggests those on offer. The console's list has it too.
pub(crate) fn model_input(gateway: &Gateway, model: Option<&str>) -> Markup {
    let models = gateway.published_models(Plan::ALL);
    html! {
        label { "Model"
            input type="text" name="model" list="models" placeholder="All models"
                autocomplete="off" value=(model.unwrap_or_default());
            datalist #models {
                @for model in &models { option value=(model.id) {} }
            }
        }
    }
}

fn project_select(filter: &Filter<'_>, all: &[Project]) -> Markup {
    let ids = all.iter().map(|project| project.id.as_str());
    html! {
        label { "Project"
            select name="project" {
                option value="" { "All projects" }
                @for id in std::iter::once(DEFAULT_PROJECT).chain(ids) {
                    option value=(id) selected[filter.project == Some(id)] { (projects::name_of(all, id)) }
                }
            }
        }
    }
}

fn member_select(filter: &Filter<'_>, members: &[Person]) -> Markup {
    // One who was removed has requests too.
    let removed = filter
        .member
        .filter(|id| members.iter().all(|one| one.id != *id));
    html! {
        label { "Member"
            select name="member" {
                option value="" { "All members" }
                @for one in members {
                    option value=(one.id) selected[filter.member == Some(one.id.as_str())] { (one.email) }
                }
                @if let Some(id) = removed { option value=(id) selected { (id) } }
            }
        }
    }
}

/// A table of calls with their keys.
pub(super) fn table(calls: &[Call], keys: &[Key]) -> Markup {
    framed(&html! { @for call in calls { (row(call, keys)) } })
}

/// A table of requests with their keys. The overview page shows it too.
pub(crate) fn listed(rows: &[Listed], keys: &[Key]) -> Markup {
    framed(&html! {
        @for listed in rows {
            @match listed {
                Listed::Call(call) => (row(call, keys)),
                Listed::Refused(one) => (refused_row(one, keys)),
            }
        }
    })
}

fn framed(rows: &Markup) -> Markup {
    html! {
        (scrolled("Requests", &html! {
            table {
                caption { "Requests, newest first" }
                thead {
                    tr {
                        th scope="col" { "Time" }
                        th scope="col" { "Key" }
                        th scope="col" { "Model" }
                        th.number scope="col" { "Input tokens" }
                        th.number scope="col" { "Output tokens" }
                        th.number scope="col" { "Cost" }
                        th.number scope="col" { "Duration" }
                        th scope="col" { "Outcome" }
                    }
                }
                tbody { (rows) }
            }
        }))
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

/// A refused request has used no tokens and cost nothing.
fn refused_row(one: &RefusedRequest, keys: &[Key]) -> Markup {
    html! {
        tr {
            th scope="row" { a href=(path(&one.id)) { (formatting::moment(one.at_ms.div_euclid(1_000))) } }
            td { (key_label(keys, &one.key_id)) }
            td { (refused::model(one)) }
            td.number { "–" }
            td.number { "–" }
            td.number { (formatting::money(NanoUsd::default())) }
            td.number { (formatting::duration(one.took_ms)) }
            td { (refused::badge(one)) " " span.muted { (one.status) } }
        }
    }
}
