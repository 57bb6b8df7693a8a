//! Automatic top-ups: their settings, and the attempts to pay (`attempts.rs`).
//!
//! Each time a person agrees to settings, that consent has an ID of its own. An attempt belongs to the consent under which
//! it was begun, and is charged under no other.

pub(crate) use self::attempts::Bought;
use self::attempts::fail;
use super::{
    Backoffice, BackofficeError, Checkout, Person,
    sql::{Row, Statement, statement, unexpected},
};
use crate::base::{keys::random_id, money::NanoUsd};

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
    pub consent_id: String,
    pub consent_by: String,
    pub consent_at: i64,
    pub provider: String,
    /// The provider's ID of the customer whose card was saved last. Payments that were begun with it are looked up there.
    pub customer: Option<String>,
    /// The provider's ID of the payment with which the card was saved. It is the card of the person who agreed to the
    /// settings (`consent_by`).
    pub card: Option<String>,
    /// Why it is paused.
    pub problem: Option<String>,
    /// How often it was claimed.
    pub claims: i64,
    /// The first second of the last month for which people were told that its maximum is reached; or 0.
    pub told_month: i64,
}

impl TopUp {
    /// The customer and the card to charge.
    pub(crate) fn saved_card(&self) -> Option<(&str, &str)> {
        self.customer.as_deref().zip(self.card.as_deref())
    }

    /// Whether an attempt may be charged: it was begun under the present consent, which was not withdrawn.
    pub(crate) fn allows(&self, attempt: &Checkout) -> bool {
        self.state == TopUpState::On
            && attempt.consent_id.as_deref() == Some(self.consent_id.as_str())
            && attempt.amount <= self.monthly_max
    }

    /// Whether nothing more can be bought in a month in which this was bought. While an attempt is open, that is not
    /// known: it may fail.
    pub(crate) fn is_at_maximum(&self, bought: Bought) -> bool {
        self.state == TopUpState::On
            && bought.pending == NanoUsd::default()
            && self
                .amount
                .checked_add(bought.sum())
                .is_none_or(|sum| sum > self.monthly_max)
    }
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
        "account_id, state, threshold, amount, monthly_max, consent, consent_id, consent_by, consent_at,
         provider, customer, card, problem, claims, told_month"
    };
}

/// The condition of an open attempt: neither failed nor credited.
macro_rules! is_open {
    () => {
        "automatic = 1 AND failed_at IS NULL AND grant_id IS NULL"
    };
}

// After the macro, which it uses.
mod attempts;

impl Backoffice {
    pub(crate) async fn top_up(&self, account_id: &str) -> Result<Option<TopUp>, BackofficeError> {
        let rows = self.run(vec![by_account(account_id)]).await?;
        rows.into_iter().next().map(TopUp::read).transpose()
    }

