//! Two-factor authentication: setting up an authenticator app, recovery codes, and turning it off.
//!
//! The secret is stored when the set-up begins, for this session alone; it counts once a code of the app has confirmed
//! it. Recovery codes are on the page that makes them, and nowhere else.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::{PATH as SETTINGS, framed, proof, qr};
use crate::{
    api::Peer,
    backoffice::Attempt,
    base::{keys::Secret, timestamp, totp::TotpSecret},
    gateway::{Gateway, actions::OperatorActions},
    portal::{
        confirmation::Confirmation,
        error::PortalError,
        form::SignedForm,
        formatting::moment,
        layout::{self, Page},
        session::SignedIn,
        sign_in::problem_notice,
        snippets::copy_button,
    },
};

const PATH: &str = "/portal/settings/two-factor";
const TITLE: &str = "Two-factor authentication";
const WRONG_CODE: &str = "That code is wrong. Check that your phone's clock is right, and enter the code that the app shows now.";

/// The section of the settings page.
pub(super) async fn section(gateway: &Gateway, me: &SignedIn) -> Result<Markup, PortalError> {
    let left = codes_left(gateway, me).await?;
    Ok(html! {
        section #two-factor {
            h2 { (TITLE) }
            @match me.person.second_factor_at {
                Some(at) => {
                    p { span.badge.good { "on" } " since " (moment(at)) ". " (left_text(left)) }
                    p { a.button href=(PATH) { "Manage" } }
                },
                None if me.person.password.is_none() => {
                    p { "You sign in without a password here. Turn on two-factor authentication where you do." }
                },
                None => {
                    p { "When you sign in with your password, a code from your phone is asked for as well." }
                    p { a.button href=(PATH) { "Set up" } }
                },
            }
        }
    })
}

async fn codes_left(gateway: &Gateway, me: &SignedIn) -> Result<i64, PortalError> {
    if me.person.second_factor_at.is_none() {
        return Ok(0);
    }
    let left = gateway.backoffice.recovery_codes_left(&me.person.id);
    Ok(left.await?)
}

fn left_text(left: i64) -> String {
    match left {
        0 => "No recovery codes left: get new ones.".into(),
        1 => "1 recovery code left.".into(),
        left => format!("{left} recovery codes left."),
    }
}

pub(super) async fn show(
    State(gateway): State<Arc<Gateway>>,
    me: SignedIn,
) -> Result<Page, PortalError> {
    page(&gateway, &me, None).await
}

async fn page(
    gateway: &Gateway,
    me: &SignedIn,
    problem: Option<&str>,
) -> Result<Page, PortalError> {
    let (backoffice, digest) = (&gateway.backoffice, &me.session.digest);
    let now = timestamp::now();
    let content = if let Some(at) = me.person.second_factor_at {
        managing(me, at, codes_left(gateway, me).await?)
    } else {
        let begun = backoffice.second_factor_begun(&me.person.id, digest, now);
        match begun.await? {
            Some(secret) => setting_up(gateway, me, &secret),
            None => introduction(gateway, me),
        }
    };
    let content = html! {
        nav.back aria-label="Back" { a href=(SETTINGS) { "Settings" } }
        h1 { (TITLE) }
        (problem_notice(problem))
        (content)
    };
    Ok(framed(me, TITLE, &content))
}

fn introduction(gateway: &Gateway, me: &SignedIn) -> Markup {
    html! {
        @if gateway.portal.lacks_second_factor(&me.person) {
            p.notice { "The operator of this gateway requires two-factor authentication. Set it up to continue." }
        }
        @if me.person.password.is_none() {
            p { "You sign in without a password here. Turn on two-factor authentication where you do." }
        } @else {
            p { "You need an authenticator app on your phone or computer, such as Google Authenticator, Microsoft Authenticator, 1Password or Aegis." }
            form.stack method="post" action={ (PATH) "/begin" } {
                (me.token_field())
                (proof::fields(me))
                button.primary type="submit" { "Set up" }
            }
        }
    }
}

fn setting_up(gateway: &Gateway, me: &SignedIn, secret: &TotpSecret) -> Markup {
    let text = secret.reveal();
    let groups: Vec<_> = (0..text.len())
        .step_by(4)
        .map(|at| &text[at..at + 4])
        .collect();
    let uri = uri(gateway.portal.host(), &me.person.email, &text);
    html! {
        ol.steps.factor {
            li {
                p { "Scan this with your authenticator app." }
                (qr::code(&uri, "QR code for your authenticator app"))
                p { "Or enter this key in the app (time-based, 6 digits):" }
                div.copyable.secret {
                    code #factor-secret { (groups.join(" ")) }
                    (copy_button("Copy", "the key"))
                }
            }
            li {
                p { "Enter the code that the app shows." }
                form.inline method="post" action={ (PATH) "/confirm" } {
                    (me.token_field())
                    label { "Code"
                        input type="text" name="code" required maxlength="10" inputmode="numeric" autocomplete="one-time-code" spellcheck="false";
                    }
                    button.primary type="submit" { "Turn on" }
                }
            }
        }
        p.muted { "You are signed out everywhere else when it is turned on." }
    }
}

/// The address that apps read: <https://github.com/google/google-authenticator/wiki/Key-Uri-Format>. Algorithm, digits
/// and period are the defaults.
fn uri(host: &str, email: &str, secret: &str) -> String {
    let issuer = format!("Tollgate {host}");
    let [issuer, email] =
        [issuer.as_str(), email].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
    format!("otpauth://totp/{issuer}:{email}?secret={secret}&issuer={issuer}")
}

