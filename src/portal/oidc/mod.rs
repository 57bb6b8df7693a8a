//! Signing in through an OpenID Connect issuer.
//!
//! A known identity signs in its person. An unknown identity creates a person if sign-up is open and its
//! address has no account. If the address has an account, the sign-in is refused, because addresses of existing
//! accounts may never have been verified; their owners connect the identity themselves in the settings.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use maud::{Markup, html};
use serde::Deserialize;

mod attempt;
mod connections;
mod people;
mod refusal;

pub(crate) use self::connections::section;
use self::{
    attempt::{Attempt, Purpose},
    refusal::Refusal,
};
use super::{
    cookies::{self, Kind, Token},
    error::PortalError,
    layout,
    query::ReadQuery,
    sign_in::{destination, refresh_to, start_session},
};
use crate::{
    api::Peer,
    backoffice::{
        self,
        oidc::{Claims, Issuer, SignInAttempt},
    },
    base::timestamp,
    gateway::Gateway,
};

/// The longest path to return to. It is part of the attempt, which must fit into a cookie.
const MAX_DESTINATION: usize = 1_000;

/// The routes of the sign-in; none without an issuer.
pub(crate) fn router(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    if gateway.oidc.is_none() {
        return Router::new();
    }
    Router::new()
        .route("/portal/oidc/start", get(start))
        .route("/portal/oidc/callback", get(callback))
        .route("/portal/oidc/connect", post(connections::connect))
        .route(
            "/portal/oidc/disconnect",
            get(connections::confirm_disconnect).post(connections::disconnect),
        )
}

fn issuer(gateway: &Gateway) -> Result<&Issuer, PortalError> {
    gateway.oidc.as_ref().ok_or(PortalError::NotFound)
}

