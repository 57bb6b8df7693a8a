//! Who may see the console: a person with the operator's role, or whoever came with the operator token.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts, Path, Request},
    http::{HeaderMap, Method, request::Parts},
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
        cookies::{Kind, Token},
        error::PortalError,
        form,
        session::token_field,
    },
};

/// An operator. Whoever is not signed in is sent to sign in; for a customer there is nothing here.
pub struct OperatorIn {
    pub session: Session,
    token: Token,
    /// How many there are, as this gateway last saw.
    pub open_alerts: i64,
}

impl OperatorIn {
    /// Their address, where they are known by one.
    pub fn who(&self) -> &str {
        let person = self.session.person.as_ref();
        person.map_or(TOKEN, |person| &person.email)
    }

    /// Whether they have an account of their own, with its pages.
    pub fn has_account(&self) -> bool {
        self.session.person.is_some()
    }

    pub fn acts(&self, gateway: &Arc<Gateway>) -> OperatorActions {
        OperatorActions::by(gateway, self.who())
    }

    /// The field without which a form of theirs is not taken.
    pub fn token_field(&self) -> Markup {
        token_field(&self.token)
    }
}

/// The session that a browser brings along, whoever's it is.
pub async fn presented(
    gateway: &Gateway,
    headers: &HeaderMap,
) -> Result<Option<(Token, Session)>, PortalError> {
    let Some(token) = Token::presented(headers, Kind::Session, gateway.portal.is_secure()) else {
        return Ok(None);
    };
    let (backoffice, now) = (&gateway.backoffice, timestamp::now());
    let mut session = backoffice.session(&token.digest(), now).await?;
    if session.is_none() {
        let with_token = token.digest_with(&gateway.operator_token);
        session = backoffice.session(&with_token, now).await?;
    }
    Ok(session.map(|session| (token, session)))
}

impl FromRequestParts<Arc<Gateway>> for OperatorIn {
    type Rejection = PortalError;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, PortalError> {
        let found = presented(gateway, &parts.headers).await?;
        let Some((token, session)) = found else {
            return Err(PortalError::NoOperator { to: back_to(parts) });
        };
        match session.role {
            Role::Operator => Ok(Self {
                session,
                token,
                open_alerts: gateway.alerts.open_total(),
            }),
            Role::Customer => Err(PortalError::NotFound),
        }
    }
}

/// The page that was asked for; what was only sent there is not sent again.
fn back_to(parts: &Parts) -> String {
    let page = parts.uri.path_and_query();
    let page = page.filter(|_| parts.method == Method::GET);
    page.map_or_else(|| "/portal/console".into(), ToString::to_string)
}

/// What an operator has sent.
pub struct OperatorForm<T> {
    pub me: OperatorIn,
    pub form: T,
}

impl<T: DeserializeOwned + Send> FromRequest<Arc<Gateway>> for OperatorForm<T> {
    type Rejection = PortalError;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, PortalError> {
        let (mut parts, body) = request.into_parts();
        let me = match OperatorIn::from_request_parts(&mut parts, gateway).await {
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
        // A form can take its time, and whoever sends it may be no operator any more.
        let me = OperatorIn::from_request_parts(&mut parts, gateway).await?;
        Ok(Self { me, form })
    }
}

/// The ID in a path; what cannot be read is none.
pub struct Id(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = PortalError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, PortalError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(id) = path.map_err(|_| PortalError::NotFound)?;
        Ok(Self(id))
    }
}
