//! Errors of portal pages. Each is rendered as a page that says what to do next.

use axum::{
    http::{HeaderValue, StatusCode as Status, header},
    response::{IntoResponse, Response},
};
use maud::html;

use super::{layout, rights::Right};
use crate::{
    backoffice::{BackofficeError, TeamRole},
    gateway::actions::ActionError,
    ledger::LedgerError,
    wire::error::{Cause, GatewayError},
};

#[derive(Debug, thiserror::Error)]
pub enum PortalError {
    /// No session: the visitor is redirected to sign in, and afterwards to this path.
    #[error("Please sign in.")]
    SignedOut { to: String },
    /// No session on a page of the console: redirected to the console's sign-in page.
    #[error("Please sign in.")]
    OperatorSignedOut { to: String },
    #[error("This page does not exist, or you have no access to it.")]
    NotFound,
    /// The person's role in the account has no right to the page.
    #[error("{}", right.explanation(*role))]
    NotAllowed { right: Right, role: TeamRole },
    /// The person has to turn on two-factor authentication first: redirected to the page for it.
    #[error("Set up two-factor authentication first.")]
    NeedsSecondFactor,
    /// The account would be left without an owner.
    #[error("{0}")]
    LastOwner(String),
    /// Invalid input, with the message to show.
    #[error("{0}")]
    Invalid(String),
    /// The form token is missing or wrong, usually because the page was loaded in an earlier session.
    #[error("This page has expired. Go back, reload it and try again.")]
    Stale,
    /// The request's `Origin` is another site.
    #[error("This was sent from another site, so nothing was changed.")]
    Foreign,
    #[error("Too many attempts. Wait {} and try again.", wait(*seconds))]
    TooMany { seconds: u64 },
    /// The person or the account has changed much in the last day.
    #[error(
        "You or your account made too many changes in the last 24 hours. Nothing was changed now: wait {} and try again.",
        wait(*seconds)
    )]
    TooManyChanges { seconds: u64 },
    /// Too many wrong codes in a day.
    #[error(
        "Too many wrong codes were entered. Wait {} and try again, or use a recovery code. The operator of this gateway can \
         reset your two-factor authentication.",
        wait(*seconds)
    )]
    TooManyCodes { seconds: u64 },
    #[error("This is not available at the moment. Nothing is lost; try again in a moment.")]
    Unavailable(String),
    #[error("{}", unread(.0))]
    Body(GatewayError),
}

fn unread(error: &GatewayError) -> String {
    match error {
        GatewayError::BodyMemoryExhausted => {
            "Too many long forms of this account are being read. Wait a moment and send it again."
                .into()
        }
        error => error.to_string(),
    }
}

fn wait(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        0 | 1 => "a minute".into(),
        minutes @ ..120 => format!("{minutes} minutes"),
        minutes => format!("{} hours", minutes.div_ceil(60)),
    }
}

impl From<LedgerError> for PortalError {
    fn from(error: LedgerError) -> Self {
        match error {
            LedgerError::NotFound { .. } => Self::NotFound,
            LedgerError::KeyDeleted => {
                Self::Invalid("That key was deleted and cannot be restored.".into())
            }
            LedgerError::TooManyKeys { max } => Self::Invalid(format!(
                "An account can have at most {max} keys. Delete one that is not used."
            )),
            LedgerError::NoSuchPlan { .. }
            | LedgerError::ProjectInUse
            | LedgerError::TooManyBudgets
            | LedgerError::TooMuchCredit
            | LedgerError::ReferenceTaken { .. } => Self::Invalid(error.to_string()),
            LedgerError::Database(_)
            | LedgerError::Postgres(_)
            | LedgerError::NotCommitted
            | LedgerError::NoHold
            | LedgerError::KeySpent
            | LedgerError::Stopped
            | LedgerError::Unavailable => Self::Unavailable(error.to_string()),
        }
    }
}

/// The message of an error as a sentence.
fn sentence(error: &str) -> String {
    let (first, rest) = error.split_at(error.len().min(1));
    format!("{}{rest}.", first.to_uppercase())
}

