//! The rules for rate-limit ceilings: for everyone, a model, an account, or an account with a model.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    access::{OperatorForm, SignedInOperator},
    account_filter::AccountFilter,
    account_names::AccountNames,
    frame::{self, Place},
};
use crate::{
    gateway::{
        Gateway,
        actions::{ActionError, LimitChange},
    },
    ledger::{Edit, LedgerError, LimitRule},
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        formatting::count,
        layout::{self, Page},
        query::{ReadQuery, non_empty},
        table::scrolled,
    },
};

#[derive(Deserialize)]
pub(crate) struct LimitsQuery {
    account: Option<String>,
}

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<LimitsQuery>,
) -> Result<Page, PortalError> {
    gateway.ledger.refresh().await?;
    let account = non_empty(query.account.as_ref()).unwrap_or_default();
    let defaults = gateway.ceilings;
    let rules = gateway.ledger.limits();
    let accounts = rules.iter().filter_map(|rule| rule.account.as_deref());
    let names = AccountNames::read(&gateway, accounts).await?;
    let content = html! {
        h1 { "Limits per minute" }
        p.muted {
            "Default: " (count(defaults.requests.into())) " requests and "
            (count(defaults.tokens.into())) " tokens, for each account and model. The most specific limit applies; an account's goes before a model's."
        }
        (table(&me, &rules, &names))
        h2 { "Set limit" }
        form.stack method="post" action="/portal/console/limits" {
            (me.token_field())
            label { "Account " span.muted { "(its ID or email; empty for all)" }
                input type="text" name="account" value=(account) autocomplete="off";
            }
            (models(&gateway))
            (ceiling("Requests per minute", "rpm"))
            (ceiling("Tokens per minute", "tpm"))
            button.primary type="submit" { "Set limit" }
        }
    };
    Ok(frame::page(&me, Place::Limits, "Limits", &content))
}

fn ceiling(label: &str, name: &str) -> Markup {
    html! {
        label { (label) " " span.muted { "(empty: the default)" }
            input type="text" name=(name) inputmode="numeric" autocomplete="off";
        }
    }
}

fn models(gateway: &Gateway) -> Markup {
    let routes = gateway.routes();
    html! {
        label { "Model"
            select name="model" {
                option value="" { "all models" }
                @for model in routes.catalog.models() { option value=(model.id) { (model.id) } }
            }
        }
    }
}

/// The rules of one account.
pub(crate) fn of_account(
    gateway: &Gateway,
    me: &SignedInOperator,
    id: &str,
    names: &AccountNames,
) -> Markup {
    let mut rules = gateway.ledger.limits();
    rules.retain(|rule| rule.account.as_deref() == Some(id));
    html! {
        @if rules.is_empty() { p.muted { "No limits of its own." } }
        @else { (table(me, &rules, names)) }
        p { a href={ "/portal/console/limits?account=" (layout::encoded(id)) } { "Set limit" } }
    }
}

fn table(me: &SignedInOperator, rules: &[LimitRule], names: &AccountNames) -> Markup {
    if rules.is_empty() {
        return html! { p.empty { "No limits set. The default applies to all." } };
    }
    let table = html! {
        table {
            caption { "Limits" }
            thead { tr {
                th scope="col" { "Account" }
                th scope="col" { "Model" }
                th.number scope="col" { "Requests" }
                th.number scope="col" { "Tokens" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody { @for rule in rules { (row(me, rule, names)) } }
        }
    };
    scrolled("Rules", &table)
}

fn row(me: &SignedInOperator, rule: &LimitRule, names: &AccountNames) -> Markup {
    let shown = |ceiling: Option<u32>| match ceiling {
        Some(ceiling) => count(ceiling.into()),
        None => "–".into(),
    };
    html! {
        tr {
            th scope="row" {
                @match &rule.account {
                    Some(id) => { (names.link(id)) },
                    None => { "all" },
                }
            }
            td { @match &rule.model { Some(id) => { code { (id) } }, None => { "all" } } }
            td.number { (shown(rule.requests)) }
            td.number { (shown(rule.tokens)) }
            td {
                form method="post" action="/portal/console/limits" {
                    (me.token_field())
                    input type="hidden" name="account" value=(rule.account.as_deref().unwrap_or_default());
                    input type="hidden" name="model" value=(rule.model.as_deref().unwrap_or_default());
                    button.quiet.bad type="submit" { "Remove" }
                }
            }
        }
    }
}

/// A rule as submitted. A rule without ceilings is removed.
#[derive(Deserialize)]
pub(crate) struct Change {
    account: Option<String>,
    model: Option<String>,
    rpm: Option<String>,
    tpm: Option<String>,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form }: OperatorForm<Change>,
) -> Result<Response, PortalError> {
    let account = AccountFilter::exactly(&gateway, non_empty(form.account.as_ref())).await?;
    let change = LimitChange {
        account: account
            .id()
            .map_err(PortalError::Invalid)?
            .map(str::to_owned),
        model: non_empty(form.model.as_ref()).map(str::to_owned),
        requests: read(form.rpm.as_ref())?,
        tokens: read(form.tpm.as_ref())?,
    };
    gateway.ledger.refresh().await?;
    let done = confirmation(&change, &gateway.ledger.limits());
    match me.actions(&gateway).change_limit(change).await {
        Err(ActionError::Ledger(LedgerError::NotFound { .. })) => {
            Err(PortalError::Invalid("There is no such account.".into()))
        }
        changed => {
            changed?;
            Ok(me.redirect("/portal/console/limits", &done))
        }
    }
}

/// What the change does; undone by the rule that there was, or by none.
fn confirmation(change: &LimitChange, rules: &[LimitRule]) -> Confirmation {
    let account = change.account.as_deref();
    let model = change.model.as_deref();
    let mut rules = rules.iter();
    let before =
        rules.find(|rule| (rule.account.as_deref(), rule.model.as_deref()) == (account, model));
    let ceiling = |of: fn(&LimitRule) -> Option<u32>| {
        let ceiling = before.and_then(of);
        ceiling.map_or_else(String::new, |ceiling| ceiling.to_string())
    };
    let [rpm, tpm] = [ceiling(|rule| rule.requests), ceiling(|rule| rule.tokens)];
    let removed = (change.requests, change.tokens) == (Edit::Clear, Edit::Clear);
    let text = if removed {
        "Limit removed."
    } else {
        "Limit saved. It applies from now on."
    };
    Confirmation::new(text).undone_by(
        "/portal/console/limits",
        &[
            ("account", account.unwrap_or_default()),
            ("model", model.unwrap_or_default()),
            ("rpm", &rpm),
            ("tpm", &tpm),
        ],
    )
}

fn read(field: Option<&String>) -> Result<Edit<u32>, PortalError> {
    let Some(text) = non_empty(field) else {
        return Ok(Edit::Clear);
    };
    let number = text.replace(',', "").parse();
    let unreadable = |_| PortalError::Invalid("A limit is a whole number, e.g. 60.".into());
    number.map(Edit::Set).map_err(unreadable)
}
