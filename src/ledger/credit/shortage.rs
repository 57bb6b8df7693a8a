//! Whether an account's credit covers a call, and how it stood when it did not.

use crate::base::money::NanoUsd;

/// Why a call cannot be paid for: the account's credit when it was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    pub balance: NanoUsd,
    /// What a new call could hold.
    pub available: NanoUsd,
    pub held: NanoUsd,
    /// What running calls may cost beyond what they hold.
    pub exposure: NanoUsd,
    /// What would be available if no call were running.
    pub usable: NanoUsd,
    /// Set where nothing is left because it expired, and not because it was spent.
    pub expired_at: Option<i64>,
}

impl Shortage {
    /// Whether another call would have been covered.
    pub fn covers(&self, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> bool {
        is_covered(self.available, self.exposure, amount, worst, overdraft)
    }

    /// Whether a call would be covered if no other were running.
    pub fn covers_alone(&self, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> bool {
        is_covered(self.usable, NanoUsd::default(), amount, worst, overdraft)
    }
}

/// Whether a call may hold `amount` and cost up to `worst`.
///
/// What all running calls may cost beyond their holds stays within what is available after this hold and `overdraft`,
/// so the balance never falls further than `overdraft` below zero.
pub fn is_covered(
    available: NanoUsd,
    exposure: NanoUsd,
    amount: NanoUsd,
    worst: NanoUsd,
    overdraft: NanoUsd,
) -> bool {
    let (available, amount) = (available.nanos(), amount.nanos());
    let risk = worst.nanos().saturating_sub(amount).max(0);
    let bearable = available
        .saturating_sub(amount)
        .saturating_add(overdraft.nanos());
    available > 0 && available >= amount && exposure.nanos().saturating_add(risk) <= bearable
}
