//! Forms, which bring the token of the page they were on.

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
/// A browser that brings back an old page does so within a month.
const REMEMBERED_SECONDS: i64 = 30 * 24 * 3_600;

/// What someone who is signed in has sent.
pub struct SignedForm<T> {
    pub me: SignedIn,
    pub form: T,
}

/// What someone who is not signed in has sent.
pub struct OpenForm<T>(pub T);

/// A form that has nothing in it but its token.
#[derive(Deserialize)]
pub struct Nothing {}

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
        let (mut parts, body) = request.into_parts();
        let me = match SignedIn::from_request_parts(&mut parts, gateway).await {
            Ok(me) => me,
            Err(error) => {
                drain_unread(body);
                return Err(error);
            }
        };
        let (token, form) = read(Request::from_parts(parts.clone(), body)).await?;
        me.check(Some(&token))?;
        // A form can take its time, and whoever sends it may be somebody else's former colleague by now.
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

/// The number of a form that must not count twice: a page that is loaded anew, or a second click, sends it
/// again.
pub fn once_field() -> Markup {
    html! { input type="hidden" name="once" value=(random_id("form_")); }
}

/// Whether the form with this number comes for the first time. One without a number came from no page.
pub async fn is_first(gateway: &Gateway, number: &str) -> Result<bool, PortalError> {
    if number.is_empty() {
        return Ok(true);
    }
    let digest = Sha256::digest(number).into();
    let until = timestamp::now() + REMEMBERED_SECONDS;
    Ok(gateway.backoffice.spend(&digest, until).await?)
}

/// The token that a form has brought, and the rest of it.
pub async fn read<T: DeserializeOwned>(request: Request) -> Result<(String, T), PortalError> {
    let (parts, body) = request.into_parts();
    let body = read_body(body, MAX_BYTES)
        .await
        .map_err(PortalError::Body)?;
    let request = Request::from_parts(parts, Body::from(body));
    let read = Form::<WithToken<T>>::from_request(request, &()).await;
    let unreadable =
        |_| PortalError::Invalid("The form could not be read. Fill it in again.".into());
    let Form(sent) = read.map_err(unreadable)?;
    Ok((sent.token, sent.form))
}
