//! The second step of a sign-in: a code from the person's authenticator app, or a recovery code.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use maud::html;
use serde::Deserialize;

use super::{
    destination, end_if_changed, is_cross_site, pending::Pending, problem_notice, refresh_to,
    start_session, start_session_confirming,
};
use crate::{
    api::Peer,
    backoffice::{Attempt, CodeCheck, Person, UsedCode, is_recovery_code, mail::templates},
    base::timestamp,
    gateway::Gateway,
    portal::{
        confirmation::Confirmation,
        cookies::{self, Kind, SECOND_STEP_SECONDS, Token},
        error::PortalError,
        form::OpenForm,
        layout,
        query::ReadQuery,
        session::token_field,
    },
};

const PATH: &str = "/portal/sign-in/code";
const TITLE: &str = "Two-factor authentication";
/// The longest path to return to, which must fit into the cookie.
const MAX_DESTINATION: usize = 1_000;

/// Sends a person who has proven their password to the page for the code.
pub(super) async fn ask(
    gateway: &Gateway,
    headers: &HeaderMap,
    person: &Person,
    to: &str,
) -> Result<Response, PortalError> {
    let secure = gateway.portal.is_secure();
    let visit = Token::presented(headers, Kind::Visit, secure).ok_or(PortalError::Stale)?;
    let secret = gateway.cookie_secret().await?;
    let to = destination(to);
    let to = if to.len() > MAX_DESTINATION {
        "/portal".into()
    } else {
        to
    };
    let pending = Pending::new(person, &visit, to);
    let mut response = layout::redirect(PATH);
    let cookie = pending.cookie(&secret, secure);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}

#[derive(Deserialize)]
pub(crate) struct CodeQuery {
    /// Whether the form is for a recovery code.
    recovery: Option<String>,
}

pub(crate) async fn show(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<CodeQuery>,
    headers: HeaderMap,
) -> Result<Response, PortalError> {
    let recovery = query.recovery.is_some();
    if is_cross_site(&headers) {
        return Ok(refresh_to("/portal"));
    }
    Ok(match presented(&gateway, &headers).await? {
        Some((visit, _)) => form(&visit, recovery, None),
        None => layout::redirect("/portal/sign-in"),
    })
}

/// The visit and the pending sign-in of the request's browser.
async fn presented(
    gateway: &Gateway,
    headers: &HeaderMap,
) -> Result<Option<(Token, Pending)>, PortalError> {
    let secure = gateway.portal.is_secure();
    let Some(visit) = Token::presented(headers, Kind::Visit, secure) else {
        return Ok(None);
    };
    let secret = gateway.cookie_secret().await?;
    let pending = Pending::presented(headers, &visit, &secret, secure);
    Ok(pending.map(|pending| (visit, pending)))
}

fn form(visit: &Token, recovery: bool, problem: Option<&str>) -> Response {
    let content = html! {
        h1 { (TITLE) }
        (problem_notice(problem))
        form.stack method="post" action=(PATH) {
            (token_field(visit))
            @if recovery {
                input type="hidden" name="recovery" value="1";
                label { "Recovery code"
                    input type="text" name="code" required maxlength="40" autocomplete="off"
                        autocapitalize="none" spellcheck="false" autofocus aria-describedby="code-hint";
                    span.muted #code-hint { "One of the ten codes that you saved. Each works once." }
                }
            } @else {
                label { "Code"
                    input type="text" name="code" required maxlength="40" inputmode="numeric"
                        autocomplete="one-time-code" spellcheck="false" autofocus aria-describedby="code-hint";
                    span.muted #code-hint { "The six digits that your authenticator app shows." }
                }
            }
            button.primary type="submit" { "Sign in" }
        }
        p.muted {
            @if recovery { a href=(PATH) { "Use your authenticator app" } }
            @else { a href={ (PATH) "?recovery=1" } { "Use a recovery code" } }
        }
        p.muted {
            "Lost both? Ask the operator of this gateway to reset your two-factor authentication."
        }
    };
    layout::plain(TITLE, &content).into_response()
}

