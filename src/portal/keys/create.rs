//! Creating a key, and the only page that shows it.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{KeysQuery, page};
use crate::{
    base::keys::ApiKey,
    gateway::Gateway,
    ledger::{DEFAULT_PROJECT, Key, KeyState, LedgerError, NewKey, Project},
    portal::{
        error::PortalError,
        form::{SignedForm, is_first_submission, once_field},
        layout::{self, Page, Place},
        session::SignedIn,
        snippets,
    },
};

const MAX_NAME: usize = 100;
/// The value of the field `maker` for a key that belongs to no member.
const SERVICE: &str = "service";

pub(crate) fn form(me: &SignedIn, projects: &[Project]) -> Markup {
    let open = || projects.iter().filter(|project| !project.archived);
    html! {
        form.inline method="post" action="/portal/keys" {
            (me.token_field())
            (once_field())
            label { "Name of the new key"
                input type="text" name="name" required maxlength=(MAX_NAME) placeholder="e.g. laptop" autocomplete="off";
            }
            @if open().next().is_some() {
                label { "Project"
                    select name="project" {
                        option value=(DEFAULT_PROJECT) { "Default" }
                        @for project in open() { option value=(project.id) { (project.name) } }
                    }
                }
            }
            @if me.is_owner() {
                label { "Belongs to"
                    select name="maker" {
                        option value="" { "You" }
                        option value=(SERVICE) { "No member: a service key" }
                    }
                }
            }
            button.primary type="submit" { "Create key" }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct NewKeyForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    once: String,
    /// The ID of a project; empty for the default one.
    #[serde(default)]
    project: String,
    /// Empty for a key of the person.
    #[serde(default)]
    maker: String,
}

impl NewKeyForm {
    /// The key to create, or what is wrong.
    fn checked(&self, me: &SignedIn) -> Result<NewKey, &'static str> {
        let name = self.name.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control)
        {
            return Err("A key needs a name of at most 100 characters, so that you know it again.");
        }
        let is_default = self.project.is_empty() || self.project == DEFAULT_PROJECT;
        let member_id = match self.maker.as_str() {
            "" => Some(me.person.id.clone()),
            SERVICE if me.is_owner() => None,
            SERVICE => return Err("Only owners of the account can make service keys."),
            _ => return Err("A key belongs to you, or it is a service key."),
        };
        Ok(NewKey {
            name: name.to_owned(),
            project_id: (!is_default).then(|| self.project.clone()),
            member_id,
            ..NewKey::default()
        })
    }
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<NewKeyForm>,
) -> Result<Page, PortalError> {
    let again =
        async |problem: &str| page(&gateway, &me, &KeysQuery::default(), Some(problem)).await;
    let new = match form.checked(&me) {
        Ok(new) => new,
        Err(problem) => return again(problem).await,
    };
    if !is_first_submission(&gateway, &form.once).await? {
        let problem = "This form was sent before, and a key is shown once. If you have not copied it, \
                       delete it and create another.";
        return again(problem).await;
    }
    let (key, secret) = match new_key(&gateway, &me, new).await {
        Err(PortalError::Invalid(problem)) => return again(&problem).await,
        created => created?,
    };
    let content = html! {
        h1 { "Your new key" }
        p { "This is " strong { (key.name) } ". Copy it now: it is not shown again." }
        div.copyable.secret {
            code #new-key { (secret.reveal()) }
            (snippets::copy_button("Copy", "the key"))
        }
        h2 { "A first request" }
        (snippets::all(&gateway.portal.url, secret.reveal()))
        p { a.button href="/portal/keys" { "I have copied it" } }
    };
    Ok(layout::page(&me, Place::Keys, "Your new key", &content))
}

/// Creates a key for a person, unless too many were created lately.
pub(crate) async fn new_key(
    gateway: &Gateway,
    me: &SignedIn,
    new: NewKey,
) -> Result<(Key, ApiKey), PortalError> {
    let account = me.account.id.as_str();
    let throttled = gateway.portal.throttle.new_key(account);
    throttled.map_err(|seconds| PortalError::TooMany { seconds })?;
    let (ledger, max) = (&gateway.ledger, gateway.max_keys);
    let (key, secret) = match ledger.create_key(account, new, max).await {
        Err(LedgerError::NotFound {
            what: "project", ..
        }) => {
            let problem = "There is no such project, or it is archived.";
            return Err(PortalError::Invalid(problem.into()));
        }
        created => created?,
    };
    // The person may have been removed meanwhile. The removal deletes the keys that it finds, so only this one is left.
    if gateway.backoffice.person(&me.person.id).await?.is_none() {
        ledger.set_key_state(&key.id, KeyState::Deleted).await?;
        return Err(PortalError::SignedOut {
            to: "/portal".into(),
        });
    }
    Ok((key, secret))
}
