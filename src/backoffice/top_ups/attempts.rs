//! Attempts to pay for automatic top-ups.
//!
//! An attempt is a checkout without a person. It is stored before the provider is called, in a transaction that locks
//! the account's settings: so at most one attempt of an account is open, and the attempts of a month that were paid or
//! may have been stay within its maximum, however many gateways try at once and wherever one of them dies.

use super::TopUp;
use crate::{
    backoffice::{
        Backoffice, BackofficeError, Checkout,
        checkouts::{checkout_by_id, checkouts_where, first_checkout, new_checkout_id},
        sql::{Statement, statement, unexpected},
    },
    base::money::NanoUsd,
};

/// What an account's attempts since a time have cost or may have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bought {
    pub paid: NanoUsd,
    /// Of the attempt that is open: it may be paid at any time.
    pub pending: NanoUsd,
    /// Of attempts that were given up without a known outcome.
    pub unknown: NanoUsd,
}

impl Bought {
    /// What counts against the maximum of a month.
    pub(crate) fn sum(self) -> NanoUsd {
        let parts = [self.paid, self.pending, self.unknown];
        let sum = |all: NanoUsd, part| all.checked_add(part).unwrap_or(NanoUsd::new(i64::MAX));
        parts.into_iter().fold(NanoUsd::default(), sum)
    }
}

/// The attempts of an account that count since a time: those that were paid since, that were given up since without a known
/// outcome, and one that is open.
macro_rules! counted {
    ($account:literal, $since:literal) => {
        concat!(
            " FROM backoffice_checkouts
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

    /// Begins an attempt with these settings; `None` if they are not on, were changed or claimed again since `top_up` was
    /// read, an attempt is open, or the maximum of the month that began at `since` does not allow it.
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
                     (id, provider, account_id, person, amount, created_at, automatic, consent_id)
                 SELECT $1, t.provider, t.account_id, t.consent_by, t.amount, $2, 1, t.consent_id
                 FROM backoffice_top_ups t
                 WHERE t.account_id = $3 AND t.claims = $4 AND t.consent_id = $5 AND t.state = 'on'
                     AND t.card IS NOT NULL
                     AND NOT EXISTS (SELECT 1 FROM backoffice_checkouts
                         WHERE account_id = $3 AND ",
                is_open!(),
                ") AND t.amount + (SELECT CAST(coalesce(sum(coalesce(paid_amount, amount)), 0) AS BIGINT)",
                counted!("$3", "$6"),
                ") <= t.monthly_max
                 ON CONFLICT (id) DO NOTHING"
            ),
            [
                id.as_str().into(),
                now.into(),
                account_id.into(),
                top_up.claims.into(),
                top_up.consent_id.as_str().into(),
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
    ) -> Result<Bought, BackofficeError> {
        let sums = statement(
            concat!(
                "SELECT CAST(coalesce(sum(paid_amount), 0) AS BIGINT),
                     CAST(coalesce(sum(CASE WHEN paid_at IS NULL AND failed_at IS NULL THEN amount END), 0)
                         AS BIGINT),
                     CAST(coalesce(sum(CASE WHEN paid_at IS NULL AND failed_at IS NOT NULL THEN amount END), 0)
                         AS BIGINT)",
                counted!("$1", "$2")
            ),
            [account_id.into(), since.into()],
        );
        let sums = self.run(vec![sums]).await?.into_iter().next();
        let mut sums = sums.ok_or_else(|| unexpected("the sums of attempts"))?;
        Ok(Bought {
            paid: NanoUsd::new(sums.int()?),
            pending: NanoUsd::new(sums.int()?),
            unknown: NanoUsd::new(sums.int()?),
        })
    }
}

pub(super) fn fail(attempt: &str, why: &str, now: i64) -> Statement {
    statement(
        "UPDATE backoffice_checkouts SET failed_at = $1, failure = $2
         WHERE id = $3 AND automatic = 1 AND paid_at IS NULL AND failed_at IS NULL",
        [now.into(), why.into(), attempt.into()],
    )
}
