//! Automatic top-ups: their settings, and the attempts to pay.
//!
//! An attempt is a checkout without a person. It is stored before the provider is called, in a transaction that locks
//! the account's settings: so at most one attempt of an account is open, and the attempts of a month that were paid or
//! may have been stay within its maximum, however many gateways try at once and wherever one of them dies.

use super::{
    Backoffice, BackofficeError, Checkout,
    checkouts::{checkout_by_id, checkouts_where, first_checkout, new_checkout_id},
    sql::{Row, Statement, statement, unexpected},
};
use crate::base::money::NanoUsd;

/// Why an attempt is given up whose outcome is not known: it counts as paid against the maximum of the month.
pub(crate) const UNKNOWN: &str = "unknown";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopUpState {
    /// Until a card is saved.
    Waiting,
    On,
    /// After a payment has failed.
    Paused,
    Off,
}

impl TopUpState {
    const ALL: [Self; 4] = [Self::Waiting, Self::On, Self::Paused, Self::Off];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::On => "on",
            Self::Paused => "paused",
            Self::Off => "off",
        }
    }
}

/// The settings of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopUp {
    pub account_id: String,
    pub state: TopUpState,
    /// Credit is bought when the balance falls below this.
    pub threshold: NanoUsd,
    pub amount: NanoUsd,
    /// The most that is bought in a calendar month, in UTC.
    pub monthly_max: NanoUsd,
    /// The words that were agreed to, by whom and when.
    pub consent: String,
    pub consent_by: String,
    pub consent_at: i64,
    pub provider: String,
    /// The provider's IDs of the customer, and of the payment with which the card was saved.
    pub card: Option<(String, String)>,
    /// Why it is paused.
    pub problem: Option<String>,
    /// How often it was claimed.
    pub claims: i64,
}

/// Settings as a person has agreed to them.
#[derive(Clone, Debug)]
pub(crate) struct NewTopUp {
    pub account_id: String,
    pub threshold: NanoUsd,
    pub amount: NanoUsd,
    pub monthly_max: NanoUsd,
    pub consent: String,
    pub consent_by: String,
    pub provider: &'static str,
    pub now: i64,
}

macro_rules! columns {
    () => {
        "account_id, state, threshold, amount, monthly_max, consent, consent_by, consent_at, provider,
         customer, card, problem, claims"
    };
}

/// The condition of an open attempt: neither failed nor credited.
macro_rules! is_open {
    () => {
        "automatic = 1 AND failed_at IS NULL AND grant_id IS NULL"
    };
}

/// What the attempts of an account since a time have cost or may have cost: those that were paid since, that were given up
/// since without a known outcome, and one that is open, because it may be paid at any time.
macro_rules! spent_since {
    ($account:literal, $since:literal) => {
        concat!(
            "SELECT CAST(coalesce(sum(coalesce(paid_amount, amount)), 0) AS BIGINT) FROM backoffice_checkouts
             WHERE account_id = ",
            $account,
            " AND automatic = 1 AND ((paid_at IS NULL AND failed_at IS NULL) OR paid_at >= ",
            $since,
            " OR (failure = 'unknown' AND failed_at >= ",
            $since,
            "))"
        )
    };
}

impl Backoffice {
    pub(crate) async fn top_up(&self, account_id: &str) -> Result<Option<TopUp>, BackofficeError> {
        let rows = self.run(vec![by_account(account_id)]).await?;
        rows.into_iter().next().map(TopUp::read).transpose()
    }

