//! Credit that is bought: a provider takes the money, and tells us of it.
//!
//! A provider is asked for a page to pay at, for an order of ours under an ID of ours. That it was paid
//! is believed when the provider has signed it, and in no other way: not because a browser came back.

use std::sync::Arc;

use axum::http::HeaderMap;
use futures_util::future::BoxFuture;

mod event;
mod signature;
mod stripe;
mod test;

use self::stripe::Stripe;
pub use self::test::TestPayments;
use crate::{
    base::money::NanoUsd,
    config::{self, Offer, PaymentProvider},
};

/// Whoever takes money for us.
pub trait Provider: Send + Sync {
    /// In the books, e.g. `stripe`.
    fn key(&self) -> &'static str;

    /// For people, e.g. `Stripe`.
    fn name(&self) -> &'static str;

    /// Where its events are delivered, if they come from outside.
    fn event_path(&self) -> Option<&'static str>;

    /// Asks for a page to pay an order at.
    fn begin<'a>(&'a self, order: &'a Order<'a>) -> BoxFuture<'a, Result<Begun, BeginError>>;

    /// Reads what was delivered, if it is signed and was signed about `now`.
    fn read(&self, headers: &HeaderMap, body: &[u8], now: i64) -> Result<Delivered, Refused>;
}

/// What somebody wants to buy.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Our own ID for it.
    pub checkout: &'a str,
    pub account_id: &'a str,
    pub email: &'a str,
    /// Whole cents.
    pub amount: NanoUsd,
    /// Where the browser goes when it was paid, and when it was not.
    pub paid_url: &'a str,
    pub cancelled_url: &'a str,
}

/// A page to pay at.
#[derive(Clone, Debug)]
pub struct Begun {
    /// The provider's own name for the order.
    pub session: String,
    pub url: String,
}

/// Why there is no page to pay at, for the log: without anything secret.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BeginError(String);

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivered {
    Paid(Paid),
    /// Nothing that we need to know.
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paid {
    /// The ID that whoever began it has given; ours, if it was us.
    pub checkout: Option<String>,
    /// The provider's own name for it.
    pub session: String,
    pub sum: Sum,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sum {
    Usd(NanoUsd),
    /// In a currency that we keep no books in.
    Foreign {
        currency: String,
    },
}

/// Why something that was delivered is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("The event has no signature that can be read.")]
    Unsigned,
    #[error("The event's signature is not right.")]
    Forged,
    #[error("The event was signed too long ago, or in the future.")]
    OutOfTime,
    #[error("The event cannot be read.")]
    Unreadable,
}

/// Who takes money here, and for how much.
pub struct Payments {
    pub provider: Arc<dyn Provider>,
    pub offer: Offer,
    /// The same provider, where it only pretends.
    pub test: Option<Arc<TestPayments>>,
}

impl Payments {
    pub fn new(config: &config::Payments) -> Result<Self, String> {
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