impl From<ActionError> for PortalError {
    fn from(error: ActionError) -> Self {
        match error {
            ActionError::Email
            | ActionError::KeyName
            | ActionError::ProjectName
            | ActionError::Amount
            | ActionError::BudgetAmount
            | ActionError::BudgetPlace(_)
            | ActionError::BudgetName
            | ActionError::BudgetThresholds
            | ActionError::Schedule(_)
            | ActionError::ZeroCeiling(_)
            | ActionError::Oneself
            | ActionError::AccountDeleted
            | ActionError::OperatorInAccount
            | ActionError::Backoffice(BackofficeError::EmailTaken)
            | ActionError::ConfigurationConflict
            | ActionError::ConfigurationUnchanged(_)
            | ActionError::NoSuchModel(_) => Self::Invalid(sentence(&error.to_string())),
            // An operator can change the setting that it names.
            ActionError::Ledger(LedgerError::TooManyKeys { .. }) => {
                Self::Invalid(sentence(&error.to_string()))
            }
            ActionError::Configuration(mistakes) => Self::Invalid(mistakes.join(" ")),
            ActionError::NoSuchVersion(_) => Self::NotFound,
            ActionError::Backoffice(error) => error.into(),
            ActionError::Ledger(error) => error.into(),
        }
    }
}

impl From<BackofficeError> for PortalError {
    fn from(error: BackofficeError) -> Self {
        match error {
            BackofficeError::EmailTaken => Self::Invalid(error.to_string()),
            BackofficeError::LastOwner => Self::LastOwner(sentence(&error.to_string())),
            BackofficeError::Unavailable(reason) | BackofficeError::OtherVersion(reason) => {
                Self::Unavailable(reason)
            }
        }
    }
}

impl PortalError {
    pub(crate) fn status(&self) -> Status {
        match self {
            Self::SignedOut { .. } | Self::OperatorSignedOut { .. } | Self::NeedsSecondFactor => {
                Status::SEE_OTHER
            }
            Self::NotFound => Status::NOT_FOUND,
            Self::Invalid(_) => Status::BAD_REQUEST,
            Self::Stale | Self::Foreign | Self::NotAllowed { .. } => Status::FORBIDDEN,
            Self::LastOwner(_) => Status::CONFLICT,
            Self::TooMany { .. } | Self::TooManyChanges { .. } | Self::TooManyCodes { .. } => {
                Status::TOO_MANY_REQUESTS
            }
            Self::Unavailable(_) => Status::SERVICE_UNAVAILABLE,
            Self::Body(error) => error.envelope().status,
        }
    }
}

impl IntoResponse for PortalError {
    fn into_response(self) -> Response {
        if let Self::SignedOut { to } = &self {
            return layout::redirect(&format!("/portal/sign-in?to={}", layout::encoded(to)));
        }
        if let Self::OperatorSignedOut { to } = &self {
            let to = layout::encoded(to);
            return layout::redirect(&format!("/portal/console/sign-in?to={to}"));
        }
        if matches!(self, Self::NeedsSecondFactor) {
            return layout::redirect("/portal/settings/two-factor");
        }
        let status = self.status();
        let title = match status {
            _ if matches!(self, Self::NotAllowed { .. }) => "Not for your role",
            Status::NOT_FOUND => "Not found",
            Status::SERVICE_UNAVAILABLE => "Not available",
            _ if matches!(self, Self::TooManyChanges { .. }) => "Too many changes",
            Status::TOO_MANY_REQUESTS => "Too many attempts",
            _ => "Request failed",
        };
        let content = html! {
            h1 { (title) }
            p { (self.to_string()) }
            p { a href="/portal" { "Go to overview" } }
        };
        let mut response = layout::plain(title, &content).into_response();
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let retry = match self {
            Self::TooMany { seconds }
            | Self::TooManyChanges { seconds }
            | Self::TooManyCodes { seconds } => Some(seconds),
            Self::Unavailable(_) | Self::Body(GatewayError::BodyMemoryExhausted) => Some(2),
            _ => None,
        };
        if let Some(seconds) = retry {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        // Only the reason from the store is logged. Messages of other errors can contain the visitor's input.
        if let Self::Unavailable(reason) = self {
            response.extensions_mut().insert(Cause(reason));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_when_to_try_again() {
        for (seconds, said) in [
            (1, "a minute"),
            (61, "2 minutes"),
            (7_140, "119 minutes"),
            (7_200, "2 hours"),
            (86_401, "25 hours"),
        ] {
            for error in [
                PortalError::TooMany { seconds },
                PortalError::TooManyChanges { seconds },
                PortalError::TooManyCodes { seconds },
            ] {
                let message = error.to_string();
                assert!(
                    message.contains(&format!("ait {said} and try again")),
                    "{message}"
                );
                let response = error.into_response();
                assert_eq!(response.status(), Status::TOO_MANY_REQUESTS);
                assert_eq!(response.headers()[header::RETRY_AFTER], seconds.to_string());
            }
        }
    }
}
