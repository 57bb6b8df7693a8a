//! The models page: enable, disable, list and unlist models of the catalog.

use std::{sync::Arc, time::Instant};

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{OperatorForm, SignedInOperator},
    frame::{self, Place, scrolled},
};
use crate::{
    catalog::Model,
    gateway::{Gateway, Routes},
    portal::{
        error::PortalError,
        layout::{self, Page},
        models::rate_per_million,
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
        p.muted { "A model that is disabled is not found from the next request on. One that is unlisted is shown nowhere, and can be called by its ID." }
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
            td.number { (rate_per_million(model.prices.rates.input)) }
            td.number { (rate_per_million(model.prices.rates.output)) }
            td { (upstreams(routes, model)) }
            td {
                @if settings.enabled { span.badge.good { "enabled" } } @else { span.badge.bad { "disabled" } }
                @if unlisted { " " span.badge { "unlisted" } }
            }
            td {
                div.actions {
                    (form("enabled", !settings.enabled, if settings.enabled { "Disable" } else { "Enable" }))
                    (form("unlisted", !unlisted, if unlisted { "List" } else { "Unlist" }))
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
    actions.change_model(form.model, enabled, unlisted).await?;
    Ok(layout::redirect("/portal/console/models"))
}

fn flag(sent: Option<&str>) -> Result<Option<bool>, PortalError> {
    match sent {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(PortalError::Invalid("That is neither yes nor no.".into())),
    }
}
