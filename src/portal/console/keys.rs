//! The keys of an account, for operators.

use std::{collections::HashMap, sync::Arc};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{Id, OperatorForm, SignedInOperator},
    accounts::path,
    frame::{self, Place},
    paging,
};
use crate::{
    gateway::{Gateway, actions::MAX_NAME},
    ledger::{Account, Key, KeyFilter, KeyState, KeysPage},
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::{is_unspent, once_field},
        formatting::moment,
        keys::{older_keys, shown_name, state},
        layout::{self, Page},
        query::ReadQuery,
        question::Question,
        snippets::copy_button,
        table::scrolled,
    },
};

/// The newest live keys of an account, with links to the others, and the form to create one.
pub(crate) fn section(
    me: &SignedInOperator,
    account: &Account,
    keys: &[Key],
    used: &HashMap<String, i64>,
) -> Markup {
    let all = list_path(&account.id, false);
    html! {
        section {
            h2 { "Keys" }
            @if keys.is_empty() { p.empty { "No API keys yet." } }
            @else { (table(me, keys, used)) }
            p {
                a href=(all) { "All keys" } " · "
                a href=(list_path(&account.id, true)) { "Deleted keys" }
            }
            form.inline method="post" action=(all) {
                (me.token_field())
                (once_field())
                label { "Name of the new key"
                    input type="text" name="name" required maxlength=(MAX_NAME) autocomplete="off";
                }
                button type="submit" { "Create key" }
            }
        }
    }
}

/// A page of the account's newest live keys.
pub(crate) fn newest(account_id: &str) -> KeysPage<'_> {
    KeysPage {
        account_id,
        filter: KeyFilter::Live,
        member_id: None,
        before: None,
        limit: paging::PAGE_SIZE,
    }
}

/// The path of the list of an account's live keys, or of its deleted ones.
fn list_path(account_id: &str, deleted: bool) -> String {
    let query = if deleted { "?deleted=true" } else { "" };
    format!("{}/keys{query}", path(account_id))
}

