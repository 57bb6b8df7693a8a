//! Why nobody is signed in, and what to do about it.

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
pub enum Refused {
    /// No attempt of this browser, or one that is over.
    Stale,
    /// Somebody has changed their mind.
    Declined,
    /// The issuer has sent the browser back with this word.
    Word(String),
    /// The issuer could not be asked, or what it says cannot be believed.
    Oidc(OidcError),
    /// There is no address that the issuer vouches for.
    NoAddress,
    /// The address is of no domain that may sign in.
    NotAdmitted,
    /// Somebody here has the address, and has not connected it.
    AddressTaken,
    /// Somebody here has connected this identity already.
    SomebodyElses,
    /// Whoever wanted to connect it is not signed in any more.
    SignedOut,
    /// Nobody may make an account.
    Closed,
    /// What goes wrong on other pages too.
    Page(PortalError),
}

impl From<OidcError> for Refused {
    fn from(error: OidcError) -> Self {
        Self::Oidc(error)
    }
}

impl From<PortalError> for Refused {
    fn from(error: PortalError) -> Self {
        Self::Page(error)
    }
}

impl From<BackofficeError> for Refused {
    fn from(error: BackofficeError) -> Self {
        Self::Page(error.into())
    }
}

impl From<LedgerError> for Refused {
    fn from(error: LedgerError) -> Self {
        Self::Page(error.into())
    }
}

impl Refused {
    /// The word in `error=…`, which whoever made the address has chosen.
    pub fn by_issuer(error: &str) -> Self {
        match error {
            "access_denied" => Self::Declined,
            word if is_error_code(word) => Self::Word(word.to_owned()),
            _ => Self::Word("a word that is none".into()),
        }
    }

    pub fn page(self, issuer: &str) -> Response {
        let (status, words) = match &self {
            Self::Page(_) => (Status::OK, String::new()),
            Self::Stale => (
                Status::BAD_REQUEST,
                "This sign-in was begun in another browser, took too long, or is over already. \
                 Begin again."
                    .into(),
            ),
            Self::Declined => (
                Status::FORBIDDEN,
                format!(
                    "You have not allowed {issuer} to tell us who you are, so nothing was done."
                ),
            ),
            Self::Word(_) | Self::Oidc(OidcError::Refused(_)) => (
                Status::BAD_REQUEST,
                format!(
                    "{issuer} could not tell us who you are. Begin again; if that does not help, \
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
                    "{issuer} does not vouch for your e-mail address. Have it verified there, then \
                     begin again."
                ),
            ),
            Self::NotAdmitted => (
                Status::FORBIDDEN,
                format!("Your address at {issuer} is not one that may sign in here."),
            ),
            Self::AddressTaken => (
                Status::CONFLICT,
                format!(
                    "There is an account with your address already. Sign in to it as you do, with \
                     your password; then connect {issuer} under Settings."
                ),
            ),
            Self::SomebodyElses => (
                Status::CONFLICT,
                format!("This identity at {issuer} is connected to another account here."),
            ),
            Self::SignedOut => (
                Status::FORBIDDEN,
                "You have been signed out meanwhile, so nothing was connected.".into(),
            ),
            Self::Closed => (
                Status::FORBIDDEN,
                "You have no account here yet. Accounts are made by the operator of this gateway. \
                 Ask them for one."
                    .into(),
            ),
        };
        let cause = match self {
            Self::Page(error) => return error.into_response(),
            Self::Oidc(error) => Some(format!("signing in with {issuer}: {error}")),
            Self::Word(word) => Some(format!("signing in with {issuer}: it says {word}")),
            _ => None,
        };
        let content = html! {
            h1 { "Sign in with " (issuer) }
            p.problem role="alert" { (words) }
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
