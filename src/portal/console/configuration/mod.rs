//! The configuration pages: models, aliases, deployments and providers with where each comes from, forms to change them,
//! a preview of each change, and the history of versions.

use maud::{Markup, html};

mod draft;
mod edit;
mod fields;
mod history;
mod list;
mod preview;
mod shown;
mod values;

use self::shown::Shown;
pub(super) use self::{
    edit::{create, edit},
    history::{roll_back, version, versions},
    list::list,
    preview::submit,
};
use super::{
    access::SignedInOperator,
    frame::{self, Place},
};
use crate::{
    config::changes::{Entry, Kind, LineChange, Source},
    portal::{
        assets,
        layout::{self, Page},
    },
};

pub(super) const PATH: &str = "/portal/console/config";

fn page(me: &SignedInOperator, shown: &Shown, title: &str, content: &Markup) -> Page {
    let head = html! { link rel="stylesheet" href=(assets::path("config.css")); };
    let content = html! { (shown.problem()) (content) };
    frame::page_with(me, Place::Configuration, title, &head, &content)
}

/// The path of an entry's form.
pub(crate) fn edit_path(kind: Kind, name: &str) -> String {
    format!(
        "{PATH}/{}/edit?name={}",
        kind.plural(),
        layout::encoded(name)
    )
}

/// A kind as a title.
fn title(kind: Kind) -> &'static str {
    match kind {
        Kind::Model => "Models",
        Kind::Alias => "Aliases",
        Kind::Deployment => "Deployments",
        Kind::Provider => "Providers",
    }
}

/// Where an entry comes from.
fn badge(entry: &Entry) -> Markup {
    let (class, label) = match entry.source() {
        Source::BuiltIn => ("badge", "Built in"),
        Source::File => ("badge", "File"),
        Source::Changed => ("badge good", "Changed here"),
        Source::Added => ("badge good", "Added here"),
        Source::Removed => ("badge bad", "Removed here"),
    };
    html! {
        span class=(class) { (label) }
        @if entry.is_outdated() { " " span.badge.bad { "File changed since" } }
    }
}

/// What differs between two texts, line by line.
fn difference(before: &str, after: &str) -> Markup {
    let lines = crate::config::changes::lines(before, after);
    html! {
        pre.difference tabindex="0" role="region" aria-label="Difference" {
            @for line in &lines {
                @match line {
                    LineChange::Same(line) => { span.same { "  " (line) } "\n" }
                    LineChange::Removed(line) => { del { span aria-hidden="true" { "− " } span.unseen { "Removed: " } (line) } "\n" }
                    LineChange::Added(line) => { ins { span aria-hidden="true" { "+ " } span.unseen { "Added: " } (line) } "\n" }
                }
            }
        }
    }
}

/// What is wrong, in the form of `tollgate check`.
fn mistakes(mistakes: &[String]) -> Markup {
    html! {
        div.problem role="alert" {
            p { @if mistakes.len() == 1 { "This cannot be applied:" } @else { "This cannot be applied, for " (mistakes.len()) " reasons:" } }
            ul { @for mistake in mistakes { li { (mistake) } } }
        }
    }
}
