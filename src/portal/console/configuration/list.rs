//! All entries with where each comes from, and what differs from the file.

use std::sync::Arc;

use axum::extract::State;
use maud::{Markup, html};
use toml::Value as Toml;

use super::{PATH, badge, edit_path, page, shown::Shown, title};
use crate::{
    api::operator::GONE_SECONDS,
    backoffice::{ConfigVersion, GatewayReport},
    base::timestamp,
    config::changes::{Entry, Kind},
    gateway::{Gateway, Routes},
    portal::{
        console::access::SignedInOperator, error::PortalError, formatting::moment, layout::Page,
        models::shown_rate, table::scrolled,
    },
};

/// Seconds after which a gateway that does not use the newest version is listed.
const LATE: i64 = 5;

pub(crate) async fn list(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
) -> Result<Page, PortalError> {
    let shown = Shown::now(&gateway).await?;
    let since = timestamp::now() - GONE_SECONDS;
    let reports = gateway.backoffice.config_reports(since).await?;
    let newest = gateway.backoffice.config_versions(None, 1).await?;
    let all: Vec<(Kind, Vec<Entry>)> = Kind::ALL
        .into_iter()
        .map(|kind| (kind, shown.entries(kind)))
        .collect();
    let changed: Vec<&Entry> = all
        .iter()
        .flat_map(|(_, entries)| entries)
        .filter(|entry| entry.change.is_some())
        .collect();
    let content = html! {
        h1 { "Configuration" }
        p {
            "Models, aliases, deployments and providers of the configuration file and the built-in catalog. What you change here \
             takes effect at once at every gateway, and stays until you change it again. The file is not changed."
        }
        (state(&shown, newest.first(), &reports))
        @if !changed.is_empty() { (differences(&changed, &shown)) }
        @for (kind, entries) in &all { (section(*kind, entries, &shown.routes)) }
    };
    Ok(page(&me, &shown, "Configuration", &content))
}

/// The version in use, here and at the other gateways.
fn state(shown: &Shown, newest: Option<&ConfigVersion>, reports: &[GatewayReport]) -> Markup {
    // A gateway reports a new version a moment after it was made.
    let is_behind = |report: &&GatewayReport| {
        let newest = newest.filter(|newest| report.number < newest.number);
        report.problem.is_some()
            || newest.is_some_and(|newest| newest.at_ms.div_euclid(1_000) + LATE < timestamp::now())
    };
    let behind: Vec<_> = reports.iter().filter(is_behind).collect();
    html! {
        p {
            @match shown.in_use() {
                0 => { "No changes: the file is used as it is." }
                number => { "Version " strong { (number) } " is in use." }
            }
            @if shown.newest.number > 0 { " " a href={ (PATH) "/history" } { "History" } }
        }
        @if !behind.is_empty() {
            h2 { "Gateways that use another version" }
            ul {
                @for report in behind {
                    li {
                        strong { (report.gateway) } " uses version " (report.number)
                        " (" (moment(report.seen_at)) ")"
                        @if let Some(problem) = &report.problem { ": " span.bad { (problem) } }
                    }
                }
            }
        }
    }
}

/// The changed entries beside what they replace.
fn differences(changed: &[&Entry], shown: &Shown) -> Markup {
    let now = match shown.newest.number {
        number if number == shown.in_use() => "In use".to_owned(),
        number => format!("Version {number}"),
    };
    let table = html! {
        table.sides {
            caption { "What differs from the file" }
            thead { tr {
                th scope="col" { "Entry" }
                th scope="col" { "File or built in" }
                th scope="col" { (now) }
            } }
            tbody {
                @for entry in changed {
                    tr {
                        th scope="row" data-label="Entry" {
                            span.muted { (entry.kind.as_str()) } " "
                            a href=(edit_path(entry.kind, &entry.name)) { code { (entry.name) } }
                            div { (badge(entry)) }
                        }
                        td data-label="File or built in" { (side(entry.original_text(), entry.current_text())) }
                        td data-label=(now) { (side(entry.current_text(), entry.original_text())) }
                    }
                }
            }
        }
    };
    html! {
        h2 { "Changed here" }
        (scrolled("What differs from the file", &table))
    }
}

/// The lines of one side that the other does not have.
fn side(text: Option<String>, other: Option<String>) -> Markup {
    let Some(text) = text else {
        return html! { span.muted { "none" } };
    };
    let other = other.unwrap_or_default();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !other.lines().any(|same| same == *line))
        .collect();
    html! {
        @if lines.is_empty() { span.muted { "no other differences" } }
        @else { pre.side { @for line in lines { (line) "\n" } } }
    }
}

fn section(kind: Kind, entries: &[Entry], routes: &Routes) -> Markup {
    let table = html! {
        table {
            caption { (entries.len()) " " @if entries.len() == 1 { (kind.as_str()) } @else { (kind.plural()) } }
            thead { tr {
                th scope="col" { "Name" }
                th scope="col" { "Settings" }
                th scope="col" { "From" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for entry in entries {
                    tr {
                        th scope="row" data-label="Name" { a href=(edit_path(kind, &entry.name)) { code { (entry.name) } } }
                        td data-label="Settings" { (summary(entry, routes)) }
                        td data-label="From" { (badge(entry)) }
                        td {
                            a href=(edit_path(kind, &entry.name)) {
                                @if entry.current().is_some() { "Edit" } @else { "Restore" }
                                span.unseen { " " (entry.name) }
                            }
                        }
                    }
                }
            }
        }
    };
    html! {
        h2 id=(kind.plural()) { (title(kind)) }
        @if entries.is_empty() { p.empty { "None." } }
        @else { (scrolled(title(kind), &table)) }
        p { a.button href={ (PATH) "/" (kind.plural()) "/new" } { "Add " (article(kind)) } }
    }
}

fn article(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "a model",
        Kind::Alias => "an alias",
        Kind::Deployment => "a deployment",
        Kind::Provider => "a provider",
    }
}

/// The most important settings of an entry.
fn summary(entry: &Entry, routes: &Routes) -> Markup {
    let Some(table) = entry.current() else {
        return html! { "–" };
    };
    let text = |key: &str| match table.get(key) {
        Some(Toml::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    match entry.kind {
        Kind::Model => {
            let Some(model) = routes.catalog.find(&entry.name) else {
                return html! { "–" };
            };
            let rates = &model.prices.rates;
            html! { (shown_rate(model, rates.input)) " in, " (shown_rate(model, rates.output)) " out; from tier " (model.min_tier) }
        }
        Kind::Alias => html! { "calls " code { (text("model")) } },
        Kind::Deployment => html! {
            code { (text("model")) } " by " code { (text("provider")) }
            @if !text("upstream_model").is_empty() { " as " code { (text("upstream_model")) } }
            @if !text("priority").is_empty() { "; priority " (text("priority")) }
            @if !text("weight").is_empty() { "; weight " (text("weight")) }
        },
        Kind::Provider => html! {
            (text("kind"))
            @if !text("base_url").is_empty() { " at " (text("base_url")) }
            @if !text("api_key_env").is_empty() { "; key in " code { (text("api_key_env")) } }
        },
    }
}