/// The button to sign in through the issuer; empty without one.
pub(crate) fn sign_in_button(gateway: &Gateway, to: &str) -> Markup {
    html! {
        @if let Some(issuer) = &gateway.oidc {
            p {
                a.button href={ "/portal/oidc/start?to=" (layout::encoded(to)) } {
                    "Sign in with " (issuer.name())
                }
            }
            p.muted { "Or with a password:" }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct StartQuery {
    #[serde(default)]
    to: String,
}

async fn start(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<StartQuery>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let secure = gateway.portal.is_secure();
    let secret = gateway.cookie_secret().await?;
    let before = Token::presented(&headers, Kind::Session, secure).map_or_else(Vec::new, |token| {
        let of_operator = token.operator_digest(&secret, &gateway.operator_token);
        vec![token.digest(), of_operator]
    });
    let attempt = Attempt::new(back_to(&query.to), Purpose::SignIn { before });
    Ok(match authorization_url(&gateway, &attempt).await? {
        Ok(url) => with_attempt_cookie(&gateway, &attempt, layout::redirect(&url)).await?,
        Err(refusal) => refusal.page(issuer(&gateway)?.name()),
    })
}

/// `to` if it is a portal page that is short enough and does not start another sign-in, otherwise the start
/// page.
fn back_to(to: &str) -> String {
    let to = destination(to);
    if to.len() > MAX_DESTINATION || to.starts_with("/portal/oidc") {
        "/portal".into()
    } else {
        to
    }
}

fn redirect_uri(gateway: &Gateway) -> String {
    format!("{}/portal/oidc/callback", gateway.portal.url)
}

async fn authorization_url(
    gateway: &Gateway,
    attempt: &Attempt,
) -> Result<Result<String, Refusal>, PortalError> {
    let redirect_uri = redirect_uri(gateway);
    let url = issuer(gateway)?.authorization_url(attempt.asking(&redirect_uri));
    Ok(url.await.map_err(Refusal::from))
}

/// Adds the cookie with the sealed attempt to a response.
async fn with_attempt_cookie(
    gateway: &Gateway,
    attempt: &Attempt,
    mut response: Response,
) -> Result<Response, PortalError> {
    let sealed = attempt.sealed(&gateway.cookie_secret().await?);
    let cookie = cookies::set(Kind::Attempt, &sealed, gateway.portal.is_secure());
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The query that the issuer adds to the callback URL.
#[derive(Deserialize)]
pub(crate) struct CallbackQuery {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
    /// An error code, instead of `code`.
    error: Option<String>,
    /// The issuer's identifier, if it sends one (RFC 9207).
    iss: Option<String>,
}

async fn callback(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    ReadQuery(query): ReadQuery<CallbackQuery>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let (issuer, secure) = (issuer(&gateway)?, gateway.portal.is_secure());
    let attempt = match cookies::presented(&headers, Kind::Attempt, secure) {
        Some(sent) => Attempt::opened(sent, &gateway.cookie_secret().await?),
        None => None,
    };
    let attempt = attempt.filter(|attempt| attempt.has_state(&query.state));
    // The attempt's cookie is kept, so that a forged callback does not abort the running sign-in.
    let Some(attempt) = attempt else {
        return Ok(Refusal::Stale.page(issuer.name()));
    };
    let finished = finish(&gateway, issuer, &attempt, &query, peer, &headers).await;
    let mut response = finished.unwrap_or_else(|refusal| refusal.page(issuer.name()));
    let forgotten = cookies::forget(Kind::Attempt, secure);
    response.headers_mut().append(header::SET_COOKIE, forgotten);
    Ok(response)
}

async fn finish(
    gateway: &Arc<Gateway>,
    issuer: &Issuer,
    attempt: &Attempt,
    query: &CallbackQuery,
    peer: Peer,
    headers: &HeaderMap,
) -> Result<Response, Refusal> {
    if query.iss.as_ref().is_some_and(|iss| iss != issuer.id()) {
        return Err(Refusal::Stale);
    }
    if let Some(error) = &query.error {
        return Err(Refusal::from_issuer_error(error));
    }
    let claims = identify(gateway, issuer, attempt, &query.code, peer).await?;
    if !issuer.admits(claims.email.as_deref()) {
        return Err(Refusal::NotAdmitted);
    }
    match &attempt.purpose {
        Purpose::Connect { session } => {
            people::connect(gateway, issuer, session, &claims).await?;
            Ok(refresh_to("/portal/settings"))
        }
        Purpose::SignIn { before } => {
            let person = people::find_or_enrol(gateway, issuer, &claims, peer).await?;
            // The callback comes from another site, so the browser did not send the session cookie.
            for digest in before {
                gateway.backoffice.end_session(digest).await?;
            }
            let begun = start_session(gateway, headers, &person, &attempt.to).await?;
            people::check_is_still(gateway, issuer, &claims, &person).await?;
            // For that reason a redirect would lack the new session cookie; the page is opened by a refresh
            // from our own site.
            Ok(copy_cookies(&begun, refresh_to(&attempt.to)))
        }
    }
}

/// Exchanges the code for the claims of the identity and marks the attempt as used.
async fn identify(
    gateway: &Gateway,
    issuer: &Issuer,
    attempt: &Attempt,
    code: &str,
    Peer(peer): Peer,
) -> Result<Claims, Refusal> {
    // Codes are throttled against guessing: by attempt and by network.
    let throttle = &gateway.portal.throttle;
    let tried = throttle.attempt(&backoffice::Attempt::oidc(&attempt.state, peer));
    let counted = tried.map_err(|seconds| PortalError::TooMany { seconds })?;
    let redirect_uri = redirect_uri(gateway);
    let asking: SignInAttempt<'_> = attempt.asking(&redirect_uri);
    let claims = issuer.identify(code, asking).await?;
    let until = timestamp::now() + cookies::ATTEMPT_SECONDS;
    if !gateway.backoffice.spend(&attempt.digest(), until).await? {
        return Err(Refusal::Stale);
    }
    throttle.succeeded(&counted);
    Ok(claims)
}

fn copy_cookies(begun: &Response, mut page: Response) -> Response {
    for cookie in begun.headers().get_all(header::SET_COOKIE) {
        let headers = page.headers_mut();
        headers.append(header::SET_COOKIE, cookie.clone());
    }
    page
}

/// A page with a link and a meta refresh to the issuer. The content security policy forbids redirecting a form
/// to another site.
fn issuer_redirect_page(url: &str, name: &str) -> Response {
    let content = html! {
        meta http-equiv="refresh" content={ "0; url=" (url) };
        h1 { "One moment" }
        p { a href=(url) { "Continue to " (name) } }
    };
    layout::plain("One moment", &content).into_response()
}

#[cfg(test)]
mod tests {
    use super::back_to;

    #[test]
    fn the_return_path_is_a_portal_page_outside_oidc() {
        assert_eq!(back_to("/portal/keys"), "/portal/keys");
        for other in [
            "https://evil.example",
            "/portal/oidc/start",
            "/portal/oidc/start?to=/portal",
            &format!("/portal/{}", "x".repeat(2_000)),
        ] {
            assert_eq!(back_to(other), "/portal", "{other}");
        }
    }
}
