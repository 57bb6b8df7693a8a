//! Errors of the operator API, mapped once to status, type and code; the envelope is that of the public API.

use axum::{
    http::StatusCode as Status,
    response::{IntoResponse, Response},
};

use crate::{
    backoffice::BackofficeError,
    gateway::actions::{ActionError, rolled_back},
    ledger::{BadSchedule, LedgerError},
    wire::error::{Cause, Envelope, GatewayError},
};

#[derive(Debug, thiserror::Error)]
pub(crate) enum OperatorError {
    #[error(
        "The operator token is missing or wrong. Send `Authorization: Bearer <operator token>`."
    )]
    Unauthorized,
    #[error("There is no `{method} {path}` in the operator API.")]
    RouteNotFound { method: String, path: String },
    #[error("{message}")]
    Invalid {
        message: String,
        param: Option<String>,
    },
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    #[error("{0}")]
    Backoffice(#[from] BackofficeError),
    #[error("there is no model `{0}` in the catalog")]
    NoSuchModel(String),
    #[error("The changes cannot be used: {}", .0.join("; "))]
    Configuration(Vec<String>),
    #[error("`based_on` is not the newest version of the configuration: it was changed meanwhile.")]
    ConfigurationConflict,
    #[error("The newest version of the configuration already says what {} says; nothing was changed.", rolled_back(*.0))]
    ConfigurationUnchanged(i64),
    #[error("There is no version {0} of the configuration.")]
    NoSuchVersion(i64),
    #[error("{0}")]
    Body(GatewayError),
}

impl From<ActionError> for OperatorError {
    fn from(error: ActionError) -> Self {
        match error {
            ActionError::Email => Self::invalid("email", "`email` must be an email address."),
            ActionError::KeyName => Self::invalid("name", "`name` has more than 100 characters."),
            ActionError::ProjectName | ActionError::BudgetName => {
                Self::invalid("name", "`name` must have 1 to 100 characters.")
            }
            ActionError::Amount => Self::invalid(
                "amount",
                "`amount` must be US dollars above zero as a decimal string, e.g. \"10.00\".",
            ),
            ActionError::BudgetAmount => Self::invalid(
                "amount",
                "`amount` must be more than zero and at most 1000000000 US dollars.",
            ),
            ActionError::BudgetPlace(scope) => Self::invalid(
                "id",
                format!("`id` is missing: it names the {scope} that the budget is for."),
            ),
            ActionError::BudgetThresholds => Self::invalid(
                "thresholds",
                "`thresholds` must be at most ten whole percentages from 1 to 100.",
            ),
            ActionError::Schedule(BadSchedule::Timezone(zone)) => Self::invalid(
                "timezone",
                format!(
                    "`timezone` is `{zone}`, which is not a name of the IANA database, e.g. \"Europe/Berlin\"."
                ),
            ),
            ActionError::Schedule(BadSchedule::Anchor) => Self::invalid(
                "anchor",
                "`anchor` must be the first day of the week (1 Monday to 7 Sunday) or of the month (1 to 28); days and \
                 totals have none.",
            ),
            ActionError::ZeroCeiling(name) => Self::invalid(
                name,
                format!("`{name}` must be at least 1; 0 would refuse every request."),
            ),
            ActionError::NoSuchModel(id) => Self::NoSuchModel(id),
            ActionError::Configuration(mistakes) => Self::Configuration(mistakes),
            ActionError::ConfigurationConflict => Self::ConfigurationConflict,
            ActionError::ConfigurationUnchanged(to) => Self::ConfigurationUnchanged(to),
            ActionError::NoSuchVersion(number) => Self::NoSuchVersion(number),
            ActionError::Oneself | ActionError::AccountDeleted | ActionError::OperatorInAccount => {
                Self::Invalid {
                    message: error.to_string(),
                    param: None,
                }
            }
            ActionError::Backoffice(error) => Self::Backoffice(error),
            ActionError::Ledger(error) => Self::Ledger(error),
        }
    }
}

