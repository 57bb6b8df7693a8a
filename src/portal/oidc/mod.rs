//! Signing in with what somebody has elsewhere: to an issuer of OpenID Connect, and back.
//!
//! An identity that is known is its person. One that is not makes a new person, where sign-up is open and
//! nobody has its address: somebody may have signed up here with an address that was never theirs, so whoever
//! has one already connects it themselves, in their settings.

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
mod refused;

pub use self::connections::section;
use self::{
    attempt::{Attempt, Purpose},
    refused::Refused,
};
use super::{
    cookies::{self, Kind, Token},
    error::PortalError,
    layout,
    query::ReadQuery,
    sign_in::{begin, destination, once_more},
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

/// No longer way back is remembered: all of it must fit into a cookie.
const MAX_DESTINATION: usize = 1_000;

/// Nothing is there where no issuer is.
pub fn router(gateway: &Arc<Gateway>) -> Router<Arc<Gateway>> {
    if gateway.oidc.is_none() {
        return Router::new();
    }
    Router::new()
        .route("/portal/oidc/start", get(start))
        .route("/portal/oidc/callback", get(callback))
        .route("/portal/oidc/connect", post(connections::connect))
        .route("/portal/oidc/disconnect", post(connections::disconnect))
}

fn issuer(gateway: &Gateway) -> Result<&Issuer, PortalError> {
    gateway.oidc.as_ref().ok_or(PortalError::NotFound)
}

/// The button that leads there, where there is an issuer.
pub fn way_in(gateway: &Gateway, to: &str) -> Markup {
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
pub struct Asked {
    #[serde(default)]
    to: String,
}

async fn start(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(asked): ReadQuery<Asked>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let secure = gateway.portal.is_secure();
    let before = Token::presented(&headers, Kind::Session, secure).map_or_else(Vec::new, |token| {
        vec![token.digest(), token.digest_with(&gateway.operator_token)]
    });
    let attempt = Attempt::new(back_to(&asked.to), Purpose::SignIn { before });
    Ok(match authorization_url(&gateway, &attempt).await? {
        Ok(url) => with_attempt(&gateway, &attempt, layout::redirect(&url)),
        Err(refused) => refused.page(issuer(&gateway)?.name()),
    })
}

/// A page of ours that does not lead away at once.
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
) -> Result<Result<String, Refused>, PortalError> {
    let redirect_uri = redirect_uri(gateway);
    let url = issuer(gateway)?.authorization_url(attempt.asking(&redirect_uri));
    Ok(url.await.map_err(Refused::from))
}

/// The browser remembers what it set out with.
fn with_attempt(gateway: &Gateway, attempt: &Attempt, mut response: Response) -> Response {
    let sealed = attempt.sealed(&gateway.operator_token);
    let cookie = cookies::set(Kind::Attempt, &sealed, gateway.portal.is_secure());
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}

/// What an issuer has the browser bring along.
#[derive(Deserialize)]
pub struct Back {
    #[serde(default)]
    code: String,
    #[serde(default)]
    state: String,
    /// In place of a code.
    error: Option<String>,
    /// Who has sent it, where issuers tell (RFC 9207).
    iss: Option<String>,
}

async fn callback(
    State(gateway): State<Arc<Gateway>>,
    peer: Option<Extension<Peer>>,
    ReadQuery(back): ReadQuery<Back>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let (issuer, secure) = (issuer(&gateway)?, gateway.portal.is_secure());
    let sent = cookies::presented(&headers, Kind::Attempt, secure);
    let attempt = sent.and_then(|sent| Attempt::opened(sent, &gateway.operator_token));
    let attempt = attempt.filter(|attempt| attempt.is_of(&back.state));
    // Whoever sends a browser here with something else does not end what it is at.
    let Some(attempt) = attempt else {
        return Ok(Refused::Stale.page(issuer.name()));
    };
    let peer = peer.map(|Extension(peer)| peer);
    let came_back = come_back(&gateway, issuer, &attempt, &back, peer, &headers).await;
    let mut response = came_back.unwrap_or_else(|refused| refused.page(issuer.name()));
    let forgotten = cookies::forget(Kind::Attempt, secure);
    response.headers_mut().append(header::SET_COOKIE, forgotten);
    Ok(response)
}

async fn come_back(
    gateway: &Gateway,
    issuer: &Issuer,
    attempt: &Attempt,
    back: &Back,
    peer: Option<Peer>,
    headers: &HeaderMap,
) -> Result<Response, Refused> {
    if back.iss.as_ref().is_some_and(|iss| iss != issuer.id()) {
        return Err(Refused::Stale);
    }
    if let Some(error) = &back.error {
        return Err(Refused::by_issuer(error));
    }
    let claims = identified(gateway, issuer, attempt, &back.code, peer).await?;
    if !issuer.admits(claims.email.as_deref()) {
        return Err(Refused::NotAdmitted);
    }
    match &attempt.purpose {
        Purpose::Connect { session } => {
            people::connect(gateway, issuer, session, &claims).await?;
            Ok(once_more("/portal/settings"))
        }
        Purpose::SignIn { before } => {
            let person = people::find_or_enrol(gateway, issuer, &claims, peer).await?;
            // Coming from another site, the browser has not brought its session along.
            for digest in before {
                gateway.backoffice.end_session(digest).await?;
            }
            let begun = begin(gateway, headers, &person, &attempt.to).await?;
            // Nor would it bring the new one, if it were sent on from here.
            Ok(with_cookies_of(&begun, once_more(&attempt.to)))
        }
    }
}

/// Who somebody is that has come back, once.
async fn identified(
    gateway: &Gateway,
    issuer: &Issuer,
    attempt: &Attempt,
    code: &str,
    peer: Option<Peer>,
) -> Result<Claims, Refused> {
    let peer = peer.map(|Peer(address)| address);
    // Codes are not for guessing either: few for one attempt, and not many from one network.
    let counted = backoffice::Attempt::new(&attempt.state, peer, None);
    let throttle = &gateway.portal.throttle;
    let tried = throttle.attempt(&counted);
    tried.map_err(|seconds| PortalError::TooMany { seconds })?;
    let redirect_uri = redirect_uri(gateway);
    let asking: SignInAttempt<'_> = attempt.asking(&redirect_uri);
    let claims = issuer.identify(code, asking).await?;
    let until = timestamp::now() + cookies::ATTEMPT_SECONDS;
    if !gateway.backoffice.spend(&attempt.digest(), until).await? {
        return Err(Refused::Stale);
    }
    throttle.succeeded(&counted);
    Ok(claims)
}

fn with_cookies_of(begun: &Response, mut page: Response) -> Response {
    for cookie in begun.headers().get_all(header::SET_COOKIE) {
        let headers = page.headers_mut();
        headers.append(header::SET_COOKIE, cookie.clone());
    }
    page
}

/// Leads to the issuer after a form, which browsers do not let lead away from us by itself.
fn away(url: &str, name: &str) -> Response {
    let content = html! {
        meta http-equiv="refresh" content={ "0; url=" (url) };
        h1 { "One moment" }
        p { a href=(url) { "Go on to " (name) } }
    };
    layout::plain("One moment", &content).into_response()
}

#[cfg(test)]
mod tests {
    use super::back_to;

    #[test]
    fn the_way_back_is_a_page_of_ours_and_not_the_way_there() {
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
