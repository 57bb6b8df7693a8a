//! Rate limits as plain values: ceilings, refusals and reservations.

/// Length of the sliding window: an entry counts while fewer than this many milliseconds have passed.
pub(crate) const WINDOW_MS: u64 = 60_000;

/// A ceiling that is never reached: of a key that has only one of the two.
pub(crate) const UNLIMITED: u32 = u32::MAX;

/// The most that the window of one account with one model may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceilings {
    /// Requests per window (RPM).
    pub requests: u32,
    /// Tokens per window (TPM), reserved or used.
    pub tokens: u32,
}

/// The ceiling that a request would exceed. If it would exceed both, this is `Requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Requests,
    Tokens,
}

/// Whose window would be exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowOf {
    /// The account's, with the requested model.
    Account,
    /// The API key's own, with all models.
    Key,
}

/// Why a request was refused, and after which time it would be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub of: WindowOf,
    /// The ceiling that the request would exceed.
    pub limit: Limit,
    /// The ceilings at the time of the refusal.
    pub ceilings: Ceilings,
    /// How many more requests the window has room for.
    pub requests_left: u32,
    /// How many more tokens the window has room for.
    pub tokens_left: u32,
    /// Milliseconds until this request fits, if no other is admitted before it. `None` if it never fits, because it
    /// needs more tokens than the ceiling allows or the ceiling of requests is 0.
    pub wait_ms: Option<u64>,
}

/// One entry of a window: the request, or one of its further steps. The ledger stores it with the call's hold, so that
/// a window can be rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// When it was admitted, in milliseconds since 1970, by the limiter's clock.
    pub at_ms: u64,
    /// The estimated tokens, replaced by the used tokens once these are known.
    pub tokens: u64,
    /// 0 for the request itself, then 1, 2, … for its further steps. Only step 0 counts as a request.
    pub step: u32,
}

/// A [`Reservation`] as the ledger returns it for rebuilding a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredReservation {
    /// The account's ID.
    pub account: String,
    /// The ID of the requested model, which with the account identifies the window.
    pub model: String,
    /// The call's number in the ledger.
    pub call: u64,
    /// 0 for the request itself, then 1, 2, … for its further steps.
    pub step: u32,
    /// When it was admitted, in milliseconds since 1970, by the limiter's clock.
    pub at_ms: u64,
    /// How many milliseconds ago that was by the gateways' clocks. Used in place of `at_ms` if the limiter's clock was
    /// set forward since.
    pub age_ms: u64,
    /// The reserved tokens, or the used tokens of a finished call.
    pub tokens: u64,
}
