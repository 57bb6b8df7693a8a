//! The figures of a call that a budget refused.

use std::cmp::Reverse;

use serde::{Deserialize, Deserializer};

use super::{BudgetScope, Period};
use crate::{base::money::NanoUsd, ledger::credit::is_covered};

/// A budget that had no room for a call, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct BudgetShortage {
    pub(crate) id: String,
    pub(crate) scope: BudgetScope,
    pub(crate) scope_id: String,
    pub(crate) name: String,
    #[serde(rename = "amount_nano_usd", deserialize_with = "nanos")]
    pub(crate) amount: NanoUsd,
    pub(crate) period: Period,
    #[serde(rename = "spent_nano_usd", deserialize_with = "nanos")]
    pub(crate) spent: NanoUsd,
    #[serde(rename = "held_nano_usd", deserialize_with = "nanos")]
    pub(crate) held: NanoUsd,
    /// The sum of what running calls below it may cost beyond their holds.
    #[serde(rename = "exposure_nano_usd", deserialize_with = "nanos")]
    pub(crate) exposure: NanoUsd,
    /// When its next period begins.
    pub(crate) resets_at: Option<i64>,
}

/// The order in which a caller is told of several: of the narrowest place, and of the shortest period, first.
pub(crate) fn narrowest_first(mut shortages: Vec<BudgetShortage>) -> Vec<BudgetShortage> {
    shortages.sort_by_key(|shortage| (Reverse(shortage.scope), shortage.period));
    shortages
}

impl BudgetShortage {
    /// What a new call could hold.
    pub(crate) fn available(&self) -> NanoUsd {
        NanoUsd::new(self.unspent().saturating_sub(self.held.nanos()))
    }

    /// Whether a call would fit into a period of which nothing is spent.
    pub(crate) fn covers_anew(&self, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> bool {
        is_covered(self.amount, NanoUsd::default(), amount, worst, overdraft)
    }

    fn unspent(&self) -> i64 {
        self.amount.nanos().saturating_sub(self.spent.nanos())
    }

    /// Whether a call with these amounts would have fitted.
    pub(crate) fn covers(&self, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> bool {
        is_covered(self.available(), self.exposure, amount, worst, overdraft)
    }

    /// Whether a call would fit if no other were running.
    pub(crate) fn covers_alone(&self, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> bool {
        let unspent = NanoUsd::new(self.unspent());
        is_covered(unspent, NanoUsd::default(), amount, worst, overdraft)
    }
}

/// Reads an amount in nano-dollars.
fn nanos<'de, D: Deserializer<'de>>(from: D) -> Result<NanoUsd, D::Error> {
    i64::deserialize(from).map(NanoUsd::new)
}
