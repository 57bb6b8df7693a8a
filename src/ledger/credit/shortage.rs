//! The check whether an account's credit covers a call, and the figures of a refusal.

use crate::base::money::NanoUsd;

/// The account's credit when a call was refused for lack of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shortage {
    pub balance: NanoUsd,
    /// What a new call could hold.
    pub available: NanoUsd,
    pub held: NanoUsd,
    /// The sum of what running calls may cost beyond their holds.
    pub exposure: NanoUsd,
    /// What would be available if no call were running.
    pub usable: NanoUsd,
    /// Set if nothing is left because credit expired, and not because it was spent.
    pub expired_at: Option<i64>,
}

impl Shortage {
    /// Whether a call with these amounts would have been covered.
    pub(crate) fn covers(&self, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> bool {
        is_covered(self.available, self.exposure, amount, worst, overdraft)
    }

    /// Whether a call would be covered if no other were running.
    pub(crate) fn covers_alone(&self, amount: NanoUsd, worst: NanoUsd, overdraft: NanoUsd) -> bool {
        is_covered(self.usable, NanoUsd::default(), amount, worst, overdraft)
    }
}

/// Whether a call may hold `amount` and cost up to `worst`.
///
/// The sum of what all running calls may cost beyond their holds must stay within `overdraft` plus what is available
/// after this hold. So the balance never falls below minus `overdraft`.
pub(crate) fn is_covered(
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
