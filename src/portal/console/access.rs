//! Access to the console: for persons with the operator role, and for sessions opened with the operator token.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{HeaderMap, Method, request::Parts},
    response::Response,
};
use maud::Markup;
use serde::de::DeserializeOwned;

use crate::{
    backoffice::{Role, Session},
    base::timestamp,
    gateway::{
        Gateway,
        actions::{OperatorActions, TOKEN},
    },
    net::drain::drain_unread,
    portal::{
        confirmation::{Confirmation, Pending},
        cookies::{Kind, Token},
        error::PortalError,
        form,
        session::token_field,
    },
};

/// A signed-in operator. Without a session, the extractor redirects to the console's sign-in page; for a
/// customer the page does not exist (404).
pub(crate) struct SignedInOperator {
    pub session: Session,
    /// What a form has done, if this is the page after it.
    pub done: Option<Pending>,
    token: Token,
    secure: bool,
    /// The number of open alerts at this gateway's last check.
    pub open_alerts: i64,
}

impl SignedInOperator {
    /// The operator's email address, or the name of the operator token. It is recorded with their actions.
    pub(crate) fn actor(&self) -> &str {
        let person = self.session.person.as_ref();
        person.map_or(TOKEN, |person| &person.email)
    }

    /// Whether the operator has an account of their own and so can use the portal.
    pub(crate) fn has_account(&self) -> bool {
        self.session.person.is_some()
    }

    pub(crate) fn actions(&self, gateway: &Arc<Gateway>) -> OperatorActions {
        OperatorActions::by(gateway, self.actor())
    }

    /// The redirect after a form, to a page that confirms what was done.
    pub(crate) fn redirect(&self, to: &str, done: &Confirmation) -> Response {
        done.redirect(to, &self.token, self.secure)
    }

    /// A hidden field with the form token, which every form of this session needs.
    pub(crate) fn token_field(&self) -> Markup {
        token_field(&self.token)
    }
}

/// The session of the request's cookie, of a customer or an operator.
pub(crate) async fn presented(
    gateway: &Gateway,
    headers: &HeaderMap,
) -> Result<Option<(Token, Session)>, PortalError> {
    let Some(token) = Token::presented(headers, Kind::Session, gateway.portal.is_secure()) else {
        return Ok(None);
    };
    let (backoffice, now) = (&gateway.backoffice, timestamp::now());
    let mut session = backoffice.session(&token.digest(), now).await?;
    if session.is_none() {
        let secret = gateway.cookie_secret().await?;
        let of_operator = token.operator_digest(&secret, &gateway.operator_token);
        session = backoffice.session(&of_operator, now).await?;
    }
    Ok(session.map(|session| (token, session)))
}

impl FromRequestParts<Arc<Gateway>> for SignedInOperator {
    type Rejection = PortalError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, PortalError> {
        let found = presented(gateway, &parts.headers).await?;
        let Some((token, session)) = found else {
            return Err(PortalError::OperatorSignedOut { to: back_to(parts) });
        };
        let secure = gateway.portal.is_secure();
        match session.role {
            Role::Operator if lacks_second_factor(gateway, &session) => {
                Err(PortalError::NeedsSecondFactor)
            }
            Role::Operator => Ok(Self {
                session,
                done: Pending::of(&parts.headers, &token, secure),
                token,
                secure,
                open_alerts: gateway.alerts.open_total(),
            }),
            Role::Customer => Err(PortalError::NotFound),
        }
    }
}

/// Whether the operator has to turn on two-factor authentication first. The operator token is no person and has none.
fn lacks_second_factor(gateway: &Gateway, session: &Session) -> bool {
    let person = session.person.as_ref();
    person.is_some_and(|person| gateway.portal.lacks_second_factor(person))
}

/// The path to return to after signing in. Only GET requests are repeated; for others it is the console's start
/// page.
fn back_to(parts: &Parts) -> String {
    let page = parts.uri.path_and_query();
    let page = page.filter(|_| parts.method == Method::GET);
    page.map_or_else(|| "/portal/console".into(), ToString::to_string)
}

/// A form submitted by an operator.
pub(crate) struct OperatorForm<T> {
    pub me: SignedInOperator,
    pub form: T,
}

impl<T: DeserializeOwned + Send> FromRequest<Arc<Gateway>> for OperatorForm<T> {
    type Rejection = PortalError;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, PortalError> {
        let (mut parts, body) = request.into_parts();
        let me = match SignedInOperator::from_request_parts(&mut parts, gateway).await {
            Ok(me) => me,
            Err(error) => {
                drain_unread(body);
                return Err(error);
            }
        };
        let (token, form) = form::read(Request::from_parts(parts.clone(), body)).await?;
        if !me.token.has_form_token(&token) {
            return Err(PortalError::Stale);
        }
        // Reading the body can take long. The session is checked again, because the operator role may have been
        // removed meanwhile.
        let me = SignedInOperator::from_request_parts(&mut parts, gateway).await?;
        Ok(Self { me, form })
    }
}

/// The ID in a path; 404 if it cannot be decoded.
pub(crate) struct Id(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PortalError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(id) = path.map_err(|_| PortalError::NotFound)?;
        Ok(Self(id))
    }
}
