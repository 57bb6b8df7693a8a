//! Handlers of the forms that create and change accounts.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;

use super::{
    access::{Id, OperatorForm, SignedInOperator},
    accounts::{path, plan_name, read_plan},
    frame::{self, Place},
};
use crate::{
    base::{money::NanoUsd, timestamp},
    gateway::{
        Gateway,
        actions::{self, ActionError},
    },
    ledger::{Account, AccountChange, LedgerError, NewAccount, NewGrant},
    portal::{
        confirmation::Confirmation, error::PortalError, formatting::money, layout::Page,
        question::Question,
    },
};

const MAX_NAME: usize = 100;
const MAX_REASON: usize = 200;
const DAY: i64 = 86_400;

#[derive(Deserialize)]
pub(crate) struct NewAccountForm {
    #[serde(default)]
    email: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    plan: String,
}

pub(crate) async fn create(
    State(gateway): State<Arc<Gateway>>,
    OperatorForm { me, form }: OperatorForm<NewAccountForm>,
) -> Result<Response, PortalError> {
    let plan = read_plan(&form.plan)?;
    let name = plain(&form.name, MAX_NAME, "The name")?;
    let new = NewAccount {
        email: form.email.trim().to_owned(),
        name,
        track: plan.track(),
        tier: plan.tier(),
    };
    let account = me.actions(&gateway).create_account(new).await?;
    let page = path(&account.id);
    // Accounts cannot be removed: a closed one can do nothing.
    let done = Confirmation::new(format!("Account {} created.", account.email))
        .undone_by(&format!("{page}/state"), &[("state", "closed")]);
    Ok(me.redirect(&page, &done))
}

#[derive(Deserialize)]
pub(crate) struct NewPlan {
    #[serde(default)]
    plan: String,
}

pub(crate) async fn change_plan(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<NewPlan>,
) -> Result<Response, PortalError> {
    let plan = read_plan(&form.plan)?;
    let change = AccountChange {
        track: Some(plan.track()),
        tier: Some(plan.tier()),
        ..AccountChange::default()
    };
    let before = gateway.ledger.account(&id).await?.plan;
    let account = me.actions(&gateway).change_account(id, change).await?;
    let page = path(&account.id);
    let done = Confirmation::new(format!("Plan changed to {}.", plan_name(account.plan)))
        .undone_by(&format!("{page}/plan"), &[("plan", &plan_name(before))]);
    Ok(me.redirect(&page, &done))
}

#[derive(Deserialize)]
pub(crate) struct NewState {
    #[serde(default)]
    state: String,
}

pub(crate) async fn change_state(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<NewState>,
) -> Result<Response, PortalError> {
    let closed = match form.state.as_str() {
        "closed" => true,
        "open" => false,
        _ => return Err(PortalError::Invalid("Unknown account state.".into())),
    };
    let change = AccountChange {
        closed: Some(closed),
        ..AccountChange::default()
    };
    let account = me.actions(&gateway).change_account(id, change).await?;
    let page = path(&account.id);
    let (text, back) = if account.closed {
        let text = "Account closed: requests with its keys are refused from now on.";
        (text, "open")
    } else {
        ("Account opened.", "closed")
    };
    let done = Confirmation::new(text).undone_by(&format!("{page}/state"), &[("state", back)]);
    Ok(me.redirect(&page, &done))
}

#[derive(Deserialize)]
pub(crate) struct NewCredit {
    #[serde(default)]
    amount: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    until: String,
    #[serde(default)]
    reference: String,
    /// Not empty once the operator has seen the question.
    #[serde(default)]
    confirmed: String,
}