#[derive(Deserialize)]
pub(crate) struct CodeForm {
    #[serde(default)]
    code: String,
    /// Whether the form was that for a recovery code.
    recovery: Option<String>,
}

pub(crate) async fn submit(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    OpenForm(sent): OpenForm<CodeForm>,
) -> Result<Response, PortalError> {
    let Some((visit, pending)) = presented(&gateway, &headers).await? else {
        return Ok(layout::redirect("/portal/sign-in"));
    };
    let person = gateway.backoffice.person(&pending.person_id).await?;
    // Without a second factor, e.g. after an operator has reset it, the password alone is asked for again.
    let is_open = |person: &Person| pending.is_of(person) && person.second_factor_at.is_some();
    let Some(person) = person.filter(is_open) else {
        return Ok(ended(&gateway));
    };
    let Some(used) = use_code(&gateway, &person, peer, &sent.code).await? else {
        let problem = Some("That code is wrong, or was used before.");
        let mut response = form(&visit, sent.recovery.is_some(), problem);
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(response);
    };
    let until = timestamp::now() + SECOND_STEP_SECONDS;
    if !gateway.backoffice.spend(&pending.digest(), until).await? {
        return Ok(ended(&gateway));
    }
    let mut response = match used {
        UsedCode::App => start_session(&gateway, &headers, &person, &pending.to).await?,
        UsedCode::Recovery => {
            let done = Confirmation::new(codes_left(&gateway, &person).await?);
            start_session_confirming(&gateway, &headers, &person, &pending.to, &done).await?
        }
    };
    end_if_changed(&gateway, &person).await?;
    forget(&gateway, &mut response);
    Ok(response)
}

/// Uses a code, with limits on attempts, here and in the store; `None` if it is not right. After several wrong ones the person is told by email,
/// because their password is known.
pub(crate) async fn use_code(
    gateway: &Arc<Gateway>,
    person: &Person,
    Peer(peer): Peer,
    code: &str,
) -> Result<Option<UsedCode>, PortalError> {
    let throttle = &gateway.portal.throttle;
    // By the form of the code, not by the page that sent it: a code of the app must not be counted as the other kind.
    let attempt = if is_recovery_code(code) {
        Attempt::recovery_code(&person.id, peer)
    } else {
        Attempt::second_factor(&person.id, peer)
    };
    let counted = throttle
        .attempt(&attempt)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let backoffice = &gateway.backoffice;
    let check = backoffice.use_second_factor(&person.id, code, timestamp::now());
    let used = match check.await? {
        CodeCheck::Right(used) => Some(used),
        CodeCheck::Wrong => None,
        CodeCheck::TooMany { seconds } => return Err(PortalError::TooManyCodes { seconds }),
    };
    if used.is_some() {
        throttle.succeeded(&counted);
    } else if gateway.mail.is_some() && throttle.tells_of_wrong_codes(&person.id, &counted) {
        let message = templates::wrong_codes(&person.email, &gateway.portal.url);
        gateway.send_later(async { Some(message) });
    }
    Ok(used)
}

async fn codes_left(gateway: &Gateway, person: &Person) -> Result<String, PortalError> {
    let left = gateway.backoffice.recovery_codes_left(&person.id).await?;
    Ok(match left {
        0 => "Signed in with your last recovery code. Get new ones under Settings.".into(),
        1 => "Signed in with a recovery code. You have 1 left; get new ones under Settings.".into(),
        left => format!("Signed in with a recovery code. You have {left} left."),
    })
}

/// Back to the first step.
fn ended(gateway: &Gateway) -> Response {
    let mut response = layout::redirect("/portal/sign-in");
    forget(gateway, &mut response);
    response
}

fn forget(gateway: &Gateway, response: &mut Response) {
    let forgotten = cookies::forget(Kind::SecondStep, gateway.portal.is_secure());
    response.headers_mut().append(header::SET_COOKIE, forgotten);
}
