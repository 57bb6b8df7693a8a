//! The page of one key: its terms, a form to change them, and rotation.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    own, rotation, shown_name, state,
    terms::{TermsForm, fields_of},
};
use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{Key, KeyChange, Project},
    portal::{
        budgets,
        confirmation::Confirmation,
        error::PortalError,
        form::SignedForm,
        formatting::{count, moment},
        layout::{self, Page, Place},
        names::{self, MAX_NAME},
        projects,
        session::SignedIn,
        sign_in::problem_notice,
    },
};

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    let key = own(&gateway, &me, &id).await?;
    page(&gateway, &me, &key, None, None).await
}

/// The page, with why nothing was changed and what was typed.
pub(super) async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    key: &Key,
    problem: Option<&str>,
    typed: Option<&ChangeForm>,
) -> Result<Page, PortalError> {
    let present = ChangeForm {
        name: key.name.clone(),
        terms: TermsForm::of(key),
    };
    let ledger = &gateway.ledger;
    let projects = ledger.projects(&me.account.id).await?;
    let used = ledger.last_used(&me.account.id).await?;
    let states = ledger.budgets(&me.account.id).await?;
    let above = states
        .iter()
        .filter(|state| state.budget.is_above(&key.payer) && me.sees_budget(&state.budget));
    let above: Vec<_> = above.collect();
    let content = html! {
        nav.back aria-label="Back" { a href="/portal/keys" { "API keys" } }
        h1 { (shown_name(key)) }
        (problem_notice(problem))
        (facts(key, &projects, used.get(&key.id).copied()))
        @if !above.is_empty() {
            h2 { "Budgets" }
            (budgets::bars(&above))
        }
        h2 { "Change" }
        (change_form(gateway, me, key, &projects, typed.unwrap_or(&present)))
        (rotation::section(me, key))
    };
    Ok(layout::page(me, Place::Keys, "API key", &content))
}

/// What the key is and what binds it.
fn facts(key: &Key, projects: &[Project], used_ms: Option<i64>) -> Markup {
    let terms = &key.terms;
    html! {
        dl {
            dt { "Key" } dd { code { (key.prefix) "…" } }
            @if let Some(previous) = key.previous_at(timestamp::now()) {
                dt { "Previous secret" }
                dd { code { (previous.prefix) "…" } " is valid until " (moment(previous.valid_until)) }
            }
            dt { "State" } dd { (state(key)) }
            dt { "Project" } dd { (projects::name_of(projects, key.payer.project())) }
            dt { "Created" } dd { (moment(key.created_at)) }
            dt { "Last used" }
            dd { @match used_ms { Some(ms) => (moment(ms.div_euclid(1_000))), None => "never" } }
            dt { "Expires" }
            dd { @match terms.expires_at { Some(at) => (moment(at)), None => "never" } }
            dt { "Models" }
            dd { @match &terms.models { Some(models) => (models.join(", ")), None => "all models of your plan" } }
            (limits(key))
        }
    }
}

/// The key's own limits, beside those of the account.
fn limits(key: &Key) -> Markup {
    let row = |name: &str, ceiling: Option<u32>| {
        html! {
            dt { (name) }
            dd {
                @match ceiling {
                    Some(ceiling) => (count(ceiling.into())),
                    None => "as the account",
                }
            }
        }
    };
    html! {
        (row("Requests per minute", key.terms.rpm))
        (row("Tokens per minute", key.terms.tpm))
    }
}

fn change_form(
    gateway: &Gateway,
    me: &SignedIn,
    key: &Key,
    projects: &[Project],
    typed: &ChangeForm,
) -> Markup {
    let terms = &typed.terms;
    html! {
        form.stack method="post" action={ "/portal/keys/" (key.id) } {
            (me.token_field())
            label { "Name"
                input type="text" name="name" required maxlength=(MAX_NAME) value=(typed.name) autocomplete="off";
            }
            @if me.is_owner() {
                (terms.project_field(projects))
                (terms.expiry_field())
                (terms.limit_fields())
                (terms.model_fields(gateway, me.account.plan))
            } @else {
                p.muted { "Only owners of the account can change the key’s limits." }
            }
            button.primary type="submit" { "Save" }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct ChangeForm {
    #[serde(default)]
    name: String,
    #[serde(flatten)]
    terms: TermsForm,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    SignedForm { me, form }: SignedForm<ChangeForm>,
) -> Result<Response, PortalError> {
    let key = own(&gateway, &me, &id).await?;
    let projects = gateway.ledger.projects(&me.account.id).await?;
    let Some(name) = names::checked(&form.name) else {
        let problem = Some(super::NAME_NEEDED);
        let page = page(&gateway, &me, &key, problem, Some(&form)).await?;
        return Ok(page.into_response());
    };
    if !me.is_owner() {
        // A developer does not lift the limits that bind them.
        let change = KeyChange {
            name: Some(name.to_owned()),
            ..KeyChange::default()
        };
        gateway.ledger.change_key(&key.id, change).await?;
        return Ok(me.redirect("/portal/keys", &saved(name, &key, Vec::new())));
    }
    let wanted = match form.terms.checked(&gateway, &projects, Some(&key)) {
        Ok(wanted) => wanted,
        Err(problem) => {
            let page = page(&gateway, &me, &key, Some(&problem), Some(&form)).await?;
            return Ok(page.into_response());
        }
    };
    let change = wanted.into_change(name);
    gateway.ledger.change_key(&key.id, change).await?;
    Ok(me.redirect("/portal/keys", &saved(name, &key, fields_of(&key))))
}

/// Undone by the name and the `terms` that the key had before.
fn saved(name: &str, before: &Key, terms: Vec<(String, String)>) -> Confirmation {
    let former = ("name".to_owned(), shown_name(before).to_owned());
    let fields: Vec<_> = [former].into_iter().chain(terms).collect();
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    Confirmation::new(format!("Key {name} saved."))
        .undone_by(&format!("/portal/keys/{}", before.id), &fields)
}
