//! The HTML frame of the console's pages.

use maud::{Markup, html};

use super::access::SignedInOperator;
use crate::portal::{
    assets,
    layout::{self, Page},
};

/// Settings of htmx: no injected styles (the content security policy forbids them), no browser history, and
/// error responses are not swapped into the page.
const HTMX: &str =
    r#"{"includeIndicatorCSS":false,"history":false,"noSwap":[204,304,"4xx","5xx"]}"#;

/// The navigation entry that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Live,
    Accounts,
    People,
    Requests,
    Models,
    Configuration,
    Limits,
    Deployments,
    Margin,
    Audit,
    Alerts,
    Actions,
}

impl Place {
    const ALL: [Self; 12] = [
        Self::Live,
        Self::Accounts,
        Self::People,
        Self::Requests,
        Self::Models,
        Self::Configuration,
        Self::Limits,
        Self::Deployments,
        Self::Margin,
        Self::Audit,
        Self::Alerts,
        Self::Actions,
    ];

    fn link(self) -> (&'static str, &'static str) {
        match self {
            Self::Live => ("/portal/console", "Live"),
            Self::Accounts => ("/portal/console/accounts", "Accounts"),
            Self::People => ("/portal/console/people", "People"),
            Self::Requests => ("/portal/console/requests", "Requests"),
            Self::Models => ("/portal/console/models", "Models"),
            Self::Configuration => ("/portal/console/config", "Configuration"),
            Self::Limits => ("/portal/console/limits", "Limits"),
            Self::Deployments => ("/portal/console/deployments", "Deployments"),
            Self::Margin => ("/portal/console/margin", "Margin"),
            Self::Audit => ("/portal/console/audit", "Audit"),
            Self::Alerts => ("/portal/console/alerts", "Alerts"),
            Self::Actions => ("/portal/console/actions", "Actions"),
        }
    }
}

pub(crate) fn page(me: &SignedInOperator, place: Place, title: &str, content: &Markup) -> Page {
    page_with(me, place, title, &html! {}, content)
}

/// A page with additional elements in its head.
pub(crate) fn page_with(
    me: &SignedInOperator,
    place: Place,
    title: &str,
    more: &Markup,
    content: &Markup,
) -> Page {
    let head = html! {
        link rel="stylesheet" href=(assets::path("console.css"));
        (more)
        @if place == Place::Live {
            meta name="htmx-config" content=(HTMX);
            script src=(assets::path("htmx.js")) defer {}
        }
    };
    let body = html! {
        header.top.console {
            a.brand href="/portal/console" { (assets::logo()) "Tollgate console" }
            nav aria-label="Console" {
                ul {
                    @for one in Place::ALL {
                        @let (path, name) = one.link();
                        li {
                            a href=(path) aria-current=[(one == place).then_some("page")] {
                                (name)
                                @if one == Place::Alerts && me.open_alerts > 0 {
                                    " " span.badge.bad { (me.open_alerts) span.unseen { " open" } }
                                }
                            }
                        }
                    }
                    @if me.has_account() {
                        li { a href="/portal" { "Portal" } }
                    }
                }
            }
            div.user {
                button.quiet.theme type="button" hidden data-theme-switch { "Theme" }
                span.muted title=(me.actor()) { (me.actor()) }
                form method="post" action="/portal/console/sign-out" {
                    (me.token_field())
                    button.quiet type="submit" { "Sign out" }
                }
            }
        }
        (layout::main_content(me.done.as_ref(), content))
    };
    layout::framed(title, &head, &body).confirming(me.done.as_ref())
}

/// A container that scrolls horizontally if the table is too wide.
pub(crate) fn scrolled(label: &str, table: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) { (table) }
    }
}

/// A form to search a list by text.
pub(crate) fn search(list: &str, label: &str, text: &str) -> Markup {
    html! {
        form.inline method="get" action=(list) role="search" {
            label { (label)
                input type="search" name="text" value=(text) autocomplete="off";
            }
            button.primary type="submit" { "Search" }
            @if !text.is_empty() { a.button href=(list) { "Show all" } }
        }
    }
}
