//! Errors of operator actions, and checks of their input.

use crate::{
    backoffice::BackofficeError,
    base::money::NanoUsd,
    ledger::{BadSchedule, LedgerError},
};

/// Most characters of the name of a key or a project.
pub(crate) const MAX_NAME: usize = 100;
const MAX_EMAIL: usize = 254;

/// Why an operator action was not performed. The operator API and the console each map it to a message of their own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ActionError {
    #[error("that is not an email address")]
    Email,
    #[error("a key's name has at most {MAX_NAME} characters")]
    KeyName,
    #[error("a project has a name of 1 to {MAX_NAME} characters")]
    ProjectName,
    #[error("a budget is more than zero and at most a billion US dollars")]
    BudgetAmount,
    #[error("a budget of a {0} needs its ID")]
    BudgetPlace(&'static str),
    #[error("a budget has a name of 1 to {MAX_NAME} characters")]
    BudgetName,
    #[error("thresholds are at most ten whole percentages from 1 to 100")]
    BudgetThresholds,
    #[error(transparent)]
    Schedule(#[from] BadSchedule),
    #[error("an amount is US dollars above zero, e.g. 10.00")]
    Amount,
    /// Holds the parameter's name: `rpm` or `tpm`.
    #[error("a limit of 0 would refuse every request")]
    ZeroCeiling(&'static str),
    #[error("there is no model `{0}` in the catalog")]
    NoSuchModel(String),
    #[error("this account was deleted by an owner; this cannot be undone")]
    AccountDeleted,
    #[error(
        "an operator of this gateway is a member of this account; another operator has to take that role away first"
    )]
    OperatorInAccount,
    /// Mistakes in the form of `tollgate check`.
    #[error("{}", .0.join("\n"))]
    Configuration(Vec<String>),
    #[error(
        "the configuration was changed meanwhile; look at the newest version, and make the change again"
    )]
    ConfigurationConflict,
    #[error("the newest version of the configuration already says what {} says; nothing was changed", rolled_back(*.0))]
    ConfigurationUnchanged(i64),
    #[error("there is no version {0} of the configuration")]
    NoSuchVersion(i64),
    #[error("you cannot remove yourself or give up your own role; another operator can do it")]
    Oneself,
    #[error(transparent)]
    Backoffice(#[from] BackofficeError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// What a rollback goes back to.
pub(crate) fn rolled_back(to: i64) -> String {
    match to {
        0 => "the file".to_owned(),
        to => format!("version {to}"),
    }
}

/// Parses an amount of US dollars, which must be above zero.
pub(crate) fn amount(text: &str) -> Result<NanoUsd, ActionError> {
    let amount = NanoUsd::parse(text).filter(|amount| *amount > NanoUsd::default());
    amount.ok_or(ActionError::Amount)
}

pub(super) fn check_email(email: &str) -> Result<(), ActionError> {
    let complete = email
        .split_once('@')
        .is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
    let is_forbidden = |c: char| c.is_whitespace() || c.is_control();
    let valid = complete && email.len() <= MAX_EMAIL && !email.chars().any(is_forbidden);
    valid.then_some(()).ok_or(ActionError::Email)
}
