//! The HTML frame of the console's pages.

use maud::{Markup, html};

use super::access::SignedInOperator;
use crate::portal::{
    assets,
    layout::{self, Page},
    sidebar::{Group, Side, Sidebar, entry, group},
};

/// Settings of htmx: no injected styles (the content security policy forbids them), no browser history, and
/// error responses are not swapped into the page.
const HTMX: &str =
    r#"{"includeIndicatorCSS":false,"history":false,"noSwap":[204,304,"4xx","5xx"]}"#;

/// The navigation entry that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Live,
    Requests,
    Margin,
    Accounts,
    People,
    Models,
    Configuration,
    Limits,
    Deployments,
    Alerts,
    Audit,
    Actions,
}

const PLACES: &[Group<Place>] = &[
    group(
        "Activity",
        &[
            entry(Place::Live, "/portal/console", "Live"),
            entry(Place::Requests, "/portal/console/requests", "Requests"),
            entry(Place::Margin, "/portal/console/margin", "Margin"),
        ],
    ),
    group(
        "Customers",
        &[
            entry(Place::Accounts, "/portal/console/accounts", "Accounts"),
            entry(Place::People, "/portal/console/people", "People"),
        ],
    ),
    group(
        "Setup",
        &[
            entry(Place::Models, "/portal/console/models", "Models"),
            entry(
                Place::Configuration,
                "/portal/console/config",
                "Configuration",
            ),
            entry(Place::Limits, "/portal/console/limits", "Limits"),
            entry(
                Place::Deployments,
                "/portal/console/deployments",
                "Deployments",
            ),
        ],
    ),
    group(
        "Checks",
        &[
            entry(Place::Alerts, "/portal/console/alerts", "Alerts"),
            entry(Place::Audit, "/portal/console/audit", "Audit"),
            entry(Place::Actions, "/portal/console/actions", "Actions"),
        ],
    ),
];

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
    let sidebar = Sidebar {
        side: Side::Console,
        has_other_side: me.has_account(),
        groups: PLACES,
        current: place,
        who: [me.actor(); 2],
        token_field: me.token_field(),
    };
    let sidebar = sidebar.shown(|_| true, |place| badge(me, place));
    layout::beside(&sidebar, me.done.as_ref(), title, &head, content)
}

/// The number of open alerts behind their entry.
fn badge(me: &SignedInOperator, place: Place) -> Markup {
    html! {
        @if place == Place::Alerts && me.open_alerts > 0 {
            " " span.badge.bad { (me.open_alerts) span.unseen { " open" } }
        }
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