    /// Stores settings. They are on if a card is saved with this provider, and wait for one otherwise.
    pub(crate) async fn set_top_up(&self, new: &NewTopUp) -> Result<TopUp, BackofficeError> {
        let account_id = new.account_id.as_str();
        let set = statement(
            "INSERT INTO backoffice_top_ups (account_id, state, threshold, amount, monthly_max, consent,
                 consent_by, consent_at, provider, next_at, claims)
             VALUES ($1, 'waiting', $2, $3, $4, $5, $6, $7, $8, $7, 0)
             ON CONFLICT (account_id) DO UPDATE SET
                 state = CASE WHEN backoffice_top_ups.card IS NOT NULL
                     AND backoffice_top_ups.provider = excluded.provider THEN 'on' ELSE 'waiting' END,
                 threshold = excluded.threshold, amount = excluded.amount,
                 monthly_max = excluded.monthly_max, consent = excluded.consent,
                 consent_by = excluded.consent_by, consent_at = excluded.consent_at,
                 customer = CASE WHEN backoffice_top_ups.provider = excluded.provider
                     THEN backoffice_top_ups.customer END,
                 card = CASE WHEN backoffice_top_ups.provider = excluded.provider
                     THEN backoffice_top_ups.card END,
                 provider = excluded.provider, problem = NULL, next_at = excluded.next_at",
            [
                account_id.into(),
                new.threshold.nanos().into(),
                new.amount.nanos().into(),
                new.monthly_max.nanos().into(),
                new.consent.as_str().into(),
                new.consent_by.as_str().into(),
                new.now.into(),
                new.provider.into(),
            ],
        );
        let rows = self.run(vec![set, by_account(account_id)]).await?;
        let stored = rows.into_iter().next().map(TopUp::read);
        stored.unwrap_or_else(|| Err(unexpected("the top-up that was stored")))
    }

    /// Saves the card of a payment for settings that wait for one. Returns whether they are on now.
    pub(crate) async fn save_card(
        &self,
        account_id: &str,
        provider: &str,
        (customer, card): (&str, &str),
    ) -> Result<bool, BackofficeError> {
        let save = statement(
            "UPDATE backoffice_top_ups SET customer = $1, card = $2, state = 'on', problem = NULL
             WHERE account_id = $3 AND provider = $4 AND state = 'waiting'",
            [
                customer.into(),
                card.into(),
                account_id.into(),
                provider.into(),
            ],
        );
        let rows = self.run(vec![save, by_account(account_id)]).await?;
        let stored = rows.into_iter().next().map(TopUp::read).transpose()?;
        Ok(stored.is_some_and(|stored| stored.state == TopUpState::On))
    }

    pub(crate) async fn turn_off_top_up(&self, account_id: &str) -> Result<(), BackofficeError> {
        let off = statement(
            "UPDATE backoffice_top_ups SET state = 'off', problem = NULL WHERE account_id = $1",
            [account_id.into()],
        );
        self.run(vec![off]).await?;
        Ok(())
    }

    /// Pauses settings, forgets their card, and marks the attempt that was the reason as failed.
    pub(crate) async fn pause_top_up(
        &self,
        account_id: &str,
        problem: &str,
        (attempt, why): (&str, &str),
        now: i64,
    ) -> Result<(), BackofficeError> {
        let pause = statement(
            "UPDATE backoffice_top_ups
             SET problem = CASE WHEN state = 'on' THEN $1 ELSE problem END,
                 state = CASE WHEN state = 'on' THEN 'paused' ELSE state END,
                 customer = NULL, card = NULL
             WHERE account_id = $2",
            [problem.into(), account_id.into()],
        );
        self.run(vec![pause, fail(attempt, why, now)]).await?;
        Ok(())
    }

    /// Claims settings that are on or have an open attempt, and are due; no other gateway claims them until
    /// `leased_until`.
    pub(crate) async fn claim_top_ups(
        &self,
        now: i64,
        leased_until: i64,
        limit: i64,
    ) -> Result<Vec<TopUp>, BackofficeError> {
        // The outer WHERE repeats a condition: after waiting for another gateway's lock, PostgreSQL evaluates only the
        // outer one on the changed row.
        let claim = statement(
            concat!(
                "UPDATE backoffice_top_ups SET claims = claims + 1, next_at = $1
                 WHERE next_at <= $2 AND account_id IN (
                     SELECT t.account_id FROM backoffice_top_ups t
                     WHERE t.next_at <= $2 AND (t.state = 'on' OR t.account_id IN (
                         SELECT c.account_id FROM backoffice_checkouts c WHERE ",
                is_open!(),
                ")) ORDER BY t.next_at LIMIT $3)
                 RETURNING ",
                columns!()
            ),
            [leased_until.into(), now.into(), limit.into()],
        );
        let rows = self.run(vec![claim]).await?;
        rows.into_iter().map(TopUp::read).collect()
    }

    /// Ends a claim, unless another gateway has claimed the settings since.
    pub(crate) async fn release_top_up(
        &self,
        top_up: &TopUp,
        next_at: i64,
    ) -> Result<(), BackofficeError> {
        let release = statement(
            "UPDATE backoffice_top_ups SET next_at = $1 WHERE account_id = $2 AND claims = $3",
            [
                next_at.into(),
                top_up.account_id.as_str().into(),
                top_up.claims.into(),
            ],
        );
        self.run(vec![release]).await?;
        Ok(())
    }

    /// The open attempt of an account.
    pub(crate) async fn open_attempt(
        &self,
        account_id: &str,
    ) -> Result<Option<Checkout>, BackofficeError> {
        let select = statement(
            checkouts_where!(
                "account_id = $1 AND automatic = 1 AND failed_at IS NULL AND grant_id IS NULL
                 ORDER BY created_at, id LIMIT 1"
            ),
            [account_id.into()],
        );
        first_checkout(self.run(vec![select]).await?)
    }

    /// Begins an attempt with the stored settings; `None` if they are not on, were claimed again since `top_up` was read,
    /// an attempt is open, or the maximum of the month that began at `since` does not allow it.
    pub(crate) async fn begin_attempt(
        &self,
        top_up: &TopUp,
        since: i64,
        now: i64,
    ) -> Result<Option<Checkout>, BackofficeError> {
        let (id, account_id) = (new_checkout_id(), top_up.account_id.as_str());
        let lock = statement(
            "UPDATE backoffice_top_ups SET claims = claims WHERE account_id = $1",
            [account_id.into()],
        );
        let begin = statement(
            concat!(
                "INSERT INTO backoffice_checkouts
                     (id, provider, account_id, person, amount, created_at, automatic)
                 SELECT $1, t.provider, t.account_id, t.consent_by, t.amount, $2, 1
                 FROM backoffice_top_ups t
                 WHERE t.account_id = $3 AND t.claims = $4 AND t.state = 'on' AND t.card IS NOT NULL
                     AND NOT EXISTS (SELECT 1 FROM backoffice_checkouts
                         WHERE account_id = $3 AND ",
                is_open!(),
                ") AND t.amount + (",
                spent_since!("$3", "$5"),
                ") <= t.monthly_max
                 ON CONFLICT (id) DO NOTHING"
            ),
            [
                id.as_str().into(),
                now.into(),
                account_id.into(),
                top_up.claims.into(),
                since.into(),
            ],
        );
        let steps = vec![lock, begin, checkout_by_id(&id)];
        first_checkout(self.run(steps).await?)
    }

    /// Marks an attempt that is not paid as failed.
    pub(crate) async fn fail_attempt(
        &self,
        id: &str,
        why: &str,
        now: i64,
    ) -> Result<(), BackofficeError> {
        self.run(vec![fail(id, why, now)]).await?;
        Ok(())
    }

    /// What attempts since this time have cost or may have cost.
    pub(crate) async fn topped_up_since(
        &self,
        account_id: &str,
        since: i64,
    ) -> Result<NanoUsd, BackofficeError> {
        let sum = statement(spent_since!("$1", "$2"), [account_id.into(), since.into()]);
        let rows = self.run(vec![sum]).await?;
        let row = rows.into_iter().next();
        row.map_or(Ok(NanoUsd::default()), |mut row| {
            row.int().map(NanoUsd::new)
        })
    }
}

fn fail(attempt: &str, why: &str, now: i64) -> Statement {
    statement(
        "UPDATE backoffice_checkouts SET failed_at = $1, failure = $2
         WHERE id = $3 AND automatic = 1 AND paid_at IS NULL AND failed_at IS NULL",
        [now.into(), why.into(), attempt.into()],
    )
}

fn by_account(account_id: &str) -> Statement {
    statement(
        concat!(
            "SELECT ",
            columns!(),
            " FROM backoffice_top_ups WHERE account_id = $1"
        ),
        [account_id.into()],
    )
}

impl TopUp {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        let account_id = row.text()?;
        let state = row.text()?;
        let mut states = TopUpState::ALL.into_iter();
        let state = states.find(|one| one.as_str() == state);
        Ok(Self {
            account_id,
            state: state.ok_or_else(|| unexpected("a state of a top-up"))?,
            threshold: NanoUsd::new(row.int()?),
            amount: NanoUsd::new(row.int()?),
            monthly_max: NanoUsd::new(row.int()?),
            consent: row.text()?,
            consent_by: row.text()?,
            consent_at: row.int()?,
            provider: row.text()?,
            card: row.text_or_null()?.zip(row.text_or_null()?),
            problem: row.text_or_null()?,
            claims: row.int()?,
        })
    }
}
