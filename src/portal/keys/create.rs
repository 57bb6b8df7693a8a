//! Creating a key, and the only page that shows a secret.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use serde::Deserialize;

use super::{KeysQuery, NAME_NEEDED, page, shown_name, terms::TermsForm};
use crate::{
    base::keys::ApiKey,
    gateway::Gateway,
    ledger::{Key, KeyState, LedgerError, NewKey, Project},
    portal::{
        error::PortalError,
        form::{SignedForm, is_first_submission, once_field},
        layout::{self, Page, Place},
        names::{self, MAX_NAME},
        session::SignedIn,
        snippets,
    },
};

/// The value of the field `maker` for a key that belongs to no member.
const SERVICE: &str = "service";

/// The form with what was typed.
pub(super) fn form(
    gateway: &Gateway,
    me: &SignedIn,
    projects: &[Project],
    typed: &NewKeyForm,
) -> Markup {
    let terms = &typed.terms;
    html! {
        form.inline method="post" action="/portal/keys" {
            (me.token_field())
            (once_field())
            label { "Name of the new key"
                input type="text" name="name" required maxlength=(MAX_NAME) placeholder="e.g. laptop" autocomplete="off" value=(typed.name);
            }
            @if me.is_owner() {
                label { "Belongs to"
                    select name="maker" {
                        option value="" { "You" }
                        option value=(SERVICE) selected[typed.maker == SERVICE] { "No member: a service key" }
                    }
                }
            }
            button.primary type="submit" { "Create key" }
            details open[terms.is_typed()] {
                summary { "Project, expiry and models" }
                (terms.project_field(projects))
                (terms.expiry_field())
                (terms.model_fields(gateway, me.account.plan))
            }
        }
    }
}

#[derive(Default, Deserialize)]
pub(crate) struct NewKeyForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    once: String,
    /// Empty for a key of the person.
    #[serde(default)]
    maker: String,
    #[serde(flatten)]
    terms: TermsForm,
}

impl NewKeyForm {
    /// The key to create, or what is wrong.
    fn checked(
        &self,
        gateway: &Gateway,
        me: &SignedIn,
        projects: &[Project],
    ) -> Result<NewKey, String> {
        let name = names::checked(&self.name).ok_or(NAME_NEEDED)?;
        let member_id = match self.maker.as_str() {
            "" => Some(me.person.id.clone()),
            SERVICE if me.is_owner() => None,
            SERVICE => return Err("Only owners of the account can create service keys.".into()),
            _ => return Err("A key belongs to you, or it is a service key.".into()),
        };
        let wanted = self.terms.checked(gateway, projects, None)?;
        Ok(NewKey {
            name: name.to_owned(),
            project_id: wanted.project_id,
            member_id,
            terms: wanted.terms,
        })
    }
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form }: SignedForm<NewKeyForm>,
) -> Result<Page, PortalError> {
    let again = async |problem: &str| {
        page(&gateway, &me, &KeysQuery::default(), Some(problem), &form).await
    };
    let projects = gateway.ledger.projects(&me.account.id).await?;
    let new = match form.checked(&gateway, &me, &projects) {
        Ok(new) => new,
        Err(problem) => return again(&problem).await,
    };
    if !is_first_submission(&gateway, &me, &form.once).await? {
        let problem = "This form was sent before, and a key is shown once. If you have not copied it, \
                       delete it and create another.";
        return again(problem).await;
    }
    let (key, secret) = match new_key(&gateway, &me, new).await {
        Err(PortalError::Invalid(problem)) => return again(&problem).await,
        created => created?,
    };
    let content = secret_once(&gateway, "Your new key", &key, &secret, &html! {});
    Ok(layout::page(&me, Place::Keys, "Your new key", &content))
}

/// A new secret of a key, the only time that it is shown. `note` follows it.
pub(super) fn secret_once(
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
