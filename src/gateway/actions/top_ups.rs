//! Actions on automatic top-ups: of the people who set them, and of the provider whose payment failed.

use serde_json::{Value, json};

use super::{ActionError, OperatorActions};
use crate::{
    backoffice::{NewTopUp, TopUp, TopUpState},
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

    /// Fails an attempt and pauses its account's settings. Repeating it records it once.
    pub(crate) async fn pause_top_up(
        &self,
        account_id: &str,
        attempt: &str,
        (kind, problem): (&str, &str),
    ) -> Result<(), ActionError> {
        let (backoffice, now) = (&self.gateway.backoffice, timestamp::now());
        backoffice
            .pause_top_up(account_id, problem, (attempt, kind), now)
            .await?;
        let after = json!({ "state": "paused", "attempt": attempt, "problem": problem });
        let id = format!("action_{attempt}");
        self.record_once(&id, "top_up.pause", account_id, None, Some(after))
            .await;
        Ok(())
    }

    /// Fails an attempt of an account whose settings are not on. Repeating it records it once.
    pub(crate) async fn fail_top_up(
        &self,
        account_id: &str,
        attempt: &str,
        (kind, problem): (&str, &str),
    ) -> Result<(), ActionError> {
        let now = timestamp::now();
        let failed = self.gateway.backoffice.fail_attempt(attempt, kind, now);
        failed.await?;
        let after = json!({ "attempt": attempt, "problem": problem });
        let id = format!("action_{attempt}");
        self.record_once(&id, "top_up.fail", account_id, None, Some(after))
            .await;
        Ok(())
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
