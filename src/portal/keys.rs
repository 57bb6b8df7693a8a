//! API keys: list, disable, enable and delete. Owners see all keys of the account, developers those that they made.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use serde::Deserialize;

pub(crate) mod create;
mod details;
mod rotation;
mod terms;

use self::create::NewKeyForm;
pub(crate) use self::{
    details::{change, show},
    rotation::rotate,
};
use super::{
    budgets,
    confirmation::Confirmation,
    error::PortalError,
    form::{EmptyForm, SignedForm},
    formatting::moment,
    layout::{self, Page, Place},
    paging, projects,
    query::ReadQuery,
    question::Question,
    rights::Right,
    session::SignedIn,
    sign_in::problem_notice,
    table::scrolled,
};
use crate::{
    backoffice::Person,
    base::timestamp,
    gateway::Gateway,
    ledger::{BudgetScope, BudgetState, Key, KeyFilter, KeyState, KeysPage, Project},
};

const NAME_NEEDED: &str = "A key needs a name of at most 100 characters.";

#[derive(Default, Deserialize)]
pub(crate) struct KeysQuery {
    before: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<KeysQuery>,
) -> Result<Page, PortalError> {
    page(&gateway, &me, &query, None, &NewKeyForm::default()).await
}

/// The page, with why no key was created and what was typed.
async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    query: &KeysQuery,
    problem: Option<&str>,
    typed: &NewKeyForm,
) -> Result<Page, PortalError> {
    let (keys, links) = queried(gateway, me, query, KeyFilter::Live, "/portal/keys").await?;
    let used = gateway.ledger.last_used(&me.account.id).await?;
    let labels = Labels::read(gateway, me).await?;
    let content = html! {
        h1 { "API keys" }
        p.muted { "Programs send a key as a bearer token with every request. A key is shown once, when it is created." }
        (problem_notice(problem))
        (create::form(gateway, me, &labels.projects, typed))
        @if keys.is_empty() {
            p.empty { "No API keys yet. Name one and create it: the next page shows a request that is ready to paste." }
        } @else {
            (scrolled("Your keys", &table(me, &keys, &used, &labels)))
        }
        (links)
        p {
            @if me.may(Right::Projects) { a href="/portal/projects" { "Projects" } " · " }
            a href="/portal/keys/deleted" { "Deleted keys" }
        }
    };
    Ok(layout::page(me, Place::Keys, "API keys", &content))
}

/// A page of the account's keys, newest first, and the links to other pages. `path` is that of the list.
async fn queried(
    gateway: &Gateway,
    me: &SignedIn,
    query: &KeysQuery,
    filter: KeyFilter,
    path: &str,
) -> Result<(Vec<Key>, Markup), PortalError> {
    let before = paging::cursor(query.before.as_ref(), "keys", paging::position)?;
    let newest = before.is_some().then_some(path);
    let page = KeysPage {
        account_id: &me.account.id,
        filter,
        member_id: me.only_own_keys(),
        before,
        limit: paging::QUERIED,
    };
    let mut keys = gateway.ledger.keys_page(page).await?;
    let older = paging::cut(&mut keys).map(|last| older_keys(path, last));
    let links = paging::links("keys", newest, older.as_deref());
    Ok((keys, links))
}

/// The URL of the page after the one that ends with this key. `first_page` is the URL of the list.
pub(crate) fn older_keys(first_page: &str, last: &Key) -> String {
    let separator = if first_page.contains('?') { '&' } else { '?' };
    let (created_at, id) = (last.created_at, layout::encoded(&last.id));
    format!("{first_page}{separator}before={created_at}-{id}")
}

/// Deleted keys, which the history refers to.
pub(crate) async fn list_deleted(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<KeysQuery>,
) -> Result<Page, PortalError> {
    let path = "/portal/keys/deleted";
    let (keys, links) = queried(&gateway, &me, &query, KeyFilter::Deleted, path).await?;
    let table = html! {
        table {
            caption { "Deleted keys, newest first" }
            thead { tr {
                th scope="col" { "Name" }
                th scope="col" { "Key" }
                th scope="col" { "Created" }
            } }
            tbody {
                @for key in &keys {
                    tr {
                        th scope="row" { (shown_name(key)) }
                        td { code { (key.prefix) "…" } }
                        td { (moment(key.created_at)) }
                    }
                }
            }
        }
    };
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/keys" { "API keys" } }
        h1 { "Deleted keys" }
        p.muted { "Requests with these keys are refused. Their usage stays in your history." }
        @if keys.is_empty() {
            p.empty { "No deleted keys." }
        } @else {
            (scrolled("Deleted keys", &table))
        }
        (links)
    };
    Ok(layout::page(&me, Place::Keys, "Deleted keys", &content))
}

/// What keys refer to: the projects of the account, and for owners its members.
struct Labels {
    projects: Vec<Project>,
    people: Vec<Person>,
    budgets: Vec<BudgetState>,
}

impl Labels {
    async fn read(gateway: &Gateway, me: &SignedIn) -> Result<Self, PortalError> {
        let account = me.account.id.as_str();
        let projects = gateway.ledger.projects(account).await?;
        let people = if me.is_owner() {
            gateway.backoffice.people_of(account).await?
        } else {
            Vec::new()
        };
        Ok(Self {
            projects,
            people,
            budgets: gateway.ledger.budgets(account).await?,
        })
    }

    /// The budgets that stand at the key itself.
    fn budgets<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = &'a BudgetState> {
        let at_key = |state: &&BudgetState| {
            state.budget.scope == BudgetScope::Key && state.budget.scope_id == key.id
        };
        self.budgets.iter().filter(at_key)
    }

    fn maker(&self, key: &Key) -> &str {
        let Some(id) = &key.payer.member_id else {
            return "service key";
        };
        let mut people = self.people.iter();
        let person = people.find(|person| person.id == *id);
        person.map_or("a former member", |person| &person.email)
    }
}

