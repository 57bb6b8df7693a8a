//! Pruning: removes calls and ledger entries of past months. The balance that an account had then is brought forward by
//! an opening entry, so that its entries still add up; daily sums of usage remain.

/// What was removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pruned {
    pub calls: u64,
    /// Grants, expiries and reversals; charges are calls.
    pub entries: u64,
    /// The months whose tables were removed, e.g. `2026-11`, oldest first.
    pub months: Vec<String>,
}
