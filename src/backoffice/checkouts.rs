//! Checkouts: orders of credit at a payment provider, and their payments.
//!
//! An order is stored before it is sent to the provider. The account to be credited is read from here only, never from
//! the provider's event. A payment is recorded once, before it becomes credit, so that repeated events of the provider
//! result in one and the same grant.

use super::{
    Backoffice, BackofficeError,
    sql::{Row, Statement, statement, unexpected},
};
use crate::base::{keys::random_id, money::NanoUsd, timestamp};

const PREFIX: &str = "checkout_";

/// Whether a text has the form of a checkout's ID.
pub(crate) fn is_checkout(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    id.strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == 24 && rest.bytes().all(plain))
}

/// An order and its payment, if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Checkout {
    /// `checkout_…`
    pub id: String,
    pub provider: String,
    /// The provider's ID of the checkout session, once it is known.
    pub session: Option<String>,
    pub account_id: String,
    /// Email address of the person who ordered, as it was at the time.
    pub person: String,
    /// The ordered amount.
    pub amount: NanoUsd,
    pub created_at: i64,
    /// Whether it is an automatic top-up.
    pub automatic: bool,
    /// The consent to auto top-up: of an automatic one, that under which it was begun; of an order, that for which the card
    /// is saved once it is paid, if it is to be saved.
    pub consent_id: Option<String>,
    /// When and why an automatic payment failed.
    pub failed: Option<(i64, String)>,
    pub receipt: Option<Receipt>,
}

/// A recorded payment. Only `grant_id` is set later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub paid_at: i64,
    pub amount: NanoUsd,
    /// When the purchased credit expires.
    pub expires_at: Option<i64>,
    /// The grant that credits the payment, once it is made.
    pub grant_id: Option<String>,
    /// E.g. `R-2026-000123`: consecutive within a year and a store.
    pub number: String,
}

pub(crate) struct NewCheckout {
    pub provider: &'static str,
    pub account_id: String,
    pub person: String,
    pub amount: NanoUsd,
    pub now: i64,
    /// The consent to auto top-up for which the card is saved once it is paid, if it is to be saved.
    pub consent_id: Option<String>,
}

/// A payment as reported by a provider.
pub(crate) struct Payment<'a> {
    pub provider: &'a str,
    pub session: &'a str,
    pub amount: NanoUsd,
    pub now: i64,
    pub expires_at: Option<i64>,
}

/// Selects the columns that `Checkout::read` expects.
macro_rules! checkouts_where {
    ($condition:literal) => {
        concat!(
            "SELECT id, provider, session, account_id, person, amount, created_at,
                 automatic, consent_id, failed_at, failure, paid_at, paid_amount, expires_at, grant_id, receipt
             FROM backoffice_checkouts WHERE ",
            $condition
        )
    };
}

pub(super) use checkouts_where;

const BY_ID: &str = checkouts_where!("id = $1");

pub(super) fn checkout_by_id(id: &str) -> Statement {
    statement(BY_ID, [id.into()])
}

pub(super) fn new_checkout_id() -> String {
    random_id(PREFIX)
}

impl Backoffice {
    /// Stores an order; `None` if the account has `most` unpaid orders since `since`.
    pub(crate) async fn open_checkout(
        &self,
        new: NewCheckout,
        since: i64,
        most: i64,
    ) -> Result<Option<Checkout>, BackofficeError> {
        let id = new_checkout_id();
        let open = statement(
            "INSERT INTO backoffice_checkouts
                 (id, provider, account_id, person, amount, created_at, automatic, consent_id)
             SELECT $1, $2, $3, $4, $5, $6, 0, $7
             WHERE (SELECT count(*) FROM backoffice_checkouts
                    WHERE account_id = $3 AND created_at > $8 AND paid_at IS NULL AND automatic = 0) < $9
             ON CONFLICT (id) DO NOTHING",
            [
                id.as_str().into(),
                new.provider.into(),
                new.account_id.as_str().into(),
                new.person.as_str().into(),
                new.amount.nanos().into(),
                new.now.into(),
                new.consent_id.as_deref().into(),
                since.into(),
                most.into(),
            ],
        );
        let select = checkout_by_id(&id);
        first_checkout(self.run(vec![open, select]).await?)
    }

    /// Stores the provider's session ID of a checkout, unless one is stored already.
    pub(crate) async fn checkout_begun(
        &self,
        id: &str,
        session: &str,
    ) -> Result<(), BackofficeError> {
        let store = statement(
            "UPDATE backoffice_checkouts SET session = $1 WHERE id = $2 AND session IS NULL",
            [session.into(), id.into()],
        );
        self.run(vec![store]).await?;
        Ok(())
    }

