//! Extractors for submitted forms, which check the form token.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Form, FromRequest, FromRequestParts as _, Request},
    http::request::Parts,
};
use bytes::Bytes;
use maud::{Markup, html};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::{
    cookies::{Kind, Token},
    error::PortalError,
    rights,
    session::SignedIn,
};
use crate::{
    api::{MemoryGate, read_body, read_through},
    base::{keys::random_id, timestamp},
    gateway::Gateway,
    net::{body_memory::BodyReservation, drain::drain_unread},
};

const MAX_BYTES: usize = 64 << 10;
/// What a byte of a form counts: it is in memory as it was received and as a field.
const COPIES: usize = 2;
/// How long the number of a submitted form is stored. A browser that restores an old page is assumed to do so
/// within a month.
const REMEMBERED_SECONDS: i64 = 30 * 24 * 3_600;

/// A form submitted by a signed-in person.
pub(crate) struct SignedForm<T> {
    pub me: SignedIn,
    pub form: T,
}

/// A form submitted by a visitor without a session.
pub(crate) struct OpenForm<T>(pub T);

/// A form with no fields but its token.
#[derive(Deserialize)]
pub(crate) struct EmptyForm {}

#[derive(Deserialize)]
struct WithToken<T> {
    #[serde(default)]
    token: String,
    #[serde(flatten)]
    form: T,
}

impl<T: DeserializeOwned + Send> FromRequest<Arc<Gateway>> for SignedForm<T> {
    type Rejection = PortalError;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, PortalError> {
        let (form, _) = Self::read(request, gateway, MAX_BYTES, COPIES).await?;
        Ok(form)
    }
}

impl<T: DeserializeOwned> SignedForm<T> {
    /// Reads a form of up to `limit` bytes, as far as the account has memory for `copies` of it. Keep the reservation for
    /// as long as the copies.
    pub(crate) async fn read(
        request: Request,
        gateway: &Arc<Gateway>,
        limit: usize,
        copies: usize,
    ) -> Result<(Self, Option<Arc<BodyReservation>>), PortalError> {
        let (mut parts, body) = request.into_parts();
        let me = match SignedIn::from_request_parts(&mut parts, gateway).await {
            Ok(me) => me,
            Err(error) => {
                drain_unread(body);
                return Err(error);
            }
        };
        let memory = &gateway.body_memory;
        let mut gate = MemoryGate::with_copies(memory, &me.account.id, copies);
        let body = read_through(&mut gate, body, limit).await;
        let body = body.and_then(|body| gate.received(body));
        let body = body.map_err(PortalError::Body)?;
        let memory = body.memory();
        let (token, form) = parse(parts.clone(), body.shared_bytes()).await?;
        drop(body);
        me.check(Some(&token))?;
        // Reading the body can take long. The session is checked again, because it may have ended meanwhile.
        let me = SignedIn::from_request_parts(&mut parts, gateway).await?;
        if rights::is_change(&parts) {
            let counted = gateway
                .portal
                .throttle
                .change(&me.person.id, &me.account.id);
            counted.map_err(|seconds| PortalError::TooManyChanges { seconds })?;
        }
        Ok((Self { me, form }, memory))
    }
}

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for OpenForm<T> {
    type Rejection = PortalError;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, PortalError> {
        let visit = Token::presented(request.headers(), Kind::Visit, gateway.portal.is_secure());
        let (token, form) = read(request).await?;
        let right = visit.is_some_and(|visit| visit.has_form_token(&token));
        right.then_some(Self(form)).ok_or(PortalError::Stale)
    }
}

/// A hidden field with a random number, for forms that must take effect only once. Reloading the page or
/// clicking twice submits the number again.
pub(crate) fn once_field() -> Markup {
    html! { input type="hidden" name="once" value=(random_id("form_")); }
}

/// Whether the form with this number is submitted for the first time by this person. A form without a number was not
/// rendered by a page of ours and always counts as first.
pub(crate) async fn is_first_submission(
    gateway: &Gateway,
    me: &SignedIn,
    number: &str,
) -> Result<bool, PortalError> {
    let counted = gateway.portal.throttle.once(&me.person.id);
    counted.map_err(|seconds| PortalError::TooManyChanges { seconds })?;
    is_unspent(gateway, number).await
}

/// Like [`is_first_submission`], for an operator.
pub(crate) async fn is_unspent(gateway: &Gateway, number: &str) -> Result<bool, PortalError> {
    if number.is_empty() {
        return Ok(true);
    }
    let digest = Sha256::digest(number).into();
    let until = timestamp::now() + REMEMBERED_SECONDS;
    Ok(gateway.backoffice.spend(&digest, until).await?)
}

/// Reads a form: its token, and its other fields as `T`.
pub(crate) async fn read<T: DeserializeOwned>(
    request: Request,
) -> Result<(String, T), PortalError> {
    let (parts, body) = request.into_parts();
    let body = read_body(body, MAX_BYTES).await;
    parse(parts, body.map_err(PortalError::Body)?).await
}

async fn parse<T: DeserializeOwned>(parts: Parts, body: Bytes) -> Result<(String, T), PortalError> {
    let request = Request::from_parts(parts, Body::from(body));
    let read = Form::<WithToken<T>>::from_request(request, &()).await;
    let unreadable =
        |_| PortalError::Invalid("The form could not be read. Please fill it in again.".into());
    let Form(sent) = read.map_err(unreadable)?;
    Ok((sent.token, sent.form))
}
