//! Finding calls by `X-Request-ID`. The gateway's own IDs begin with the time, and so do call IDs, so most calls are
//! found without an index. The others, mainly those of clients that send their own IDs, are indexed in `call_names`.

use std::ops::RangeInclusive;

use super::record::number;
use crate::{base::keys::time_of_rising_id, ledger::CallId};

/// Prefix of the gateway's request IDs.
pub(crate) const KIND: &str = "req_";
/// How much later than its request a call may start.
const SOON_MS: i64 = 2_000;
/// Beyond this time, call IDs do not begin with it.
const LATEST_MS: i64 = 1 << 43;

/// The range of call IDs in which a request's call is searched.
pub(crate) fn ids_soon_after(request_id: &str) -> Option<RangeInclusive<i64>> {
    let at = time_of_rising_id(KIND, request_id)?;
    let at = i64::try_from(at).ok().filter(|at| *at < LATEST_MS)?;
    let first = |ms| number(CallId::first_of(ms));
    Some(first(at)..=first(at + SOON_MS) - 1)
}

/// Whether a call is found by the time in its request ID.
pub(crate) fn says_when(request_id: &str, id: i64) -> bool {
    ids_soon_after(request_id).is_some_and(|ids| ids.contains(&id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::keys::rising_id;

    #[test]
    fn a_call_that_started_soon_is_found_by_a_generated_request_id() {
        let at = 1_800_000_000_000_u64;
        let request_id = rising_id(KIND, at);
        let begun = |later| number(CallId::first_of(i64::try_from(at).unwrap() + later));
        assert!(says_when(&request_id, begun(0)));
        assert!(says_when(&request_id, begun(SOON_MS) - 1));
        assert!(!says_when(&request_id, begun(SOON_MS)));
        assert!(!says_when(&request_id, begun(0) - 1), "a clock went back");
        assert!(!says_when("theirs", begun(0)));
        assert!(!says_when("req_zzzzzzzzz000000000000000", i64::MAX));
    }
}
