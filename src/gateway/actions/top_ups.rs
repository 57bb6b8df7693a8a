//! Actions on automatic top-ups: of the people who set them, and of the provider whose payment failed.

use serde_json::{Value, json};

use super::{ActionError, OperatorActions};
use crate::{
    backoffice::{Checkout, NewTopUp, TopUp, TopUpState},
    base::{money::NanoUsd, timestamp},
    config::Offer,
};

/// The most that can be agreed to for a month: 100,000 dollars.
const MAX_A_MONTH: NanoUsd = NanoUsd::new(100_000_000_000_000);

/// Why settings are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTopUp {
    #[error("Enter the balance below which credit is bought, from $0.01 to $100,000.")]
    Threshold,
    #[error("This amount is not available.")]
    Amount,
    #[error(
        "The monthly maximum must be at least the amount of one purchase, and at most $100,000."
    )]
    MonthlyMax,
}

impl BadTopUp {
    pub(crate) fn check(new: &NewTopUp, offer: &Offer) -> Result<(), Self> {
        let most = NanoUsd::default()..=MAX_A_MONTH;
        let whole = |amount: NanoUsd| amount.whole_cents().is_some();
        if new.threshold <= NanoUsd::default()
            || !most.contains(&new.threshold)
            || !whole(new.threshold)
        {
            return Err(Self::Threshold);
        }
        if !whole(new.amount) || !(offer.min..=offer.max).contains(&new.amount) {
            return Err(Self::Amount);
        }
        if new.monthly_max < new.amount
            || !most.contains(&new.monthly_max)
            || !whole(new.monthly_max)
        {
            return Err(Self::MonthlyMax);
        }
        Ok(())
    }
}

impl OperatorActions {
    /// Stores settings that a person has agreed to.
    pub(crate) async fn set_top_up(&self, new: NewTopUp) -> Result<TopUp, ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let backoffice = &actions.gateway.backoffice;
            let before = backoffice.top_up(&new.account_id).await?;
            let before = before.as_ref().map(recorded);
            let set = backoffice.set_top_up(&new).await?;
            let after = Some(recorded(&set));
            actions
                .record("top_up.set", &new.account_id, before, after)
                .await;
            Ok(set)
        })
        .await
    }

    pub(crate) async fn turn_off_top_up(&self, account_id: String) -> Result<(), ActionError> {
        let actions = self.clone();
        self.run_to_completion(async move {
            let backoffice = &actions.gateway.backoffice;
            let before = backoffice.top_up(&account_id).await?;
            let before = before.filter(|before| before.state != TopUpState::Off);
            let Some(before) = before.as_ref().map(recorded) else {
                return Ok(());
            };
            backoffice.turn_off_top_up(&account_id).await?;
            let after = Some(json!({ "state": "off" }));
            actions
                .record("top_up.off", &account_id, Some(before), after)
                .await;
            Ok(())
        })
        .await
    }

    /// Fails an attempt, and pauses its account's settings if they allow it. Returns whether they are paused. Repeating it
    /// records it once.
    pub(crate) async fn give_up_top_up(
        &self,
        top_up: &TopUp,
        attempt: &Checkout,
        (kind, problem): (&str, &str),
    ) -> Result<bool, ActionError> {
        let (backoffice, now) = (&self.gateway.backoffice, timestamp::now());
        let (account_id, attempt_id) = (top_up.account_id.as_str(), attempt.id.as_str());
        let is_paused = if top_up.allows(attempt) {
            let paused = backoffice.pause_top_up(account_id, problem, (attempt_id, kind), now);
            paused.await?
        } else {
            backoffice.fail_attempt(attempt_id, kind, now).await?;
            false
        };
        let (what, after) = if is_paused {
            let after = json!({ "state": "paused", "attempt": attempt_id, "problem": problem });
            ("top_up.pause", after)
        } else {
            let after = json!({ "attempt": attempt_id, "problem": problem });
            ("top_up.fail", after)
        };
        let id = format!("action_{attempt_id}");
        self.record_once(&id, what, account_id, None, Some(after))
            .await;
        Ok(is_paused)
    }
}

/// Settings in the log of actions, with the words that were agreed to.
fn recorded(top_up: &TopUp) -> Value {
    json!({
        "state": top_up.state.as_str(),
        "threshold": top_up.threshold,
        "amount": top_up.amount,
        "monthly_max": top_up.monthly_max,
        "consent": top_up.consent,
        "consent_by": top_up.consent_by,
        "consent_at": timestamp::shown(top_up.consent_at),
    })
}