/// Asks before credit is granted, which cannot be taken back.
fn ask(me: &SignedInOperator, account: &Account, amount: NanoUsd, form: &NewCredit) -> Page {
    let back = path(&account.id);
    let until = match form.until.trim() {
        "" => "It does not expire.".to_owned(),
        day => format!("It expires at the end of {day} (UTC)."),
    };
    let question = Question {
        title: &format!("Grant {} to {}?", money(amount), account.email),
        consequences: &format!("{until} Credit cannot be taken back."),
        path: &format!("{back}/grants"),
        fields: &[
            ("amount", &form.amount),
            ("reason", &form.reason),
            ("until", &form.until),
            ("reference", &form.reference),
            ("confirmed", "yes"),
        ],
        yes: &format!("Grant {}", money(amount)),
        no: ("Cancel", &back),
    };
    let content = question.shown(&me.token_field());
    frame::page(me, Place::Accounts, "Grant credit", &content)
}

pub(crate) async fn grant(
    State(gateway): State<Arc<Gateway>>,
    Id(id): Id,
    OperatorForm { me, form }: OperatorForm<NewCredit>,
) -> Result<Response, PortalError> {
    let amount = actions::amount(form.amount.trim())?;
    let reason = plain(&form.reason, MAX_REASON, "The reason")?;
    let reason = reason
        .ok_or_else(|| PortalError::Invalid("Enter a reason, so that others know why.".into()))?;
    // The reference makes a repeated submission harmless, so a form without one is refused.
    let reference = plain(&form.reference, MAX_NAME, "The number")?.ok_or(PortalError::Stale)?;
    let expires_at = end_of_day(form.until.trim())?;
    if form.confirmed.is_empty() {
        let account = gateway.ledger.account(&id).await?;
        return Ok(ask(&me, &account, amount, &form).into_response());
    }
    let new = NewGrant {
        amount,
        expires_at,
        reason: Some(reason),
        reference: Some(reference),
    };
    let page = path(&id);
    match me.actions(&gateway).grant(id, new).await {
        Err(ActionError::Ledger(LedgerError::ReferenceTaken { .. })) => Err(PortalError::Invalid(
            "This form was submitted before. Reload the account's page to grant more.".into(),
        )),
        given => {
            given?;
            let done = Confirmation::new(format!("{} granted.", money(amount)));
            Ok(me.redirect(&page, &done))
        }
    }
}

/// The end of the given day (UTC) in Unix seconds; `None` if no day is given.
fn end_of_day(day: &str) -> Result<Option<i64>, PortalError> {
    if day.is_empty() {
        return Ok(None);
    }
    let end = timestamp::read(&format!("{day}T00:00:00Z")).map(|begin| begin + DAY);
    match end {
        Some(end) if end > timestamp::now() => Ok(Some(end)),
        Some(_) => Err(PortalError::Invalid("That day is in the past.".into())),
        None => Err(PortalError::Invalid(
            "Enter the day like 2027-01-31.".into(),
        )),
    }
}

/// The trimmed text, checked for its length and for control characters; `None` if it is empty.
pub(crate) fn plain(text: &str, most: usize, what: &str) -> Result<Option<String>, PortalError> {
    let text = text.trim();
    if text.chars().count() > most || text.chars().any(char::is_control) {
        let message = format!("{what} has at most {most} characters, in one line.");
        return Err(PortalError::Invalid(message));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_lasts_to_the_end_of_a_day_that_is_not_over() {
        assert_eq!(end_of_day("").unwrap(), None);
        let end = timestamp::read("2096-03-01T00:00:00Z");
        assert_eq!(end_of_day("2096-02-29").unwrap(), end);
        for wrong in [
            "2020-01-01",
            "2097-02-29",
            "tomorrow",
            "2096-02-29T00:00:00Z",
        ] {
            assert!(end_of_day(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn texts_are_single_lines_of_limited_length() {
        assert_eq!(plain("  ", 3, "It").unwrap(), None);
        assert_eq!(plain(" äöü ", 3, "It").unwrap().as_deref(), Some("äöü"));
        assert!(plain("four", 3, "It").is_err() && plain("a\nb", 3, "It").is_err());
    }
}
