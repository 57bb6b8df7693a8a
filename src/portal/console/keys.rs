//! The keys of an account, for operators.

use std::{collections::HashMap, sync::Arc};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{Id, OperatorForm, SignedInOperator},
    accounts::path,
    frame::{self, Place, scrolled},
};
use crate::{
    gateway::{Gateway, actions::MAX_KEY_NAME},
    ledger::{Account, Key, KeyState},
    portal::{
        error::PortalError,
        form::{is_first_submission, once_field},
        formatting::moment,
        keys::{shown_name, state},
        layout::{self, Page},
        snippets::copy_button,
    },
};

/// The table of all keys, including deleted ones, newest first, and the form to create one.
pub(crate) fn section(
    me: &SignedInOperator,
    account: &Account,
    keys: &[Key],
    used: &HashMap<String, i64>,
) -> Markup {
    let table = html! {
        table {
            caption { "Keys, newest first" }
            thead { tr {
                th scope="col" { "Name" }
                th scope="col" { "Key" }
                th scope="col" { "State" }
                th scope="col" { "Made" }
                th scope="col" { "Last used" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for key in keys.iter().rev() {
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
    html! {
        section {
            h2 { "Keys" }
            @if keys.is_empty() { p.empty { "It has no keys." } }
            @else { (scrolled("Keys", &table)) }
            form.inline method="post" action={ (path(&account.id)) "/keys" } {
                (me.token_field())
                (once_field())
                label { "Name of a new key"
                    input type="text" name="name" required maxlength=(MAX_KEY_NAME) autocomplete="off";
                }
                button type="submit" { "Make a key" }
            }
        }
    }
}

fn forms(me: &SignedInOperator, key: &Key) -> Markup {
    let form = |to: KeyState, class: &str, verb: &str| {
        html! {
            form method="post" action={ "/portal/console/keys/" (layout::encoded(&key.id)) "/state" } {
                (me.token_field())
                input type="hidden" name="state" value=(to.as_str());
                button class=(class) type="submit" { (verb) span.unseen { " " (shown_name(key)) } }
            }
        }
    };
    html! {
        @match key.state {
            KeyState::Active => { (form(KeyState::Disabled, "quiet", "Disable")) },
            KeyState::Disabled => { (form(KeyState::Active, "quiet", "Enable")) },
            KeyState::Deleted => {},
        }
        @if key.state != KeyState::Deleted {
            details {
                summary { "Delete" span.unseen { " " (shown_name(key)) } }
                (form(KeyState::Deleted, "quiet bad", "Delete for good"))
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
    let name = super::account_forms::plain(&form.name, MAX_KEY_NAME, "A key's name")?;
    let name = name.ok_or_else(|| PortalError::Invalid("A key needs a name.".into()))?;
    if !is_first_submission(&gateway, &form.once).await? {
        let problem = "This form was sent before, and a key is shown once. Load the account's page anew to \
                       make another.";
        return Err(PortalError::Invalid(problem.into()));
    }
    let (key, secret) = me.actions(&gateway).create_key(id, name).await?;
    let content = html! {
        h1 { "A new key" }
        p { "This is " strong { (key.name) } ". Hand it over now: it is not shown again." }
        div.copyable.secret {
            code #new-key { (secret.reveal()) }
            (copy_button("Copy", "the key"))
        }
        p { a.button href=(path(&key.account_id)) { "I have copied it" } }
    };
    Ok(frame::page(&me, Place::Accounts, "A new key", &content))
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
    let state = state.ok_or_else(|| PortalError::Invalid("A key has no such state.".into()))?;
    let key = me.actions(&gateway).set_key_state(id, state).await?;
    Ok(layout::redirect(&path(&key.account_id)))
}
