//! The HTML frame of every page: head, sidebar and content.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    assets,
    confirmation::Pending,
    rights,
    session::SignedIn,
    sidebar::{Entry, Group, Side, Sidebar, entry, group},
    table, test_mode,
};

/// A complete HTML page.
pub(crate) struct Page {
    html: Markup,
    /// The confirmation that it shows.
    done: Option<Pending>,
}

impl Page {
    /// Deletes the confirmation that the page shows, so that it is shown once.
    fn confirming(mut self, done: Option<&Pending>) -> Self {
        self.done = done.cloned();
        self
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.html.into_string()));
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, html);
        if let Some(done) = self.done {
            headers.append(header::SET_COOKIE, done.forget());
        }
        response
    }
}

/// The navigation entry that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Overview,
    Keys,
    Projects,
    Playground,
    Models,
    Requests,
    Usage,
    Billing,
    Budgets,
    Plan,
    Members,
    Settings,
}

/// The navigation. An entry is shown to the roles that may open its path (`rights.rs`).
const PLACES: &[Group<Place>] = &[
    group("", &[entry(Place::Overview, "/portal", "Overview")]),
    group(
        "Build",
        &[
            entry(Place::Keys, "/portal/keys", "API keys"),
            entry(Place::Projects, "/portal/projects", "Projects"),
            entry(Place::Playground, "/portal/playground", "Playground"),
            entry(Place::Models, "/portal/models", "Models"),
        ],
    ),
    group(
        "Activity",
        &[
            entry(Place::Requests, "/portal/requests", "Requests"),
            entry(Place::Usage, "/portal/usage", "Usage"),
        ],
    ),
    group(
        "Money",
        &[
            entry(Place::Billing, "/portal/billing", "Billing"),
            entry(Place::Budgets, "/portal/budgets", "Budgets"),
            entry(Place::Plan, "/portal/plan", "Plan and limits"),
        ],
    ),
    group(
        "Account",
        &[
            entry(Place::Members, "/portal/members", "Members"),
            entry(Place::Settings, "/portal/settings", "Settings"),
        ],
    ),
];

/// A page for a signed-in person.
pub(crate) fn page(me: &SignedIn, place: Place, title: &str, content: &Markup) -> Page {
    page_with(me, place, title, &html! {}, content)
}

/// A page for a signed-in person, with additional elements in its head.
pub(crate) fn page_with(
    me: &SignedIn,
    place: Place,
    title: &str,
    head: &Markup,
    content: &Markup,
) -> Page {
    let email = me.person.email.as_str();
    let sidebar = Sidebar {
        side: Side::Portal,
        has_other_side: me.sees_console,
        groups: PLACES,
        current: place,
        who: [me.person.name.as_deref().unwrap_or(email), email],
        token_field: me.token_field(),
    };
    let open =
        |entry: &Entry<Place>| rights::of_route(entry.path).is_some_and(|right| me.may(right));
    let sidebar = sidebar.shown(open, |_| html! {});
    beside(&sidebar, me.done.as_ref(), title, head, content)
}

/// A page with this sidebar.
pub(crate) fn beside(
    sidebar: &Markup,
    done: Option<&Pending>,
    title: &str,
    head: &Markup,
    content: &Markup,
) -> Page {
    let body = html! {
        div.framed {
            (sidebar)
            main #content tabindex="-1" {
                (test_mode::notice())
                @if let Some(done) = done { (done.shown()) }
                (table::labelled(content))
            }
        }
    };
    framed(title, head, &body).confirming(done)
}

/// A page without navigation, for visitors without a session and for errors.
pub(crate) fn plain(title: &str, content: &Markup) -> Page {
    plain_with(title, &html! {}, content)
}

/// A page without navigation, with additional elements in its head.
pub(crate) fn plain_with(title: &str, head: &Markup, content: &Markup) -> Page {
    let body = html! {
        header.top.plain { a.brand href="/portal" { (assets::logo()) "Tollgate" } }
        main.narrow #content tabindex="-1" {
            (test_mode::notice())
            (content)
        }
    };
    framed(title, head, &body)
}

/// The document around a body, with additional elements in its head.
pub(crate) fn framed(title: &str, head: &Markup, body: &Markup) -> Page {
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (title) " · Tollgate" }
                link rel="icon" type="image/svg+xml" href=(assets::path("icon.svg"));
                link rel="stylesheet" href=(assets::path("portal.css"));
                link rel="stylesheet" href=(assets::path("pages.css"));
                script src=(assets::path("theme.js")) {}
                script src=(assets::path("portal.js")) defer {}
                script src=(assets::path("times.js")) defer {}
                (head)
            }
            body {
                a.skip href="#content" { "Skip to content" }
                (body)
            }
        }
    };
    Page { html, done: None }
}

/// A 303 redirect: the browser follows with a GET, whatever the method of its request was.
pub(crate) fn redirect(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/portal"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}

/// Percent-encodes a text for use in a query string.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}
