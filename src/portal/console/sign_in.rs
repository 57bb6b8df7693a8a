//! Signing in to the console with the operator token, and signing out.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use maud::html;
use serde::Deserialize;

use super::access::{OperatorForm, presented};
use crate::{
    api::Peer,
    backoffice::{Attempt, NewSession, Role},
    base::timestamp,
    gateway::Gateway,
    portal::{
        cookies::{self, Kind, Token},
        error::PortalError,
        form::{EmptyForm, OpenForm},
        layout,
        query::ReadQuery,
        session::{agent, token_field},
        sign_in::{
            destination, end_presented_session, is_cross_site, problem_notice, refresh_to,
            sign_out_to, with_visit,
        },
    },
};

const HOME: &str = "/portal/console";
/// Lifetime of a session opened with the operator token. It is short, because the token gives full access.
const SESSION_SECONDS: i64 = 12 * 3_600;

#[derive(Deserialize)]
pub(crate) struct SignInQuery {
    #[serde(default)]
    to: String,
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<SignInQuery>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let to = within(&query.to);
    if is_cross_site(&headers) {
        return Ok(refresh_to(&to));
    }
    if is_operator(&gateway, &headers).await? {
        return Ok(layout::redirect(&to));
    }
    Ok(with_visit(&gateway, &headers, |visit| {
        form(visit, &to, None)
    }))
}

/// Whether an operator is signed in already. For a customer the page does not exist (404).
async fn is_operator(gateway: &Gateway, headers: &HeaderMap) -> Result<bool, PortalError> {
    match presented(gateway, headers).await? {
        None => Ok(false),
        Some((_, session)) if session.role == Role::Operator => Ok(true),
        Some(_) => Err(PortalError::NotFound),
    }
}

/// `to` if it is a page of the console, otherwise the console's start page.
fn within(to: &str) -> String {
    let page = destination(to);
    if page.starts_with(HOME) {
        page
    } else {
        HOME.into()
    }
}

fn form(visit: &Token, to: &str, problem: Option<&str>) -> Response {
    let content = html! {
        h1 { "Operator console" }
        (problem_notice(problem))
        form.stack method="post" action="/portal/console/sign-in" {
            (token_field(visit))
            input type="hidden" name="to" value=(to);
            label { "Operator token"
                input type="password" name="secret" required autocomplete="off" autofocus;
            }
            button.primary type="submit" { "Sign in" }
        }
        p.muted {
            "Operators with an account "
            a href={ "/portal/sign-in?to=" (layout::encoded(to)) } { "sign in by email" }
            ", so that their actions are recorded under their name."
        }
    };
    layout::plain("Operator console", &content).into_response()
}

#[derive(Deserialize)]
pub(crate) struct SignIn {
    #[serde(default)]
    secret: String,
    #[serde(default)]
    to: String,
}

pub(crate) async fn sign_in(
    State(gateway): State<Arc<Gateway>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    OpenForm(sent): OpenForm<SignIn>,
) -> Result<Response, PortalError> {
    is_operator(&gateway, &headers).await?;
    let to = within(&sent.to);
    let throttle = &gateway.portal.throttle;
    let counted = throttle
        .attempt(&Attempt::operator_token(peer))
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    if !gateway.operator_token.matches(sent.secret.trim()) {
        let problem = Some("Wrong operator token.");
        let mut response = with_visit(&gateway, &headers, |visit| form(visit, &to, problem));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(response);
    }
    throttle.succeeded(&counted);
    start_session(&gateway, &headers, &to).await
}

/// Starts a session that ends when the operator token or the secret that signs cookies is replaced.
async fn start_session(
    gateway: &Gateway,
    headers: &HeaderMap,
    to: &str,
) -> Result<Response, PortalError> {
    end_presented_session(gateway, headers).await?;
    let (token, now) = (Token::generate(), timestamp::now());
    let secret = gateway.cookie_secret().await?;
    let session = NewSession {
        digest: token.operator_digest(&secret, &gateway.operator_token),
        person_id: None,
        role: Role::Operator,
        agent: agent(headers),
        now,
        expires_at: now + SESSION_SECONDS,
    };
    gateway.backoffice.begin_session(session).await?;
    let mut response = layout::redirect(to);
    let secure = gateway.portal.is_secure();
    for cookie in [
        token.set(Kind::Session, secure),
        cookies::forget(Kind::Visit, secure),
    ] {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

pub(crate) async fn sign_out(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form: _ }: OperatorForm<EmptyForm>,
) -> Result<Response, PortalError> {
    sign_out_to(&gateway, &me.session, "/portal/console/sign-in").await
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn signing_in_leads_into_the_console() {
        let page = "/portal/console/accounts?text=a";
        assert_eq!(within(page), page);
        for other in [
            "",
            "/portal/keys",
            "//evil.example",
            "/portal/console/sign-in",
        ] {
            assert_eq!(within(other), "/portal/console", "{other}");
        }
    }
}