impl OperatorError {
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::Invalid {
            message: message.into(),
            param: Some(param.to_owned()),
        }
    }

    fn envelope(&self) -> Envelope {
        let conflict = |code| (Status::CONFLICT, "invalid_request_error", Some(code));
        let (status, kind, code) = match self {
            Self::Unauthorized => (
                Status::UNAUTHORIZED,
                "authentication_error",
                Some("invalid_operator_token"),
            ),
            Self::RouteNotFound { .. } => (Status::NOT_FOUND, "not_found", Some("route_not_found")),
            Self::Invalid { .. } => (Status::BAD_REQUEST, "invalid_request_error", None),
            Self::NoSuchModel(_) => (Status::NOT_FOUND, "not_found", Some("model_not_found")),
            Self::Configuration(_) => (
                Status::BAD_REQUEST,
                "invalid_request_error",
                Some("invalid_configuration"),
            ),
            Self::ConfigurationConflict => conflict("configuration_changed"),
            Self::ConfigurationUnchanged(_) => conflict("configuration_unchanged"),
            Self::NoSuchVersion(_) => (Status::NOT_FOUND, "not_found", None),
            Self::Body(error) => return error.envelope(),
            Self::Backoffice(BackofficeError::EmailTaken) => conflict("email_taken"),
            Self::Backoffice(BackofficeError::LastOwner) => conflict("last_owner"),
            Self::Backoffice(
                BackofficeError::Unavailable(_) | BackofficeError::OtherVersion(_),
            ) => (
                Status::SERVICE_UNAVAILABLE,
                "server_error",
                Some("store_unavailable"),
            ),
            Self::Ledger(error) => match error {
                LedgerError::NotFound { .. } => (Status::NOT_FOUND, "not_found", None),
                LedgerError::KeyDeleted => (
                    Status::BAD_REQUEST,
                    "invalid_request_error",
                    Some("key_deleted"),
                ),
                LedgerError::ProjectInUse => conflict("project_in_use"),
                LedgerError::TooManyBudgets => conflict("too_many_budgets"),
                LedgerError::TooManyKeys { .. } => conflict("too_many_keys"),
                LedgerError::ReferenceTaken { .. } => conflict("reference_taken"),
                LedgerError::NoSuchPlan { .. } | LedgerError::TooMuchCredit => {
                    (Status::BAD_REQUEST, "invalid_request_error", None)
                }
                LedgerError::Database(_)
                | LedgerError::Postgres(_)
                | LedgerError::NotCommitted
                | LedgerError::NoHold
                | LedgerError::KeySpent
                | LedgerError::Stopped
                | LedgerError::Unavailable => (
                    Status::SERVICE_UNAVAILABLE,
                    "server_error",
                    Some("store_unavailable"),
                ),
            },
        };
        let param = match self {
            Self::Invalid { param, .. } => param.clone(),
            Self::Configuration(_) => Some("changes".into()),
            Self::ConfigurationConflict => Some("based_on".into()),
            Self::ConfigurationUnchanged(_) => Some("to".into()),
            Self::Backoffice(BackofficeError::EmailTaken) => Some("email".into()),
            Self::Ledger(LedgerError::NoSuchPlan { .. }) => Some("tier".into()),
            Self::Ledger(LedgerError::ReferenceTaken { .. }) => Some("reference".into()),
            Self::Ledger(LedgerError::TooMuchCredit) => Some("amount".into()),
            _ => None,
        };
        let code = code.map(str::to_owned);
        Envelope {
            status,
            message: self.to_string(),
            kind,
            code,
            param,
            extra: self.extra(),
        }
    }

    /// Further fields of the error.
    fn extra(&self) -> serde_json::Map<String, serde_json::Value> {
        let mut extra = serde_json::Map::new();
        if let Self::Configuration(mistakes) = self {
            extra.insert("mistakes".into(), mistakes.clone().into());
        }
        extra
    }
}

impl IntoResponse for OperatorError {
    fn into_response(self) -> Response {
        // Input of the operator is not logged; the cause of a store's failure is.
        let cause = match &self {
            Self::Ledger(
                error @ (LedgerError::Database(_)
                | LedgerError::NotCommitted
                | LedgerError::Stopped
                | LedgerError::Unavailable),
            ) => error.to_string(),
            Self::Backoffice(
                error @ (BackofficeError::Unavailable(_) | BackofficeError::OtherVersion(_)),
            ) => error.to_string(),
            _ => "the request was refused".into(),
        };
        let mut response = self.envelope().into_response();
        response.extensions_mut().insert(Cause(cause));
        response
    }
}
