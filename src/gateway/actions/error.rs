//! Why an operator's act was not done.

use crate::{backoffice::BackofficeError, base::money::NanoUsd, ledger::LedgerError};

pub const MAX_KEY_NAME: usize = 100;
const MAX_EMAIL: usize = 254;

/// What was wrong with what an operator asked for, for whoever tells them to put in their own words.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    #[error("that is not an e-mail address")]
    Email,
    #[error("a key's name has at most {MAX_KEY_NAME} characters")]
    KeyName,
    #[error("an amount is US dollars above zero, e.g. 10.00")]
    Amount,
    /// Of `rpm` or `tpm`.
    #[error("a limit of 0 would refuse every request")]
    ZeroCeiling(&'static str),
    #[error("there is no model `{0}` in the catalog")]
    NoSuchModel(String),
    #[error("nobody removes themselves or gives up their own role; another operator can do it")]
    Oneself,
    #[error(transparent)]
    Backoffice(#[from] BackofficeError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// US dollars above zero.
pub fn amount(text: &str) -> Result<NanoUsd, ActError> {
    let amount = NanoUsd::parse(text).filter(|amount| *amount > NanoUsd::default());
    amount.ok_or(ActError::Amount)
}

pub(super) fn check_email(email: &str) -> Result<(), ActError> {
    let complete = email
        .split_once('@')
        .is_some_and(|(who, at)| !who.is_empty() && !at.is_empty());
    let strange = |c: char| c.is_whitespace() || c.is_control();
    let right = complete && email.len() <= MAX_EMAIL && !email.chars().any(strange);
    right.then_some(()).ok_or(ActError::Email)
}
