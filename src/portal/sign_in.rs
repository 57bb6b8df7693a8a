//! Signing in with a password, and with a code if two-factor authentication is on; signing out.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

pub(crate) mod code;
mod pending;

use super::{
    confirmation::Confirmation,
    cookies::{self, Device, Kind, SESSION_SECONDS, Token},
    error::PortalError,
    form::{EmptyForm, OpenForm, SignedForm},
    layout, oidc,
    session::{agent, token_field},
    starter,
};
use crate::{
    api::Peer,
    backoffice::{Attempt, NewSession, Person, Session},
    base::timestamp,
    gateway::Gateway,
};

#[derive(Deserialize)]
pub(crate) struct SignInQuery {
    #[serde(default)]
    to: String,
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Query(query): Query<SignInQuery>,
    headers: HeaderMap,
) -> Response {
    if is_cross_site(&headers) {
        return refresh_to(&query.to);
    }
    with_visit(&gateway, &headers, |visit| {
        form(&gateway, visit, &query.to, "", None)
    })
}

/// Whether the browser follows a link from another site. Its request then lacks our `SameSite=Strict` cookies;
/// a page of ours that loads the link again ([`refresh_to`]) makes the browser send them.
pub(crate) fn is_cross_site(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site == "cross-site" || site == "same-site")
}

/// A page that opens `to` by a meta refresh, i.e. with a request from our own site.
pub(crate) fn refresh_to(to: &str) -> Response {
    let to = destination(to);
    let content = html! {
        meta http-equiv="refresh" content={ "0; url=" (to) };
        p { a href=(to) { "Continue" } }
    };
    layout::plain("One moment", &content).into_response()
}

