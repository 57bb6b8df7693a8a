//! Payment providers, which collect the money for purchased credit.
//!
//! The gateway requests a payment page for an order with an ID of its own. Only an event signed by the provider proves
//! the payment, never the browser's return from the page. Failures are returned to the caller with a reason that
//! contains no secret.

use std::sync::Arc;

use axum::http::HeaderMap;
use futures_util::future::BoxFuture;

mod event;
mod saved_card;
mod signature;
mod stripe;
mod test;

pub(crate) use self::saved_card::{CardOutcome, CardPayment, SentPayment};
use self::stripe::Stripe;
pub(crate) use self::test::{TEST_PROVIDER, TestPayments};
use crate::{
    base::money::NanoUsd,
    config::{self, Offer, PaymentProvider},
};

/// A payment provider.
pub trait Provider: Send + Sync {
    /// The provider's name in the store, e.g. `stripe`.
    fn key(&self) -> &'static str;

    /// The provider's name on pages, e.g. `Stripe`.
    fn name(&self) -> &'static str;

    /// The path to which the provider posts its events; `None` if they are not sent over the network.
    fn event_path(&self) -> Option<&'static str>;

    /// Requests a page on which an order can be paid.
    fn begin<'a>(&'a self, order: &'a Order<'a>) -> BoxFuture<'a, Result<PaymentPage, BeginError>>;

    /// Charges a saved card. An error means that the outcome is not known: repeat the payment.
    fn charge<'a>(
        &'a self,
        payment: &'a CardPayment<'a>,
    ) -> BoxFuture<'a, Result<CardOutcome, BeginError>>;

    /// Finds out what became of a payment with a saved card; never charges. `None` if the provider does not know it, or
    /// if it cannot be found there.
    fn find<'a>(
        &'a self,
        payment: &'a SentPayment<'a>,
    ) -> BoxFuture<'a, Result<Option<CardOutcome>, BeginError>>;

    /// Parses an event after checking its signature, whose time must be close to `now`.
    fn read(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<PaymentEvent, EventError>;
}

/// An order of credit.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// The ID of the checkout.
    pub checkout: &'a str,
    pub account_id: &'a str,
    pub email: &'a str,
    /// Whole cents.
    pub amount: NanoUsd,
    /// Whether the card is to be saved for automatic top-ups.
    pub saves_card: bool,
    /// Where the provider sends the browser after the payment.
    pub paid_url: &'a str,
    /// Where the provider sends the browser if the payment was cancelled.
    pub cancelled_url: &'a str,
}

/// A page on which an order can be paid.
#[derive(Clone, Debug)]
pub struct PaymentPage {
    /// The provider's ID of the order.
    pub session: String,
    pub url: String,
}

/// Why there is no payment page; for the log, without secrets.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BeginError(String);

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PaymentEvent {
    Paid(Paid),
    /// An event that the gateway ignores.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The reference that was given with the order: the ID of the checkout, if the gateway placed it.
    pub checkout: Option<String>,
    /// The provider's ID of the order.
    pub session: String,
    pub sum: Sum,
    /// The card that was saved: the provider's IDs of the customer and of the payment.
    pub card: Option<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sum {
    Usd(NanoUsd),
    /// In a currency that the ledger does not have.
    Foreign {
        currency: String,
    },
}

/// Why an event is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    #[error("The event has no signature that can be read.")]
    Unsigned,
    #[error("The event's signature is wrong.")]
    WrongSignature,
    #[error("The event was signed too long ago, or in the future.")]
    OutsideTolerance,
    #[error("The event cannot be read.")]
    Unreadable,
}

/// The configured provider, and the amounts on offer.
pub struct Payments {
    pub provider: Arc<dyn Provider>,
    pub offer: Offer,
    /// `provider`, if it is the test provider.
    pub test: Option<Arc<TestPayments>>,
}

impl Payments {
    /// Whether payments only pretend.
    pub(crate) fn is_test(&self) -> bool {
        self.test.is_some()
    }

    pub(crate) fn new(config: &config::Payments) -> Result<Self, String> {
        let offer = config.offer.clone();
        Ok(match &config.provider {
            PaymentProvider::Stripe(stripe) => Self {
                provider: Arc::new(Stripe::new(stripe)?),
                offer,
                test: None,
            },
            PaymentProvider::Test => {
                let test = Arc::new(TestPayments::new());
                Self {
                    provider: test.clone(),
                    offer,
                    test: Some(test),
                }
            }
        })
    }
}
