//! The models page: turn models of the catalog on and off, list and unlist them. Turning one off asks first.

use std::{sync::Arc, time::Instant};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{OperatorForm, SignedInOperator},
    configuration,
    frame::{self, Place},
};
use crate::{
    catalog::Model,
    config::changes::Kind,
    gateway::{Gateway, Routes},
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        layout::{self, Page},
        models::shown_rate,
        query::ReadQuery,
        table::scrolled,
    },
};

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
) -> Result<Page, PortalError> {
    gateway.ledger.refresh().await?;
    let routes = gateway.routes();
    let table = html! {
        table {
            caption { "Models of the catalog, with prices per million tokens" }
            thead { tr {
                th scope="col" { "Model" }
                th scope="col" { "From tier" }
                th.number scope="col" { "Input" }
                th.number scope="col" { "Output" }
                th scope="col" { "Upstreams" }
                th scope="col" { "State" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody { @for model in routes.catalog.models() { (row(&gateway, &routes, &me, model)) } }
        }
    };
    let content = html! {
        h1 { "Models" }
        p.muted {
            "Requests for a disabled model get 404. An unlisted model is not shown to customers, but can be called by its ID. "
            "A hybrid’s price is the most it can be: a call costs what the chosen model costs."
        }
        (scrolled("Models", &table))
    };
    Ok(frame::page(&me, Place::Models, "Models", &content))
}

fn row(gateway: &Gateway, routes: &Routes, me: &SignedInOperator, model: &Model) -> Markup {
    let settings = gateway.ledger.model_settings(&model.id);
    let unlisted = settings.unlisted.unwrap_or(model.unlisted);
    let form = |name: &str, value: bool, verb: &str| {
        html! {
            form method="post" action="/portal/console/models" {
                (me.token_field())
                input type="hidden" name="model" value=(model.id);
                input type="hidden" name=(name) value=(value);
                button.quiet type="submit" { (verb) span.unseen { " " (model.id) } }
            }
        }
    };
    html! {
        tr {
            th scope="row" { code { (model.id) } " " span.muted { (model.name) } }
            td { (model.min_tier) }
            td.number { (shown_rate(model, model.prices.rates.input)) }
            td.number { (shown_rate(model, model.prices.rates.output)) }
            td { (upstreams(routes, model)) }
            td {
                @if settings.enabled { span.badge.good { "enabled" } } @else { span.badge.bad { "disabled" } }
                @if unlisted { " " span.badge { "unlisted" } }
            }
            td {
                div.actions {
                    @if settings.enabled {
                        a.button.quiet href=(disable_path(&model.id)) { "Disable" span.unseen { " " (model.id) } }
                    } @else {
                        (form("enabled", true, "Enable"))
                    }
                    (form("unlisted", !unlisted, if unlisted { "List" } else { "Unlist" }))
                    a href=(configuration::edit_path(Kind::Model, &model.id)) { "Edit" span.unseen { " " (model.id) } }
                }
            }
        }
    }
}

fn upstreams(routes: &Routes, model: &Model) -> Markup {
    html! {
        @if model.is_hybrid() {
            "chooses among " (model.targets.len())
        } @else {
            @let deployments = &routes.deployments;
            (deployments.count(&model.id))
            @if deployments.count(&model.id) == 0 { " " span.badge.bad { "none" } }
            @else if !deployments.is_healthy(&model.id, Instant::now()) { " " span.badge.bad { "all circuits open" } }
        }
    }
}

fn disable_path(id: &str) -> String {
    format!(
        "/portal/console/models/disable?model={}",
        layout::encoded(id)
    )
}

#[derive(Deserialize)]
pub(crate) struct Named {
    #[serde(default)]
    model: String,
}

/// Asks before a model is turned off for all accounts.
pub(crate) async fn confirm_disable(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<Named>,
) -> Result<Page, PortalError> {
    let routes = gateway.routes();
    let model = routes.catalog.find(&query.model);
    let model = model.ok_or(PortalError::NotFound)?;
    let mut hybrids = routes
        .catalog
        .models()
        .filter(|one| one.targets.contains(&model.id));
    let first = hybrids.next();
    let title = format!("Disable {}?", model.id);
    let content = html! {
        h1 { (title) }
        p { "It can no longer be called: every request for it gets 404 " code { "model_not_found" } ". Running requests finish. You can enable it again at any time." }
        @if let Some(first) = first {
            p {
                "These hybrids then choose among their other models: " code { (first.id) }
                @for hybrid in hybrids { ", " code { (hybrid.id) } }
                "."
            }
        }
        form.inline method="post" action="/portal/console/models" {
            (me.token_field())
            input type="hidden" name="model" value=(model.id);
            input type="hidden" name="enabled" value="false";
            button.bad type="submit" { "Disable for all accounts" }
            a.button href="/portal/console/models" { "Cancel" }
        }
    };
    Ok(frame::page(&me, Place::Models, &title, &content))
}

#[derive(Deserialize)]
pub(crate) struct Change {
    #[serde(default)]
    model: String,
    enabled: Option<String>,
    unlisted: Option<String>,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form }: OperatorForm<Change>,
) -> Result<Response, PortalError> {
    let enabled = flag(form.enabled.as_deref())?;
    let unlisted = flag(form.unlisted.as_deref())?;
    let actions = me.actions(&gateway);
    let model = actions.change_model(form.model, enabled, unlisted).await?;
    let (done, field, back) = match (enabled, unlisted) {
        (Some(true), _) => ("enabled", "enabled", "false"),
        (Some(false), _) => ("disabled", "enabled", "true"),
        (None, Some(true)) => ("unlisted", "unlisted", "false"),
        (None, _) => ("listed", "unlisted", "true"),
    };
    let undo = [("model", model.id.as_str()), (field, back)];
    let done = Confirmation::new(format!("Model {} is {done}.", model.id))
        .undone_by("/portal/console/models", &undo);
    Ok(me.redirect("/portal/console/models", &done))
}

fn flag(sent: Option<&str>) -> Result<Option<bool>, PortalError> {
    match sent {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(PortalError::Invalid("Invalid value.".into())),
    }
}
