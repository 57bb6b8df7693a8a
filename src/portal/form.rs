//! Extractors for submitted forms, which check the form token.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Form, FromRequest, FromRequestParts as _, Request},
};
use maud::{Markup, html};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};

use super::{
    cookies::{Kind, Token},
    error::PortalError,
    session::SignedIn,
};
use crate::{
    api::read_body,
    base::{keys::random_id, timestamp},
    gateway::Gateway,
    net::drain::drain_unread,
};

const MAX_BYTES: usize = 64 << 10;
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
        Self::read(request, gateway, MAX_BYTES).await
    }
}

impl<T: DeserializeOwned> SignedForm<T> {
    /// Reads a form of up to `limit` bytes.
    pub(crate) async fn read(
        request: Request,
        gateway: &Arc<Gateway>,
        limit: usize,
    ) -> Result<Self, PortalError> {
        let (mut parts, body) = request.into_parts();
        let me = match SignedIn::from_request_parts(&mut parts, gateway).await {
            Ok(me) => me,
            Err(error) => {
                drain_unread(body);
                return Err(error);
            }
        };
        let (token, form) = read_up_to(Request::from_parts(parts.clone(), body), limit).await?;
        me.check(Some(&token))?;
        // Reading the body can take long. The session is checked again, because it may have ended meanwhile.
        let me = SignedIn::from_request_parts(&mut parts, gateway).await?;
        Ok(Self { me, form })
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

/// Whether the form with this number is submitted for the first time. A form without a number was not rendered
/// by a page of ours and always counts as first.
pub(crate) async fn is_first_submission(
    gateway: &Gateway,
    number: &str,
) -> Result<bool, PortalError> {
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
    read_up_to(request, MAX_BYTES).await
}

async fn read_up_to<T: DeserializeOwned>(
    request: Request,
    limit: usize,
) -> Result<(String, T), PortalError> {
    let (parts, body) = request.into_parts();
    let body = read_body(body, limit).await.map_err(PortalError::Body)?;
    let request = Request::from_parts(parts, Body::from(body));
    let read = Form::<WithToken<T>>::from_request(request, &()).await;
    let unreadable =
        |_| PortalError::Invalid("The form could not be read. Please fill it in again.".into());
    let Form(sent) = read.map_err(unreadable)?;
    Ok((sent.token, sent.form))
}