fn table(me: &SignedInOperator, keys: &[Key], used: &HashMap<String, i64>) -> Markup {
    let table = html! {
        table {
            caption { "Keys, newest first" }
            thead { tr {
                th scope="col" { "Name" }
                th scope="col" { "Key" }
                th scope="col" { "State" }
                th scope="col" { "Created" }
                th scope="col" { "Last used" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for key in keys {
                    tr {
                        th scope="row" { (shown_name(key)) }
                        td { code { (key.prefix) "…" } " " a href={ "/portal/console/actions?subject=" (layout::encoded(&key.id)) } { code { (key.id) } } }
                        td { (state(key)) }
                        td { (moment(key.created_at)) }
                        td {
                            @match used.get(&key.id) {
                                Some(ms) => { (moment(ms.div_euclid(1_000))) },
                                None => { span.muted { "never" } },
                            }
                        }
                        td { div.actions { (forms(me, key)) } }
                    }
                }
            }
        }
    };
    scrolled("Keys", &table)
}

#[derive(Deserialize)]
pub(crate) struct KeysQuery {
    #[serde(default)]
    deleted: bool,
    before: Option<String>,
}

/// The live keys of an account, or its deleted ones, page by page.
pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Id(id): Id,
    ReadQuery(query): ReadQuery<KeysQuery>,
) -> Result<Page, PortalError> {
    let account = gateway.ledger.account(&id).await?;
    let before = paging::cursor(query.before.as_ref(), "keys", paging::position)?;
    let (title, filter) = if query.deleted {
        ("Deleted keys", KeyFilter::Deleted)
    } else {
        ("Keys", KeyFilter::Live)
    };
    let is_first = before.is_none();
    let page = KeysPage {
        filter,
        member_id: None,
        before,
        limit: paging::QUERIED,
        ..newest(&id)
    };
    let (mut keys, used) = tokio::try_join!(
        gateway.ledger.keys_page(page),
        gateway.ledger.last_used(&id)
    )?;
    let first = list_path(&id, query.deleted);
    let older = paging::cut(&mut keys).map(|last| older_keys(&first, last));
    let first = (!is_first).then_some(first);
    let content = html! {
        nav.back aria-label="Back" { a href=(path(&id)) { (account.email) } }
        h1 { (title) }
        @if keys.is_empty() { p.empty { "No such keys." } }
        @else { (table(&me, &keys, &used)) }
        (paging::links("keys", first.as_deref(), older.as_deref()))
    };
    Ok(frame::page(&me, Place::Accounts, title, &content))
}

fn forms(me: &SignedInOperator, key: &Key) -> Markup {
    let form = |to: KeyState, verb: &str| {
        html! {
            form method="post" action={ "/portal/console/keys/" (layout::encoded(&key.id)) "/state" } {
                (me.token_field())
                input type="hidden" name="state" value=(to.as_str());
                button.quiet type="submit" { (verb) span.unseen { " " (shown_name(key)) } }
            }
        }
    };
    html! {
        @match key.state {
            KeyState::Active => { (form(KeyState::Disabled, "Disable")) },
            KeyState::Disabled => { (form(KeyState::Active, "Enable")) },
            KeyState::Deleted => {},
        }
        @if key.state != KeyState::Deleted {
            a.quiet.button.bad href={ "/portal/console/keys/" (layout::encoded(&key.id)) "/delete" } {
                "Delete" span.unseen { " " (shown_name(key)) }
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct NewKey {
    #[serde(default)]
    name: String,
    #[serde(default)]
    once: String,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<NewKey>,
) -> Result<Page, PortalError> {
    let name = super::account_forms::plain(&form.name, MAX_NAME, "A key's name")?;
    let name = name.ok_or_else(|| PortalError::Invalid("A key needs a name.".into()))?;
    if !is_unspent(&gateway, &form.once).await? {
        let problem = "This form was sent before, and a key is shown once. Reload the account's page to \
                       create another.";
        return Err(PortalError::Invalid(problem.into()));
    }
    let (key, secret) = me.actions(&gateway).create_key(id, name.into()).await?;
    let content = html! {
        h1 { "New key" }
        p { "This is " strong { (key.name) } ". Copy it now and send it to its owner: it is not shown again." }
        div.copyable.secret {
            code #new-key { (secret.reveal()) }
            (copy_button("Copy", "the key"))
        }
        p { a.button href=(path(&key.account_id)) { "I have copied it" } }
    };
    Ok(frame::page(&me, Place::Accounts, "New key", &content))
}

pub(crate) async fn confirm_delete(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Id(id): Id,
) -> Result<Page, PortalError> {
    let key = gateway.ledger.key(&id).await?;
    let question = Question {
        title: &format!("Delete {}?", shown_name(&key)),
        consequences: &format!(
            "Requests with {}… are refused from then on. A deleted key cannot be restored.",
            key.prefix
        ),
        path: &format!("/portal/console/keys/{}/state", layout::encoded(&key.id)),
        fields: &[("state", KeyState::Deleted.as_str())],
        yes: "Delete key",
        no: ("Cancel", &path(&key.account_id)),
    };
    let content = question.shown(&me.token_field());
    Ok(frame::page(&me, Place::Accounts, "Delete key", &content))
}

#[derive(Deserialize)]
pub(crate) struct NewState {
    #[serde(default)]
    state: String,
}

pub(crate) async fn set_state(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<NewState>,
) -> Result<Response, PortalError> {
    let state = KeyState::parse(&form.state);
    let state = state.ok_or_else(|| PortalError::Invalid("Unknown key state.".into()))?;
    let key = me.actions(&gateway).set_key_state(id, state).await?;
    let name = shown_name(&key);
    let undo = format!("/portal/console/keys/{}/state", layout::encoded(&key.id));
    let done = match state {
        KeyState::Active => Confirmation::new(format!("Key {name} enabled."))
            .undone_by(&undo, &[("state", KeyState::Disabled.as_str())]),
        KeyState::Disabled => Confirmation::new(format!(
            "Key {name} disabled: requests with it are refused from now on."
        ))
        .undone_by(&undo, &[("state", KeyState::Active.as_str())]),
        KeyState::Deleted => Confirmation::new(format!("Key {name} deleted.")),
    };
    Ok(me.redirect(&path(&key.account_id), &done))
}
