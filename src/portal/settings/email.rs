//! Changing one's email address. With `[mail]` the new address proves itself by a one-time link, which is followed in a
//! session of the person: the owner of a mistyped address cannot use it. Without a mail server it changes at once.

use std::sync::Arc;

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse as _, Response},
};
use maud::{Markup, html};
use serde::Deserialize;

use super::{PATH, Problem, Section, framed, proof, refused};
use crate::{
    api::Peer,
    backoffice::{
        BackofficeError, MadeLink, NewLink, Person, Purpose,
        mail::{Email, templates},
    },
    base::timestamp,
    gateway::{
        Gateway,
        actions::{ActionError, NewEmail, OperatorActions},
    },
    portal::{
        confirmation::Confirmation, error::PortalError, form::SignedForm, query::ReadQuery,
        session::SignedIn, sign_in::start_session_confirming, sign_up::email_problem,
    },
};

const TAKEN: &str = "This address cannot be used.";

pub(super) fn form(me: &SignedIn, problem: Option<Problem<'_>>) -> Markup {
    let has_problem = problem.is_some_and(|problem| problem.section == Section::Email);
    html! {
        details open[has_problem] {
            summary { "Change email" }
            (Problem::of(problem, Section::Email))
            form.stack method="post" action="/portal/settings/email" {
                (me.token_field())
                label { "New email"
                    input type="email" name="email" required maxlength="254" autocomplete="email";
                }
                (proof::fields(me))
                button.primary type="submit" { "Change email" }
            }
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct EmailForm {
    #[serde(default)]
    email: String,
    #[serde(flatten)]
    proof: proof::Proof,
}

pub(super) async fn change(
    State(gateway): State<Arc<Gateway>>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    SignedForm { me, form }: SignedForm<EmailForm>,
) -> Result<Response, PortalError> {
    let email = form.email.trim();
    if let Some(problem) = email_problem(&gateway, email) {
        return refused(&gateway, &me, Section::Email, problem).await;
    }
    if email == me.person.email {
        return refused(&gateway, &me, Section::Email, "That is your email already.").await;
    }
    if let Err(problem) = proof::check(&gateway, &me, peer, form.proof).await? {
        return refused(&gateway, &me, Section::Email, problem).await;
    }
    if gateway.mail.is_some() {
        return send_link(&gateway, &me, peer, email);
    }
    // The response tells whether an address is in use.
    let throttle = &gateway.portal.throttle;
    throttle
        .new_address(&me.person.id, peer.0)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    finish(&gateway, &headers, &me, NewEmail::Typed(email.to_owned())).await
}

/// Sends the link. The page is the same for an address that is in use; only the email tells.
fn send_link(
    gateway: &Arc<Gateway>,
    me: &SignedIn,
    Peer(peer): Peer,
    email: &str,
) -> Result<Response, PortalError> {
    let throttle = &gateway.portal.throttle;
    throttle
        .message(email, peer)
        .map_err(|seconds| PortalError::TooMany { seconds })?;
    let (inside, person, to) = (gateway.clone(), me.person.clone(), email.to_owned());
    gateway.send_later(async move { message(&inside, &person, to).await });
    let text = format!(
        "Check your inbox: we sent a link to {email}. Open it in this browser within an hour. Until then your email stays the same."
    );
    Ok(me.redirect(PATH, &Confirmation::new(text)))
}

async fn message(gateway: &Gateway, person: &Person, email: String) -> Option<Email> {
    let (backoffice, portal) = (&gateway.backoffice, &gateway.portal);
    let making = async {
        let known = backoffice.person_by_email(&email).await?;
        if let Some(other) = known.filter(|known| known.id != person.id) {
            return Ok(templates::email_in_use(&other.email, &portal.url));
        }
        let new = NewLink {
            email: email.clone(),
            purpose: Purpose::Email {
                person_id: person.id.clone(),
            },
            made_by: None,
            now: timestamp::now(),
        };
        let made = backoffice.make_link(new).await?;
        let link = portal.email_url(&made.secret);
        Ok::<_, BackofficeError>(templates::new_email(&email, &portal.url, &link))
    };
    making
        .await
        .inspect_err(
            |error| tracing::error!(%error, "making a link for a new address failed; no email is sent"),
        )
        .ok()
}

#[derive(Deserialize)]
pub(crate) struct LinkQuery {
    #[serde(default)]
    link: String,
}

/// Asks for a click: mail scanners open links too.
pub(super) async fn confirm(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<LinkQuery>,
    me: SignedIn,
) -> Result<Response, PortalError> {
    let digest = MadeLink::digest(&query.link);
    let link = match digest {
        Some(digest) => gateway.backoffice.link(&digest, timestamp::now()).await?,
        None => None,
    };
    let purpose = Purpose::Email {
        person_id: me.person.id.clone(),
    };
    let Some(link) = link.filter(|link| link.purpose == purpose) else {
        return Ok(unusable(&me));
    };
    let content = html! {
        h1 { "Change your email?" }
        p { "You will sign in with " strong { (link.email) } " instead of " (me.person.email) ". You are signed out everywhere else." }
        form.inline method="post" action="/portal/settings/email/confirm" {
            (me.token_field())
            input type="hidden" name="link" value=(query.link);
            button.primary type="submit" { "Change email" }
            a.button href=(PATH) { "Cancel" }
        }
    };
    Ok(framed(&me, "Change email", &content).into_response())
}

fn unusable(me: &SignedIn) -> Response {
    let content = html! {
        h1 { "This link cannot be used" }
        p { "It was used before, was replaced by a newer one, has expired, or is for another person than " strong { (me.person.email) } ", who is signed in here." }
        p { a href=(PATH) { "Settings" } }
    };
    let page = framed(me, "This link cannot be used", &content);
    (StatusCode::GONE, page).into_response()
}

pub(super) async fn confirmed(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    SignedForm { me, form }: SignedForm<LinkQuery>,
) -> Result<Response, PortalError> {
    let Some(digest) = MadeLink::digest(&form.link) else {
        return Ok(unusable(&me));
    };
    finish(&gateway, &headers, &me, NewEmail::Proven(digest)).await
}

/// Changes the address and goes on with a new session, because all others end.
async fn finish(
    gateway: &Arc<Gateway>,
    headers: &HeaderMap,
    me: &SignedIn,
    new: NewEmail,
) -> Result<Response, PortalError> {
    let actions = OperatorActions::by(gateway, &me.person.email);
    let changed = actions.change_email(me.person.clone(), new, me.session.digest);
    let person = match changed.await {
        Ok(Some(person)) => person,
        Ok(None) => return Ok(unusable(me)),
        Err(ActionError::Backoffice(BackofficeError::EmailTaken)) => {
            return refused(gateway, me, Section::Email, TAKEN).await;
        }
        Err(error) => return Err(error.into()),
    };
    let text = format!(
        "Email changed to {}. You are signed out everywhere else.",
        person.email
    );
    let done = Confirmation::new(text);
    start_session_confirming(gateway, headers, &person, PATH, &done).await
}
