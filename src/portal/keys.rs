//! API keys: create, show once, list, disable, enable and delete. The page of one key is in `details.rs`.

use std::{collections::HashMap, sync::Arc};

use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use serde::Deserialize;

mod details;
mod rotation;
mod terms;

use self::terms::{TermsForm, expiry_field, model_fields, project_field};
pub(crate) use self::{
    details::{change, show},
    rotation::rotate,
};
use super::{
    error::PortalError,
    form::{EmptyForm, SignedForm, is_first_submission, once_field},
    formatting::moment,
    layout::{self, Page, Place},
    names::{self, MAX_NAME},
    paging, projects,
    query::ReadQuery,
    session::SignedIn,
    sign_in::problem_notice,
    snippets,
};
use crate::{
    base::{keys::ApiKey, timestamp},
    gateway::Gateway,
    ledger::{DEFAULT_PROJECT, Key, KeyFilter, KeyState, KeysPage, NewKey, Project},
};

const NAME_NEEDED: &str =
    "A key needs a name of at most 100 characters, so that you know it again.";

#[derive(Default, Deserialize)]
pub(crate) struct KeysQuery {
    before: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
    ReadQuery(query): ReadQuery<KeysQuery>,
) -> Result<Page, PortalError> {
    page(&gateway, &me, &query, None).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    query: &KeysQuery,
    problem: Option<&str>,
) -> Result<Page, PortalError> {
    let (keys, links) = queried(gateway, me, query, KeyFilter::Live, "/portal/keys").await?;
    let used = gateway.ledger.last_used(&me.account.id).await?;
    let projects = gateway.ledger.projects(&me.account.id).await?;
    let content = html! {
        h1 { "API keys" }
        p.muted { "A key is sent as a bearer token with every request. It is shown once, when it is made." }
        (problem_notice(problem))
        form.inline method="post" action="/portal/keys" {
            (me.token_field())
            (once_field())
            label { "Name of the new key"
                input type="text" name="name" required maxlength=(MAX_NAME) placeholder="e.g. laptop" autocomplete="off";
            }
            button.primary type="submit" { "Create key" }
            details {
                summary { "Project, expiry and models" }
                (project_field(&projects, DEFAULT_PROJECT))
                (expiry_field(None))
                (model_fields(gateway, me.account.plan, None))
            }
        }
        @if keys.is_empty() {
            p.empty { "There is no key yet. Give one a name and create it: the next page has a request that is ready to be pasted." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Your keys" { (table(me, &keys, &used, &projects)) }
        }
        (links)
        p {
            a href="/portal/projects" { "Projects" } " · "
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
        p.muted { "Requests with these keys are refused. What they were used for stays in your history." }
        @if keys.is_empty() {
            p.empty { "No key was deleted." }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Deleted keys" { (table) }
        }
        (links)
    };
    Ok(layout::page(&me, Place::Keys, "Deleted keys", &content))
}

fn table(me: &SignedIn, keys: &[Key], used: &HashMap<String, i64>, projects: &[Project]) -> Markup {
    html! {
        table {
            thead { tr {
                th scope="col" { "Name" }
                th scope="col" { "Key" }
                th scope="col" { "Project" }
                th scope="col" { "Created" }
                th scope="col" { "Last used" }
                th scope="col" { "Expires" }
                th scope="col" { "State" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for key in keys { (row(me, key, used.get(&key.id).copied(), projects)) }
            }
        }
    }
}

/// One key of the list.
fn row(me: &SignedIn, key: &Key, used_ms: Option<i64>, projects: &[Project]) -> Markup {
    html! {
        tr {
            th scope="row" { (shown_name(key)) }
            td { code { (key.prefix) "…" } }
            td { (projects::name_of(projects, key.payer.project())) }
            td { (moment(key.created_at)) }
            td {
                @match used_ms {
                    Some(ms) => (moment(ms.div_euclid(1_000))),
                    None => span.muted { "never" },
                }
            }
            td {
                @match key.terms.expires_at {
                    Some(at) => (moment(at)),
                    None => span.muted { "no" },
                }
            }
            td { (state(key)) }
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
        form method="post" action={ "/portal/keys/" (key.id) "/" (verb) } {
            (me.token_field())
            button.quiet type="submit" { (name) span.unseen { " " (shown_name(key)) } }
        }
        a.quiet.button.bad href={ "/portal/keys/" (key.id) "/delete" } {
            "Delete" span.unseen { " " (shown_name(key)) }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct NewKeyForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    once: String,
    #[serde(flatten)]
    terms: TermsForm,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<NewKeyForm>,
) -> Result<Page, PortalError> {
    let new = match wanted(&gateway, &me, &form).await? {
        Ok(new) => new,
        Err(problem) => {
            return page(&gateway, &me, &KeysQuery::default(), Some(&problem)).await;
        }
    };
    if !is_first_submission(&gateway, &form.once).await? {
        let problem = "This form was sent before, and a key is shown once. If you have not copied it, \
                       delete it and create another.";
        return page(&gateway, &me, &KeysQuery::default(), Some(problem)).await;
    }
    let (key, secret) = match new_key(&gateway, &me.account.id, new).await {
        Err(PortalError::Invalid(problem)) => {
            return page(&gateway, &me, &KeysQuery::default(), Some(&problem)).await;
        }
        created => created?,
    };
    let content = secret_once(&gateway, "Your new key", &key, &secret, &html! {});
    Ok(layout::page(&me, Place::Keys, "Your new key", &content))
}

/// The key that a form asks for, or the problem to show.
async fn wanted(
    gateway: &Gateway,
    me: &SignedIn,
    form: &NewKeyForm,
) -> Result<Result<NewKey, String>, PortalError> {
    let Some(name) = names::checked(&form.name) else {
        return Ok(Err(NAME_NEEDED.into()));
    };
    let projects = gateway.ledger.projects(&me.account.id).await?;
    let wanted = form.terms.checked(gateway, &projects, None);
    Ok(wanted.map(|wanted| NewKey {
        name: name.to_owned(),
        project_id: wanted.project_id,
        member_id: Some(me.person.id.clone()),
        terms: wanted.terms,
    }))
}

/// A new secret of a key, the only time that it is shown. `note` follows it.
fn secret_once(
    gateway: &Gateway,
    title: &str,
    key: &Key,
    secret: &ApiKey,
    note: &Markup,
) -> Markup {
    html! {
        h1 { (title) }
        p { "This is " strong { (shown_name(key)) } ". Copy it now: it is not shown again." }
        div.copyable.secret {
            code #new-key { (secret.reveal()) }
            (snippets::copy_button("Copy", "the key"))
        }
        (note)
        h2 { "A first request" }
        (snippets::all(&gateway.portal.url, secret.reveal()))
        p { a.button href="/portal/keys" { "I have copied it" } }
    }
}

/// Creates a key for a person, unless too many were created lately.
pub(crate) async fn new_key(
    gateway: &Gateway,
    account_id: &str,
    new: NewKey,
) -> Result<(Key, ApiKey), PortalError> {
    let throttled = gateway.portal.throttle.new_key(account_id);
    throttled.map_err(|seconds| PortalError::TooMany { seconds })?;
    let (ledger, max) = (&gateway.ledger, gateway.max_keys);
    Ok(ledger.create_key(account_id, new, max).await?)
}

/// The key, if it belongs to this account and is not deleted.
async fn own(gateway: &Gateway, me: &SignedIn, id: &str) -> Result<Key, PortalError> {
    let key = gateway.ledger.key(id).await?;
    let is_theirs = key.account_id == me.account.id && key.state != KeyState::Deleted;
    is_theirs.then_some(key).ok_or(PortalError::NotFound)
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
    Ok(layout::redirect("/portal/keys"))
}

pub(crate) async fn confirm_delete(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let key = own(&gateway, &me, &id).await?;
    let content = html! {
        h1 { "Delete " (shown_name(&key)) "?" }
        p { "Requests with " code { (key.prefix) "…" } " are refused from then on, and it never comes back. What it was used for stays in your history." }
        form.inline method="post" action={ "/portal/keys/" (key.id) "/delete" } {
            (me.token_field())
            button.bad type="submit" { "Delete the key" }
            a.button href="/portal/keys" { "Keep it" }
        }
    };
    Ok(layout::page(&me, Place::Keys, "Delete a key", &content))
}
