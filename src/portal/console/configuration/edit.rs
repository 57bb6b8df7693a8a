//! The form of one entry.

use std::sync::Arc;

use axum::extract::{Path, State};
use maud::{Markup, html};
use serde::Deserialize;

use super::{
    PATH, badge,
    draft::{Draft, Intent},
    fields::{Field, Input},
    mistakes, page,
    shown::Shown,
};
use crate::{
    config::changes::{Entry, Kind, Source},
    gateway::Gateway,
    portal::{
        console::access::SignedInOperator, error::PortalError, layout::Page, query::ReadQuery,
    },
};

#[derive(Deserialize)]
pub(crate) struct Named {
    #[serde(default)]
    name: String,
}

pub(super) fn read_kind(plural: &str) -> Result<Kind, PortalError> {
    Kind::parse(plural).ok_or(PortalError::NotFound)
}

pub(crate) async fn edit(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Path(kind): Path<String>,
    ReadQuery(query): ReadQuery<Named>,
) -> Result<Page, PortalError> {
    let kind = read_kind(&kind)?;
    let shown = Shown::now(&gateway).await?;
    let entry = shown.entry(kind, &query.name);
    let entry = entry.ok_or(PortalError::NotFound)?;
    let draft = Draft::of_entry(kind, Some(&entry), &shown);
    Ok(form_page(&me, &shown, &draft, &[], None))
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    me: SignedInOperator,
    Path(kind): Path<String>,
) -> Result<Page, PortalError> {
    let kind = read_kind(&kind)?;
    let shown = Shown::now(&gateway).await?;
    let draft = Draft::of_entry(kind, None, &shown);
    Ok(form_page(&me, &shown, &draft, &[], None))
}

/// The form with what was typed, and what is wrong with it.
pub(super) fn form_page(
    me: &SignedInOperator,
    shown: &Shown,
    draft: &Draft,
    wrong: &[String],
    conflict: Option<&Markup>,
) -> Page {
    let kind = draft.kind;
    let entry = shown.entry(kind, &draft.name);
    let entry = entry.as_ref().filter(|_| !draft.is_new);
    let title = match entry {
        Some(entry) => format!("{} {}", capital(kind), entry.name),
        None => format!("New {}", kind.as_str()),
    };
    let content = html! {
        p.back { a href={ (PATH) "#" (kind.plural()) } { "Configuration" } }
        h1 { (title) }
        @if let Some(conflict) = conflict { (conflict) }
        @if !wrong.is_empty() { (mistakes(wrong)) }
        @if let Some(entry) = entry { (about(entry)) }
        @if entry.is_some_and(Entry::is_hidden) {
            p.notice { "This provider’s URL has a password in it, which is not shown. Change it in the file." }
        } @else {
            (form(me, draft))
        }
        @if let Some(entry) = entry { (further(me, draft, entry)) }
    };
    page(me, shown, &title, &content)
}

fn capital(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "Model",
        Kind::Alias => "Alias",
        Kind::Deployment => "Deployment",
        Kind::Provider => "Provider",
    }
}

fn about(entry: &Entry) -> Markup {
    html! {
        p { (badge(entry)) }
        @if entry.is_outdated() {
            p.notice {
                @match entry.original.is_some() {
                    true => "The file’s entry changed after this change was made here. The change made here applies.",
                    false => "The file no longer has this entry. The change made here applies.",
                }
            }
        }
    }
}

fn form(me: &SignedInOperator, draft: &Draft) -> Markup {
    let kind = draft.kind;
    html! {
        form.stack method="post" action={ (PATH) "/" (kind.plural()) } {
            (me.token_field())
            input type="hidden" name="based_on" value=(draft.based_on);
            @if draft.is_new { input type="hidden" name="new" value="yes"; }
            @if draft.is_new && kind != Kind::Deployment {
                label {
                    (name_label(kind))
                    input type="text" name="name" required maxlength="200" value=(draft.name) autocomplete="off" spellcheck="false";
                }
            } @else {
                input type="hidden" name="name" value=(draft.name);
            }
            @for (field, value) in &draft.values { (input(field, value)) }
            label {
                "Other settings " span.muted { "(TOML, one line each; as in the file)" }
                textarea.code name="rest" rows=(draft.rest.lines().count().clamp(3, 16)) spellcheck="false" autocapitalize="off" { (draft.rest) }
            }
            label {
                "Note " span.muted { "(for the history)" }
                input type="text" name="note" maxlength="500" value=(draft.note) autocomplete="off";
            }
            button.primary type="submit" name="do" value="preview" { "Preview" }
        }
    }
}

fn name_label(kind: Kind) -> Markup {
    match kind {
        Kind::Model => html! { "ID " span.muted { "(name used in requests, e.g. house-model)" } },
        Kind::Alias => html! { "Alias " span.muted { "(a name, or its beginning and *)" } },
        _ => html! { "Name" },
    }
}

fn input(field: &Field, value: &str) -> Markup {
    let name = format!("f.{}", field.key);
    let label = html! {
        (field.label)
        @if !field.hint.is_empty() { " " span.muted { "(" (field.hint) ")" } }
    };
    match &field.input {
        Input::Choice(options) => {
            let is_known = options.iter().any(|(option, _)| option == value);
            html! {
                label { (label)
                    select name=(name) {
                        @if !is_known && !value.is_empty() { option value=(value) selected { (value) } }
                        @for (option, shown) in options { option value=(option) selected[option == value] { (shown) } }
                    }
                }
            }
        }
        Input::LongText => html! {
            label { (label) textarea name=(name) rows="3" { (value) } }
        },
        Input::Price => html! {
            label { (label) span.money { span aria-hidden="true" { "$" } input type="text" inputmode="decimal" name=(name) value=(value) autocomplete="off"; } }
        },
        Input::Number => html! {
            label { (label) input type="text" inputmode="numeric" name=(name) value=(value) autocomplete="off"; }
        },
        Input::Text | Input::Names => html! {
            label { (label) input type="text" name=(name) value=(value) autocomplete="off" spellcheck="false"; }
        },
    }
}

/// Going back to the file, and removing. Both are previewed first.
fn further(me: &SignedInOperator, draft: &Draft, entry: &Entry) -> Markup {
    let button = |intent: Intent, label: &str| {
        html! {
            form.inline method="post" action={ (PATH) "/" (draft.kind.plural()) } {
                (me.token_field())
                input type="hidden" name="based_on" value=(draft.based_on);
                input type="hidden" name="name" value=(entry.name);
                input type="hidden" name="intent" value=(intent.as_str());
                button.quiet.bad[intent == Intent::Remove] type="submit" name="do" value="preview" { (label) }
            }
        }
    };
    let source = entry.source();
    html! {
        div.actions {
            @if matches!(source, Source::Changed | Source::Removed) { (button(Intent::Revert, "Back to the file’s settings…")) }
            @if source == Source::Added { (button(Intent::Revert, "Remove…")) }
            @if !matches!(source, Source::Added | Source::Removed) { (button(Intent::Remove, "Remove…")) }
        }
    }
}