/// Renders a page whose form is tied to this browser by the visit cookie, which is set if missing.
pub(crate) fn with_visit(
    gateway: &Gateway,
    headers: &HeaderMap,
    page: impl FnOnce(&Token) -> Response,
) -> Response {
    let secure = gateway.portal.is_secure();
    let before = Token::presented(headers, Kind::Visit, secure);
    let is_new = before.is_none();
    let visit = before.unwrap_or_else(Token::generate);
    let mut response = page(&visit);
    if is_new {
        let cookie = visit.set(Kind::Visit, secure);
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

fn form(
    gateway: &Gateway,
    visit: &Token,
    to: &str,
    email: &str,
    problem: Option<&str>,
) -> Response {
    let content = html! {
        h1 { "Sign in" }
        (problem_notice(problem))
        (oidc::sign_in_button(gateway, to))
        form.stack method="post" action="/portal/sign-in" {
            (token_field(visit))
            input type="hidden" name="to" value=(to);
            label { "Email"
                input type="email" name="email" value=(email) required autocomplete="username" autofocus[email.is_empty()];
            }
            label { "Password"
                input type="password" name="password" required autocomplete="current-password" autofocus[!email.is_empty()];
            }
            button.primary type="submit" { "Sign in" }
        }
        @if gateway.mail.is_some() {
            p.muted { a href="/portal/forgotten" { "Forgot your password?" } }
        } @else {
            p.muted { "Forgot your password? Ask the operator of this gateway for a link to set a new one." }
        }
        @if gateway.portal.sign_up_open {
            p.muted { "New here? " a href="/portal/sign-up" { "Create account" } }
        } @else {
            p.muted { "Accounts are created by the operator of this gateway." }
        }
    };
    layout::plain("Sign in", &content).into_response()
}

/// An error message, announced by screen readers.
pub(crate) fn problem_notice(problem: Option<&str>) -> Markup {
    html! {
        @if let Some(problem) = problem { p.problem role="alert" { (problem) } }
    }
}

#[derive(Deserialize)]
pub(crate) struct SignIn {
    email: String,
    password: String,
    #[serde(default)]
    to: String,
}

pub(crate) async fn sign_in(
    State(gateway): State<Arc<Gateway>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    OpenForm(form_sent): OpenForm<SignIn>,
) -> Result<Response, PortalError> {
    let SignIn {
        email,
        password,
        to,
    } = form_sent;
    // 254 characters are the longest valid address; the rest is cut before the lookup.
    let email: String = email.trim().chars().take(254).collect();
    let email = email.as_str();
    let device = known_device(&gateway, &headers, email).await?;
    let attempt = Attempt::sign_in(email, peer, device.as_deref());
    let throttle = &gateway.portal.throttle;
    let counted = throttle
        .attempt(&attempt)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let person = gateway.backoffice.person_by_email(email).await?;
    let kept = person.as_ref().and_then(|person| person.password.clone());
    let right = gateway.backoffice.passwords.verify(password, kept).await;
    let Some(person) = person.filter(|_| right) else {
        // Neither the message nor the timing reveals whether the address has an account.
        let problem = "Wrong email or password.";
        let mut response = with_visit(&gateway, &headers, |visit| {
            form(&gateway, visit, &to, email, Some(problem))
        });
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(response);
    };
    throttle.succeeded(&counted);
    password_proven(&gateway, &headers, &person, &to).await
}

/// Goes on after a person has proven their password: to the page for the code if they have a second factor, otherwise
/// with a session.
pub(crate) async fn password_proven(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    person: &Person,
    to: &str,
) -> Result<Response, PortalError> {
    if person.second_factor_at.is_some() {
        return code::ask(gateway, headers, person, to).await;
    }
    let begun = start_session(gateway, headers, person, to).await?;
    end_if_changed(gateway, person).await?;
    Ok(begun)
}

/// Ends the sessions of a person whose password or second factor has changed since it was read: the change has ended
/// all sessions that were older, but not the one that has just begun.
async fn end_if_changed(gateway: &Gateway, person: &Person) -> Result<(), PortalError> {
    let now = gateway.backoffice.person(&person.id).await?;
    let is_same = |now: Person| {
        now.password == person.password && now.second_factor_at == person.second_factor_at
    };
    if !now.is_some_and(is_same) {
        gateway.backoffice.end_sessions_of(&person.id, None).await?;
    }
    Ok(())
}

/// The number of the request's browser, if this person has signed in with it before.
async fn known_device(
    gateway: &Gateway,
    headers: &HeaderMap,
    email: &str,
) -> Result<Option<String>, PortalError> {
    let secure = gateway.portal.is_secure();
    if !Device::is_presented(headers, secure) {
        return Ok(None);
    }
    let secret = gateway.cookie_secret().await?;
    Ok(Device::known(headers, secure, &secret, email))
}

/// Ends the session that the request's cookie names, whether it was opened with a password or with the operator
/// token.
pub(crate) async fn end_presented_session(
    gateway: &Gateway,
    headers: &HeaderMap,
) -> Result<(), PortalError> {
    let secure = gateway.portal.is_secure();
    if let Some(before) = Token::presented(headers, Kind::Session, secure) {
        gateway.backoffice.end_session(&before.digest()).await?;
        let secret = gateway.cookie_secret().await?;
        let of_operator = before.operator_digest(&secret, &gateway.operator_token);
        gateway.backoffice.end_session(&of_operator).await?;
    }
    Ok(())
}

/// Starts a new session and redirects to `to`. The session in the request's cookie is ended first, so that a
/// session is never reused (session fixation).
pub(crate) async fn start_session(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    person: &Person,
    to: &str,
) -> Result<Response, PortalError> {
    start_session_with(gateway, headers, person, to, None).await
}

/// Starts a new session as [`start_session`] does, for which the next page confirms what was done.
pub(crate) async fn start_session_confirming(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    person: &Person,
    to: &str,
    done: &Confirmation,
) -> Result<Response, PortalError> {
    start_session_with(gateway, headers, person, to, Some(done)).await
}

async fn start_session_with(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    person: &Person,
    to: &str,
    done: Option<&Confirmation>,
) -> Result<Response, PortalError> {
    starter::give(gateway, person).await;
    let secure = gateway.portal.is_secure();
    end_presented_session(gateway, headers).await?;
    let secret = gateway.cookie_secret().await?;
    let (token, now) = (Token::generate(), timestamp::now());
    let session = NewSession {
        digest: token.digest(),
        person_id: Some(person.id.clone()),
        role: person.role,
        agent: agent(headers),
        now,
        expires_at: now + SESSION_SECONDS,
    };
    gateway.backoffice.begin_session(session).await?;
    let to = destination(to);
    let mut response = match done {
        Some(done) => done.redirect(&to, &token, secure),
        None => layout::redirect(&to),
    };
    let device = Device::new(&secret, &person.email);
    for cookie in [
        token.set(Kind::Session, secure),
        cookies::forget(Kind::Visit, secure),
        device.set(secure),
    ] {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

pub(crate) async fn sign_out(
    State(gateway): State<Arc<Gateway>>,
    SignedForm { me, form: _ }: SignedForm<EmptyForm>,
) -> Result<Response, PortalError> {
    sign_out_to(&gateway, &me.session, "/portal/sign-in").await
}

/// Ends a session, deletes its cookie and redirects to `to`.
pub(crate) async fn sign_out_to(
    gateway: &Gateway,
    session: &Session,
    to: &str,
) -> Result<Response, PortalError> {
    gateway.backoffice.end_session(&session.digest).await?;
    let mut response = layout::redirect(to);
    let headers = response.headers_mut();
    let forgotten = cookies::forget(Kind::Session, gateway.portal.is_secure());
    headers.append(header::SET_COOKIE, forgotten);
    // Clears the browser's cache, so that the back button does not show private pages.
    let all = HeaderValue::from_static("\"cache\"");
    headers.insert("clear-site-data", all);
    Ok(response)
}

/// `to` if it is a path of the portal, otherwise the start page. Prevents open redirects.
pub(crate) fn destination(to: &str) -> String {
    let ours = to == "/portal" || to.starts_with("/portal/") || to.starts_with("/portal?");
    let plain = to
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let strange = to.contains("//") || to.contains("/sign-in");
    if ours && plain && !strange {
        to.to_owned()
    } else {
        "/portal".into()
    }
}

#[cfg(test)]
mod tests {
    use super::destination;

    #[test]
    fn destinations_outside_the_portal_are_replaced() {
        for ours in ["/portal", "/portal/usage?days=7", "/portal?x=1"] {
            assert_eq!(destination(ours), ours);
        }
        for other in [
            "",
            "https://evil.example",
            "//evil.example",
            "/portal//evil.example",
            "/portal\\evil",
            "/portalevil",
            "/v1/models",
            "/portal/\r\nx: y",
            "/portal/sign-in?to=/portal",
            "/portal/console/sign-in",
        ] {
            assert_eq!(destination(other), "/portal", "{other}");
        }
    }
}
