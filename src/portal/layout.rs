//! The HTML frame of every page: head, header and navigation.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{assets, confirmation::Pending, rights, session::SignedIn};

/// A complete HTML page.
pub(crate) struct Page {
    html: Markup,
    /// The confirmation that it shows.
    done: Option<Pending>,
}

impl Page {
    /// Deletes the confirmation that the page shows, so that it is shown once.
    pub(crate) fn confirming(mut self, done: Option<&Pending>) -> Self {
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
    Playground,
    Usage,
    Requests,
    Billing,
    Budgets,
    Plan,
    Models,
    Members,
    Settings,
}

impl Place {
    const ALL: [Self; 11] = [
        Self::Overview,
        Self::Keys,
        Self::Playground,
        Self::Usage,
        Self::Requests,
        Self::Billing,
        Self::Budgets,
        Self::Plan,
        Self::Models,
        Self::Members,
        Self::Settings,
    ];

    fn link(self) -> (&'static str, &'static str) {
        match self {
            Self::Overview => ("/portal", "Overview"),
            Self::Keys => ("/portal/keys", "API keys"),
            Self::Playground => ("/portal/playground", "Playground"),
            Self::Usage => ("/portal/usage", "Usage"),
            Self::Requests => ("/portal/requests", "Requests"),
            Self::Billing => ("/portal/billing", "Billing"),
            Self::Budgets => ("/portal/budgets", "Budgets"),
            Self::Plan => ("/portal/plan", "Plan and limits"),
            Self::Models => ("/portal/models", "Models"),
            Self::Members => ("/portal/members", "Members"),
            Self::Settings => ("/portal/settings", "Settings"),
        }
    }

    /// The entries that a person's role may open.
    fn open_to(me: &SignedIn) -> impl Iterator<Item = Self> {
        let places = Self::ALL.into_iter();
        places.filter(|place| rights::of_route(place.link().0).is_some_and(|right| me.may(right)))
    }
}

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
    let who = me.person.name.as_deref().unwrap_or(&me.person.email);
    let body = html! {
        header.top {
            a.brand href="/portal" { (assets::logo()) "Tollgate" }
            nav aria-label="Portal" {
                ul {
                    @for one in Place::open_to(me) {
                        @let (path, name) = one.link();
                        li { a href=(path) aria-current=[(one == place).then_some("page")] { (name) } }
                    }
                    @if me.sees_console {
                        li { a href="/portal/console" { "Console" } }
                    }
                }
            }
            div.user {
                button.quiet.theme type="button" hidden data-theme-switch { "Theme" }
                span.muted title=(me.person.email) { (who) }
                form method="post" action="/portal/sign-out" {
                    (me.token_field())
                    button.quiet type="submit" { "Sign out" }
                }
            }
        }
        (main_content(me.done.as_ref(), content))
    };
    framed(title, head, &body).confirming(me.done.as_ref())
}

/// The content of a page, below what the form before it has done.
pub(crate) fn main_content(done: Option<&Pending>, content: &Markup) -> Markup {
    html! {
        main #content tabindex="-1" {
            @if let Some(done) = done { (done.shown()) }
            (content)
        }
    }
}

/// A page without navigation, for visitors without a session and for errors.
pub(crate) fn plain(title: &str, content: &Markup) -> Page {
    plain_with(title, &html! {}, content)
}

/// A page without navigation, with additional elements in its head.
pub(crate) fn plain_with(title: &str, head: &Markup, content: &Markup) -> Page {
    let body = html! {
        header.top.plain { a.brand href="/portal" { (assets::logo()) "Tollgate" } }
        main.narrow #content tabindex="-1" { (content) }
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
                a.skip href="#content" { "To the content" }
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