    /// Stores settings. They are on if a card of the same person is saved with this provider, and wait for one otherwise: the
    /// card of another person, who agreed to other settings, is forgotten.
    pub(crate) async fn set_top_up(&self, new: &NewTopUp) -> Result<TopUp, BackofficeError> {
        let account_id = new.account_id.as_str();
        let set = statement(
            "INSERT INTO backoffice_top_ups (account_id, state, threshold, amount, monthly_max, consent,
                 consent_id, consent_by, consent_at, provider, next_at, claims, told_month)
             VALUES ($1, 'waiting', $2, $3, $4, $5, $6, $7, $8, $9, $8, 0, 0)
             ON CONFLICT (account_id) DO UPDATE SET
                 state = CASE WHEN backoffice_top_ups.card IS NOT NULL
                     AND backoffice_top_ups.provider = excluded.provider
                     AND backoffice_top_ups.consent_by = excluded.consent_by THEN 'on' ELSE 'waiting' END,
                 threshold = excluded.threshold, amount = excluded.amount,
                 monthly_max = excluded.monthly_max, consent = excluded.consent,
                 consent_id = excluded.consent_id, consent_by = excluded.consent_by,
                 consent_at = excluded.consent_at,
                 customer = CASE WHEN backoffice_top_ups.provider = excluded.provider
                     THEN backoffice_top_ups.customer END,
                 card = CASE WHEN backoffice_top_ups.provider = excluded.provider
                     AND backoffice_top_ups.consent_by = excluded.consent_by THEN backoffice_top_ups.card END,
                 provider = excluded.provider, problem = NULL, next_at = excluded.next_at",
            [
                account_id.into(),
                new.threshold.nanos().into(),
                new.amount.nanos().into(),
                new.monthly_max.nanos().into(),
                new.consent.as_str().into(),
                random_id("consent_").as_str().into(),
                new.consent_by.as_str().into(),
                new.now.into(),
                new.provider.into(),
            ],
        );
        let rows = self.run(vec![set, by_account(account_id)]).await?;
        let stored = rows.into_iter().next().map(TopUp::read);
        stored.unwrap_or_else(|| Err(unexpected("the top-up that was stored")))
    }

    /// Saves the card of a payment for the settings that it was made for, if they still wait for one: a card is charged
    /// only by settings that its payer agreed to, these and later ones. Returns whether they are on now.
    pub(crate) async fn save_card(
        &self,
        account_id: &str,
        (provider, consent_id): (&str, &str),
        (customer, card): (&str, &str),
    ) -> Result<bool, BackofficeError> {
        let save = statement(
            "UPDATE backoffice_top_ups SET customer = $1, card = $2, state = 'on', problem = NULL
             WHERE account_id = $3 AND provider = $4 AND consent_id = $5 AND state = 'waiting'",
            [
                customer.into(),
                card.into(),
                account_id.into(),
                provider.into(),
                consent_id.into(),
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

    /// Marks an attempt that is not paid as failed; if its consent is the present one, pauses the settings and forgets
    /// their card. Returns whether they are paused.
    pub(crate) async fn pause_top_up(
        &self,
        account_id: &str,
        problem: &str,
        (attempt, why): (&str, &str),
        now: i64,
    ) -> Result<bool, BackofficeError> {
        let pause = statement(
            "UPDATE backoffice_top_ups
             SET state = 'paused', problem = $1, customer = NULL, card = NULL
             WHERE account_id = $2 AND state = 'on' AND consent_id =
                 (SELECT consent_id FROM backoffice_checkouts WHERE id = $3 AND paid_at IS NULL)",
            [problem.into(), account_id.into(), attempt.into()],
        );
        let steps = vec![pause, fail(attempt, why, now), by_account(account_id)];
        let stored = self.run(steps).await?.into_iter().next();
        let stored = stored.map(TopUp::read).transpose()?;
        Ok(stored.is_some_and(|stored| stored.state == TopUpState::Paused))
    }

    /// Notes that people are told that the maximum of the month that began at `month` is reached. Returns whether they
    /// are to be told: once a month, by the present claim, if these settings are still the present ones. Repeating it for
    /// the same claim returns the same.
    pub(crate) async fn tell_of_maximum(
        &self,
        top_up: &TopUp,
        month: i64,
    ) -> Result<bool, BackofficeError> {
        let note = statement(
            "UPDATE backoffice_top_ups SET told_month = $1
             WHERE account_id = $2 AND consent_id = $3 AND claims = $4 AND state = 'on' AND told_month < $1",
            [
                month.into(),
                top_up.account_id.as_str().into(),
                top_up.consent_id.as_str().into(),
                top_up.claims.into(),
            ],
        );
        let rows = self.run(vec![note, by_account(&top_up.account_id)]).await?;
        let stored = rows.into_iter().next().map(TopUp::read).transpose()?;
        // An earlier claim that told them was over when this one began, which has read its month.
        let is_by_claim =
            |stored: TopUp| stored.told_month == month && stored.claims == top_up.claims;
        Ok(top_up.told_month < month && stored.is_some_and(is_by_claim))
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
            consent_id: row.text()?,
            consent_by: row.text()?,
            consent_at: row.int()?,
            provider: row.text()?,
            customer: row.text_or_null()?,
            card: row.text_or_null()?,
            problem: row.text_or_null()?,
            claims: row.int()?,
            told_month: row.int()?,
        })
    }
}

/// Pauses auto top-up, and forgets its card, because the person who turned it on can no longer turn it off.
macro_rules! pause_of_leaver {
    ($who:literal) => {
        concat!(
            "UPDATE backoffice_top_ups
             SET state = CASE WHEN state IN ('on', 'waiting') THEN 'paused' ELSE state END,
                 problem = CASE WHEN state IN ('on', 'waiting') THEN 'the member who turned it on has left'
                                ELSE problem END,
                 card = NULL
             WHERE ",
            $who
        )
    };
}

/// Runs before the person is removed.
pub(super) fn pause_top_up_of(person_id: &str) -> Statement {
    statement(
        pause_of_leaver!(
            "(account_id, consent_by) =
                 (SELECT p.account_id, p.email FROM backoffice_people p WHERE p.id = $1)"
        ),
        [person_id.into()],
    )
}

/// Runs after the person was removed, and changes nothing if they were not.
pub(super) fn pause_top_up_left_behind(person: &Person) -> Statement {
    statement(
        pause_of_leaver!(
            "account_id = $1 AND consent_by = $2
                 AND NOT EXISTS (SELECT 1 FROM backoffice_people WHERE id = $3)"
        ),
        [&person.account_id, &person.email, &person.id].map(|text| text.as_str().into()),
    )
}
