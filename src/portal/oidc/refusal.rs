//! Reasons for which a sign-in through an issuer is refused, and the page for each.

use axum::{
    http::StatusCode as Status,
    response::{IntoResponse as _, Response},
};
use maud::html;

use crate::{
    backoffice::{
        BackofficeError,
        oidc::{OidcError, is_error_code},
    },
    ledger::LedgerError,
    portal::{error::PortalError, layout},
    wire::error::Cause,
};

#[derive(Debug)]
pub(crate) enum Refusal {
    /// The attempt belongs to another browser, has expired or was used before.
    Stale,
    /// The user declined at the issuer.
    Declined,
    /// The issuer returned this error code.
    IssuerError(String),
    /// The issuer is unavailable, or its response is invalid.
    Oidc(OidcError),
    /// The issuer has no verified email address for the user.
    NoAddress,
    /// The address is not in a domain that may sign in.
    NotAdmitted,
    /// A person here has the address and has not connected this identity.
    AddressTaken,
    /// The identity is connected to another person.
    IdentityTaken,
    /// The person who started connecting an identity is no longer signed in.
    SignedOut,
    /// The person, the account or the identity was deleted or changed while they signed in.
    Changed,
    /// Sign-up is closed.
    Closed,
    /// An error that other portal pages have too.
    Portal(PortalError),
}

impl From<OidcError> for Refusal {
    fn from(error: OidcError) -> Self {
        Self::Oidc(error)
    }
}

impl From<PortalError> for Refusal {
    fn from(error: PortalError) -> Self {
        Self::Portal(error)
    }
}

impl From<BackofficeError> for Refusal {
    fn from(error: BackofficeError) -> Self {
        Self::Portal(error.into())
    }
}

impl From<LedgerError> for Refusal {
    fn from(error: LedgerError) -> Self {
        Self::Portal(error.into())
    }
}

impl Refusal {
    /// The refusal for a code in `error=…`. Anyone can forge that URL, so the code is validated before it is
    /// logged.
    pub(crate) fn from_issuer_error(code: &str) -> Self {
        match code {
            "access_denied" => Self::Declined,
            code if is_error_code(code) => Self::IssuerError(code.to_owned()),
            _ => Self::IssuerError("an error code with invalid characters".into()),
        }
    }

    pub(crate) fn page(self, issuer: &str) -> Response {
        let (status, message) = match &self {
            Self::Portal(_) => (Status::OK, String::new()),
            Self::Stale => (
                Status::BAD_REQUEST,
                "This sign-in was started in another browser, took too long, or was already \
                 completed. Start again."
                    .into(),
            ),
            Self::Declined => (
                Status::FORBIDDEN,
                format!(
                    "The sign-in at {issuer} was declined, so nothing was changed."
                ),
            ),
            Self::IssuerError(_) | Self::Oidc(OidcError::Refused(_)) => (
                Status::BAD_REQUEST,
                format!(
                    "{issuer} could not tell us who you are. Start again; if that does not help, \
                     tell the operator of this gateway."
                ),
            ),
            Self::Oidc(OidcError::Unavailable(_)) => (
                Status::SERVICE_UNAVAILABLE,
                format!(
                    "{issuer} cannot be reached at the moment. Try again in a moment, or sign in \
                     with your password."
                ),
            ),
            Self::NoAddress => (
                Status::FORBIDDEN,
                format!(
                    "{issuer} has not verified your email address. Have it verified there, then \
                     start again."
                ),
            ),
            Self::NotAdmitted => (
                Status::FORBIDDEN,
                format!("Your email at {issuer} is not allowed to sign in here."),
            ),
            Self::AddressTaken => (
                Status::CONFLICT,
                format!(
                    "An account with your email exists already. Sign in with your password, then \
                     connect {issuer} under Settings."
                ),
            ),
            Self::IdentityTaken => (
                Status::CONFLICT,
                format!("This identity at {issuer} is connected to another account here."),
            ),
            Self::SignedOut => (
                Status::FORBIDDEN,
                "You were signed out in the meantime, so nothing was connected.".into(),
            ),
            Self::Changed => (
                Status::CONFLICT,
                "Your account was changed or deleted while you signed in. Start again.".into(),
            ),
            Self::Closed => (
                Status::FORBIDDEN,
                "You have no account here yet. Accounts are created by the operator of this gateway. \
                 Ask them for one."
                    .into(),
            ),
        };
        let cause = match self {
            Self::Portal(error) => return error.into_response(),
            Self::Oidc(error) => Some(format!("signing in with {issuer}: {error}")),
            Self::IssuerError(code) => {
                Some(format!("signing in with {issuer}: it returned {code}"))
            }
            _ => None,
        };
        let content = html! {
            h1 { "Sign in with " (issuer) }
            p.problem role="alert" { (message) }
            p { a href="/portal/sign-in" { "To the sign-in page" } }
        };
        let title = format!("Sign in with {issuer}");
        let mut response = layout::plain(&title, &content).into_response();
        *response.status_mut() = status;
        if let Some(cause) = cause {
            response.extensions_mut().insert(Cause(cause));
        }
        response
    }
}