    /// Records a payment, and gives it the next receipt number, if it is the checkout's first and of its session. Returns
    /// the checkout as it is then; `None` if there is no such checkout.
    pub(crate) async fn checkout_paid(
        &self,
        id: &str,
        payment: &Payment<'_>,
    ) -> Result<Option<Checkout>, BackofficeError> {
        let write = statement(
            "UPDATE backoffice_checkouts
             SET session = $1, paid_amount = $2, paid_at = $3, expires_at = NULLIF($4, 0)
             WHERE id = $5 AND provider = $6 AND paid_at IS NULL
                 AND (session IS NULL OR session = $1)",
            [
                payment.session.into(),
                payment.amount.nanos().into(),
                payment.now.into(),
                payment.expires_at.unwrap_or(0).into(),
                id.into(),
                payment.provider.into(),
            ],
        );
        let year = &timestamp::day(payment.now)[..4];
        let name = format!("receipts of {year}");
        let begin = statement(
            "INSERT INTO backoffice_numbers (name, last) VALUES ($1, 0) ON CONFLICT (name) DO NOTHING",
            [name.as_str().into()],
        );
        // The number's row stays locked until the transaction ends, so a number is neither skipped nor given twice.
        let count = statement(
            "UPDATE backoffice_numbers SET last = last + 1 WHERE name = $1 AND EXISTS
                 (SELECT 1 FROM backoffice_checkouts WHERE id = $2 AND paid_at IS NOT NULL AND receipt IS NULL)",
            [name.as_str().into(), id.into()],
        );
        let number = statement(
            "UPDATE backoffice_checkouts SET receipt = $1 ||
                 (SELECT CASE WHEN last < 1000000 THEN substr(CAST(1000000 + last AS TEXT), 2)
                         ELSE CAST(last AS TEXT) END
                     FROM backoffice_numbers WHERE name = $2)
             WHERE id = $3 AND paid_at IS NOT NULL AND receipt IS NULL",
            [
                format!("R-{year}-").as_str().into(),
                name.as_str().into(),
                id.into(),
            ],
        );
        let select = checkout_by_id(id);
        first_checkout(self.run(vec![write, begin, count, number, select]).await?)
    }

    /// The checkout with this receipt number, if the account has it.
    pub(crate) async fn receipt(
        &self,
        account_id: &str,
        number: &str,
    ) -> Result<Option<Checkout>, BackofficeError> {
        let select = statement(
            checkouts_where!("receipt = $1 AND account_id = $2"),
            [number.into(), account_id.into()],
        );
        first_checkout(self.run(vec![select]).await?)
    }

    /// Stores the grant that credits a payment.
    pub(crate) async fn checkout_credited(
        &self,
        id: &str,
        grant_id: &str,
    ) -> Result<(), BackofficeError> {
        let write = statement(
            "UPDATE backoffice_checkouts SET grant_id = $1 WHERE id = $2 AND paid_at IS NOT NULL",
            [grant_id.into(), id.into()],
        );
        self.run(vec![write]).await?;
        Ok(())
    }

    /// Deletes an order that has no session at the provider and no payment.
    pub(crate) async fn drop_checkout(&self, id: &str) -> Result<(), BackofficeError> {
        let delete = statement(
            "DELETE FROM backoffice_checkouts WHERE id = $1 AND session IS NULL AND paid_at IS NULL",
            [id.into()],
        );
        self.run(vec![delete]).await?;
        Ok(())
    }

    /// Checkouts that were paid before this time and not credited yet, oldest first.
    pub(crate) async fn uncredited_checkouts(
        &self,
        before: i64,
        limit: usize,
    ) -> Result<Vec<Checkout>, BackofficeError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let select = statement(
            checkouts_where!("paid_at < $1 AND grant_id IS NULL ORDER BY paid_at, id LIMIT $2"),
            [before.into(), limit.into()],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(Checkout::read).collect()
    }

    pub(crate) async fn checkout(&self, id: &str) -> Result<Option<Checkout>, BackofficeError> {
        let select = checkout_by_id(id);
        first_checkout(self.run(vec![select]).await?)
    }

    /// Checkouts of an account, newest first, beginning after the one with this creation time and ID.
    pub(crate) async fn checkouts_of(
        &self,
        account_id: &str,
        before: Option<(i64, String)>,
        limit: usize,
    ) -> Result<Vec<Checkout>, BackofficeError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let (created_at, id) = before.unwrap_or((i64::MAX, String::new()));
        let select = statement(
            checkouts_where!(
                "account_id = $1 AND (created_at, id) < ($2, $3)
                 ORDER BY created_at DESC, id DESC LIMIT $4"
            ),
            [
                account_id.into(),
                created_at.into(),
                id.as_str().into(),
                limit.into(),
            ],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().map(Checkout::read).collect()
    }
}

pub(super) fn first_checkout(rows: Vec<Row>) -> Result<Option<Checkout>, BackofficeError> {
    rows.into_iter().next().map(Checkout::read).transpose()
}

impl Checkout {
    fn read(mut row: Row) -> Result<Self, BackofficeError> {
        let checkout = Self {
            id: row.text()?,
            provider: row.text()?,
            session: row.text_or_null()?,
            account_id: row.text()?,
            person: row.text()?,
            amount: NanoUsd::new(row.int()?),
            created_at: row.int()?,
            automatic: row.int()? != 0,
            consent_id: row.text_or_null()?,
            failed: row.int_or_null()?.zip(row.text_or_null()?),
            receipt: None,
        };
        let paid = (row.int_or_null()?, row.int_or_null()?);
        let (expires_at, grant_id) = (row.int_or_null()?, row.text_or_null()?);
        let number = row.text_or_null()?;
        let (Some(paid_at), Some(amount)) = paid else {
            return Ok(checkout);
        };
        let receipt = Receipt {
            paid_at,
            amount: NanoUsd::new(amount),
            expires_at,
            grant_id,
            number: number.ok_or_else(|| unexpected("the number of a receipt"))?,
        };
        Ok(Self {
            receipt: Some(receipt),
            ..checkout
        })
    }
}
