//! The versions of the configuration: who made each, when and why; what each changed; and going back to one.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{PATH, difference, page, shown::Shown};
use crate::{
    backoffice::ConfigVersion,
    config::changes::{Changes, Kind},
    gateway::{Gateway, Routes, actions::rolled_back},
    portal::{
        confirmation::Confirmation,
        console::{
            access::{OperatorForm, SignedInOperator},
            paging,
        },
        error::PortalError,
        formatting::moment,
        layout::Page,
        query::ReadQuery,
        table::scrolled,
    },
};

#[derive(Deserialize)]
pub(crate) struct HistoryQuery {
    before: Option<String>,
}

pub(crate) async fn versions(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    ReadQuery(query): ReadQuery<HistoryQuery>,
) -> Result<Page, PortalError> {
    let shown = Shown::now(&gateway).await?;
    let before = paging::cursor(query.before.as_ref(), "versions", |text| text.parse().ok())?;
    let listed = gateway.backoffice.config_versions(before, paging::QUERIED);
    let mut listed = listed.await?;
    let path = format!("{PATH}/history");
    let older = paging::cut(&mut listed).map(|last| format!("{path}?before={}", last.number));
    let newest = before.is_some().then_some(path);
    let content = html! {
        p.back { a href=(PATH) { "Configuration" } }
        h1 { "History" }
        p.muted { "Each version holds everything that differs from the file. Rolling back creates a new version, so nothing is lost." }
        @if listed.is_empty() { p.empty { "No changes yet." } }
        @else { (table(&me, &listed, &shown)) }
        (paging::links("versions", newest.as_deref(), older.as_deref()))
        @if !shown.newest.changes.is_empty() {
            h2 { "File only" }
            (roll_back_form(&me, 0, &shown, "Roll back to the file"))
        }
    };
    Ok(page(&me, &shown, "History of the configuration", &content))
}

fn table(me: &SignedInOperator, listed: &[ConfigVersion], shown: &Shown) -> Markup {
    let table = html! {
        table {
            caption { "Versions, newest first" }
            thead { tr {
                th scope="col" { "Version" }
                th scope="col" { "Time" }
                th scope="col" { "By" }
                th scope="col" { "Note" }
                th scope="col" { span.unseen { "Actions" } }
            } }
            tbody {
                @for version in listed {
                    tr {
                        th scope="row" data-label="Version" {
                            a href={ (PATH) "/history/" (version.number) } { "Version " (version.number) }
                            @if version.number == shown.in_use() { " " span.badge.good { "In use" } }
                        }
                        td { (moment(version.at_ms.div_euclid(1_000))) }
                        td { (version.actor) }
                        td.prose data-label="Note" { @if version.note.is_empty() { span.muted { "–" } } @else { (version.note) } }
                        td {
                            @if version.number != shown.newest.number {
                                (roll_back_form(me, version.number, shown, "Roll back to this"))
                            }
                        }
                    }
                }
            }
        }
    };
    scrolled("Versions", &table)
}

fn roll_back_form(me: &SignedInOperator, to: i64, shown: &Shown, label: &str) -> Markup {
    html! {
        form method="post" action={ (PATH) "/rollback" } {
            (me.token_field())
            input type="hidden" name="to" value=(to);
            input type="hidden" name="based_on" value=(shown.newest.number);
            button.quiet type="submit" { (label) @if to > 0 { span.unseen { ": version " (to) } } }
        }
    }
}

pub(crate) async fn version(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Path(number): Path<i64>,
) -> Result<Page, PortalError> {
    let shown = Shown::now(&gateway).await?;
    let found = gateway.backoffice.config_version(number).await?;
    let (version, content) = found.ok_or(PortalError::NotFound)?;
    let is = read(&content)?;
    let was = match gateway.backoffice.config_version(number - 1).await? {
        Some((_, content)) => read(&content)?,
        None => Changes::default(),
    };
    let content = html! {
        p.back { a href={ (PATH) "/history" } { "History" } }
        h1 { "Version " (number) }
        dl {
            dt { "Time" } dd { (moment(version.at_ms.div_euclid(1_000))) }
            dt { "By" } dd { (version.actor) }
            @if !version.note.is_empty() { dt { "Note" } dd { (version.note) } }
        }
        h2 { "Changes from the version before" }
        (changes_between(&shown.routes, &was, &is))
        @if number == shown.in_use() { p { span.badge.good { "In use" } } }
        @if number != shown.newest.number { (roll_back_form(&me, number, &shown, "Roll back to this")) }
    };
    Ok(page(&me, &shown, &format!("Version {number}"), &content))
}

fn read(content: &str) -> Result<Changes, PortalError> {
    Changes::parse(content).map_err(PortalError::Unavailable)
}

/// The entries that differ between two versions. Where one has no change, the file of today is shown.
fn changes_between(routes: &Routes, was: &Changes, is: &Changes) -> Markup {
    let mut entries: Vec<(Kind, String)> = Vec::new();
    for (one, other) in [(was, is), (is, was)] {
        let differing = one.all().filter(|(kind, name, change)| {
            let same = other.of(*kind).get(*name);
            same.map(|same| &same.set) != Some(&change.set)
        });
        entries.extend(differing.map(|(kind, name, _)| (kind, name.to_owned())));
    }
    entries.sort_unstable();
    entries.dedup();
    let texts = |changes: &Changes| {
        let all = Kind::ALL
            .into_iter()
            .flat_map(|kind| routes.base.entries(kind, changes));
        let all = all.map(|entry| {
            let text = entry.current_text().unwrap_or_default();
            ((entry.kind, entry.name), text)
        });
        all.collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (texts(was), texts(is));
    let text = |texts: &BTreeMap<_, String>, entry| texts.get(entry).cloned().unwrap_or_default();
    html! {
        @if entries.is_empty() { p.empty { "None." } }
        @for entry in &entries {
            h3 { span.muted { (entry.0.as_str()) } " " code { (entry.1) } }
            (difference(&text(&before, entry), &text(&after, entry)))
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct Rollback {
    #[serde(default)]
    to: String,
    #[serde(default)]
    based_on: String,
}

pub(crate) async fn roll_back(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form }: OperatorForm<Rollback>,
) -> Result<Response, PortalError> {
    let number = |text: &str| {
        let number: Option<i64> = text.parse().ok().filter(|number| *number >= 0);
        number.ok_or_else(|| PortalError::Invalid("There is no such version.".into()))
    };
    let (to, based_on) = (number(&form.to)?, number(&form.based_on)?);
    let actions = me.actions(&gateway);
    let number = actions.roll_back_configuration(to, based_on).await?;
    let what = rolled_back(to);
    let text = format!("Rolled back to {what}. Version {number} of the configuration is in use.");
    let (back, number) = (based_on.to_string(), number.to_string());
    let undo = [("to", back.as_str()), ("based_on", number.as_str())];
    let done = Confirmation::new(text).undone_by(&format!("{PATH}/rollback"), &undo);
    Ok(me.redirect(PATH, &done))
}