fn table(me: &SignedIn, keys: &[Key], used: &HashMap<String, i64>, labels: &Labels) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Name" }
                th scope="col" { "Key" }
                th scope="col" { "State" }
                th scope="col" { "Project" }
                th scope="col" { "Created" }
                th scope="col" { "Last used" }
                th scope="col" { "Budget" }
                th scope="col" { "Expires" }
                @if me.is_owner() { th scope="col" { "Created by" } }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for key in keys { (row(me, key, used.get(&key.id).copied(), labels)) }
            }
        }
    }
}

/// One key of the list.
fn row(me: &SignedIn, key: &Key, used_ms: Option<i64>, labels: &Labels) -> Markup {
    html! {
        tr {
            th scope="row" { (shown_name(key)) }
            td { code { (key.prefix) "…" } }
            td { (state(key)) }
            td { (projects::name_of(&labels.projects, key.payer.project())) }
            td { (moment(key.created_at)) }
            td {
                @match used_ms {
                    Some(ms) => (moment(ms.div_euclid(1_000))),
                    None => span.muted { "never" },
                }
            }
            td { @for state in labels.budgets(key) { (budgets::bar(state)) " " } }
            td {
                @match key.terms.expires_at {
                    Some(at) => (moment(at)),
                    None => span.muted { "no" },
                }
            }
            @if me.is_owner() { td.wraps { (labels.maker(key)) } }
            td.actions { (actions(me, key)) }
        }
    }
}

/// The key's name, or a placeholder. Pages also show the prefix of the key.
pub(crate) fn shown_name(key: &Key) -> &str {
    if key.name.is_empty() {
        "unnamed"
    } else {
        &key.name
    }
}

pub(crate) fn state(key: &Key) -> Markup {
    match key.state {
        KeyState::Active if key.terms.has_expired(timestamp::now()) => {
            html! { span.badge.bad { "expired" } }
        }
        KeyState::Active => html! { span.badge.good { "active" } },
        KeyState::Disabled => html! { span.badge { "disabled" } },
        KeyState::Deleted => html! { span.badge.bad { "deleted" } },
    }
}

fn actions(me: &SignedIn, key: &Key) -> Markup {
    let (verb, name) = if key.state == KeyState::Active {
        ("disable", "Disable")
    } else {
        ("enable", "Enable")
    };
    html! {
        a.quiet.button href={ "/portal/keys/" (key.id) } {
            "Edit" span.unseen { " " (shown_name(key)) }
        }
        a.quiet.button href={ "/portal/keys/" (key.id) "#rotate" } {
            "Rotate" span.unseen { " " (shown_name(key)) }
        }
        form method="post" action={ "/portal/keys/" (key.id) "/" (verb) } {
            (me.token_field())
            button.quiet type="submit" { (name) span.unseen { " " (shown_name(key)) } }
        }
        a.quiet.button.bad href={ "/portal/keys/" (key.id) "/delete" } {
            "Delete" span.unseen { " " (shown_name(key)) }
        }
    }
}

/// The key, if the person may see it and it is not deleted.
async fn own(gateway: &Gateway, me: &SignedIn, id: &str) -> Result<Key, PortalError> {
    let key = gateway.ledger.key(id).await?;
    let is_theirs = key.account_id == me.account.id && me.sees_key(&key);
    let is_live = key.state != KeyState::Deleted;
    (is_theirs && is_live)
        .then_some(key)
        .ok_or(PortalError::NotFound)
}

pub(crate) async fn disable(
    gateway: State<Arc<Gateway>>,
    id: Path<String>,
    form: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    set_state(gateway, id, form, KeyState::Disabled).await
}

pub(crate) async fn enable(
    gateway: State<Arc<Gateway>>,
    id: Path<String>,
    form: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    set_state(gateway, id, form, KeyState::Active).await
}

pub(crate) async fn delete(
    gateway: State<Arc<Gateway>>,
    id: Path<String>,
    form: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    set_state(gateway, id, form, KeyState::Deleted).await
}

async fn set_state(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
    state: KeyState,
) -> Result<Response, PortalError> {
    let key = own(&gateway, &me, &id).await?;
    gateway.ledger.set_key_state(&key.id, state).await?;
    let name = shown_name(&key);
    let path = |verb: &str| format!("/portal/keys/{}/{verb}", key.id);
    let done = match state {
        KeyState::Active => {
            Confirmation::new(format!("Key {name} enabled.")).undone_by(&path("disable"), &[])
        }
        KeyState::Disabled => Confirmation::new(format!(
            "Key {name} disabled: requests with it are refused from now on."
        ))
        .undone_by(&path("enable"), &[]),
        KeyState::Deleted => Confirmation::new(format!("Key {name} deleted.")),
    };
    Ok(me.redirect("/portal/keys", &done))
}

pub(crate) async fn confirm_delete(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let key = own(&gateway, &me, &id).await?;
    let question = Question {
        title: &format!("Delete {}?", shown_name(&key)),
        consequences: &format!(
            "Requests with {}… are refused from then on. A deleted key cannot be restored. Its usage stays in your history.",
            key.prefix
        ),
        path: &format!("/portal/keys/{}/delete", key.id),
        fields: &[],
        yes: "Delete key",
        no: ("Cancel", "/portal/keys"),
    };
    let content = question.shown(&me.token_field());
    Ok(layout::page(&me, Place::Keys, "Delete key", &content))
}