fn managing(me: &SignedIn, at: i64, left: i64) -> Markup {
    html! {
        p { span.badge.good { "on" } " since " (moment(at)) ". " (left_text(left)) }
        h2 { "Recovery codes" }
        p { "Each of them signs you in once without your app. New ones replace all earlier ones." }
        form.stack method="post" action={ (PATH) "/codes" } {
            (me.token_field())
            (proof::fields(me))
            button type="submit" { "Get new recovery codes" }
        }
        h2 { "Turn off" }
        p { "To use another app or phone, turn it off and set it up again." }
        form.stack method="post" action={ (PATH) "/off" } {
            (me.token_field())
            (proof::fields(me))
            button.bad type="submit" { "Turn off two-factor authentication" }
        }
    }
}

async fn refused(gateway: &Gateway, me: &SignedIn, problem: &str) -> Result<Response, PortalError> {
    let page = page(gateway, me, Some(problem)).await?;
    Ok((StatusCode::BAD_REQUEST, page).into_response())
}

fn actions(gateway: &Arc<Gateway>, me: &SignedIn) -> OperatorActions {
    OperatorActions::by(gateway, &me.person.email)
}

pub(super) async fn begin(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    SignedForm { me, form }: SignedForm<proof::Proof>,
) -> Result<Response, PortalError> {
    if me.person.second_factor_at.is_some() || me.person.password.is_none() {
        return Ok(layout::redirect(PATH));
    }
    if let Err(problem) = proof::check(&gateway, &me, peer, form).await? {
        return refused(&gateway, &me, problem).await;
    }
    let secret = TotpSecret::generate();
    let secret = secret
        .ok_or_else(|| PortalError::Unavailable("the system returns no random bytes".into()))?;
    let (id, session) = (&me.person.id, &me.session.digest);
    let begun = gateway
        .backoffice
        .begin_second_factor(id, session, &secret, timestamp::now());
    begun.await?;
    Ok(layout::redirect(PATH))
}

#[derive(Deserialize)]
pub(crate) struct CodeForm {
    #[serde(default)]
    code: String,
}

pub(super) async fn confirm(
    State(gateway): State<Arc<Gateway>>,
    Extension(Peer(peer)): Extension<Peer>,
    SignedForm { me, form }: SignedForm<CodeForm>,
) -> Result<Response, PortalError> {
    if me.person.second_factor_at.is_some() {
        return Ok(layout::redirect(PATH));
    }
    let throttle = &gateway.portal.throttle;
    let counted = throttle
        .attempt(&Attempt::second_factor(&me.person.id, peer))
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let codes = actions(&gateway, &me)
        .confirm_second_factor(me.person.clone(), me.session.digest, form.code)
        .await?;
    let Some(codes) = codes else {
        return refused(&gateway, &me, WRONG_CODE).await;
    };
    throttle.succeeded(&counted);
    let title = "Two-factor authentication is on";
    Ok(codes_page(&me, title, &codes).into_response())
}

pub(super) async fn renew(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    SignedForm { me, form }: SignedForm<proof::Proof>,
) -> Result<Response, PortalError> {
    if let Err(problem) = proof::check(&gateway, &me, peer, form).await? {
        return refused(&gateway, &me, problem).await;
    }
    let codes = actions(&gateway, &me)
        .renew_recovery_codes(me.person.clone())
        .await?;
    Ok(match codes {
        Some(codes) => codes_page(&me, "New recovery codes", &codes).into_response(),
        None => layout::redirect(PATH),
    })
}

/// The page with recovery codes, the only place where they are shown.
fn codes_page(me: &SignedIn, title: &str, codes: &[Secret]) -> Page {
    let lines: Vec<_> = codes.iter().map(Secret::reveal).collect();
    let content = html! {
        h1 { (title) }
        p { "Save these recovery codes, for instance in your password manager. Each of them signs you in once if you lose your phone. They are not shown again." }
        div.copyable {
            pre { code #recovery-codes { (lines.join("\n")) } }
            (copy_button("Copy", "the recovery codes"))
        }
        p { a.button href=(SETTINGS) { "I have saved them" } }
    };
    framed(me, title, &content)
}

pub(super) async fn turn_off(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    SignedForm { me, form }: SignedForm<proof::Proof>,
) -> Result<Response, PortalError> {
    if me.person.second_factor_at.is_none() {
        return Ok(layout::redirect(PATH));
    }
    if let Err(problem) = proof::check(&gateway, &me, peer, form).await? {
        return refused(&gateway, &me, problem).await;
    }
    actions(&gateway, &me)
        .remove_second_factor(me.person.id.clone())
        .await?;
    let done = Confirmation::new("Two-factor authentication turned off.");
    Ok(me.redirect(SETTINGS, &done))
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn the_uri_is_one_that_apps_read() {
        assert_eq!(
            uri("llm.example.com", "ada+x@example.com", "JBSWY3DPEHPK3PXP"),
            "otpauth://totp/Tollgate%20llm%2Eexample%2Ecom:ada%2Bx%40example%2Ecom\
             ?secret=JBSWY3DPEHPK3PXP&issuer=Tollgate%20llm%2Eexample%2Ecom"
        );
    }
}
