//! Rate limits as plain values: what a window allows, why a request was refused.

/// An entry is in the window while fewer than this many milliseconds have passed.
pub const WINDOW_MS: u64 = 60_000;

/// How much a minute allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceilings {
    pub requests: u32,
    pub tokens: u32,
}

/// Which ceiling a request ran into. Requests are looked at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Requests,
    Tokens,
}

/// Why a request was not admitted, and when it would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub limit: Limit,
    pub ceilings: Ceilings,
    pub requests_left: u32,
    pub tokens_left: u32,
    /// The least time after which this request fits if nothing else comes in between; `None` if
    /// it is larger than the ceiling and never will.
    pub wait_ms: Option<u64>,
}

/// A place in the minute, as a ledger keeps it for the day on which the minute is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// What was reserved, or used once that is known.
    pub tokens: u64,
    /// Zero is the request itself; its further steps follow.
    pub step: u32,
}

/// What a ledger knows of a place in the minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReservation {
    pub account: String,
    pub model: String,
    pub call: u64,
    pub step: u32,
    /// By the limiter's clock.
    pub at_ms: u64,
    /// How long ago that was by the ledger's clock; the limiter's may have been set since.
    pub age_ms: u64,
    pub tokens: u64,
}
