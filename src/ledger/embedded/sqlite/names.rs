//! What clients were told to quote. An ID of ours begins with the time, and the number of its call does too: so most
//! calls are found without an index. The others, above all those of clients that send IDs of their own, have one.

use std::ops::RangeInclusive;

use super::record::number;
use crate::{base::keys::time_of_rising_id, ledger::CallId};

/// What IDs of requests begin with.
pub const KIND: &str = "req_";
/// How much later its call is begun.
const SOON_MS: i64 = 2_000;
/// Numbers of later calls do not begin with their time.
const LATEST_MS: i64 = 1 << 43;

/// The numbers among which a request's call is looked for.
pub fn ids_soon_after(request_id: &str) -> Option<RangeInclusive<i64>> {
    let at = time_of_rising_id(KIND, request_id)?;
    let at = i64::try_from(at).ok().filter(|at| *at < LATEST_MS)?;
    let first = |ms| number(CallId::first_of(ms));
    Some(first(at)..=first(at + SOON_MS) - 1)
}

/// Whether a call is found by its request's ID alone.
pub fn says_when(request_id: &str, id: i64) -> bool {
    ids_soon_after(request_id).is_some_and(|ids| ids.contains(&id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::keys::rising_id;

    #[test]
    fn a_call_is_found_by_an_id_of_ours_if_it_was_begun_soon() {
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
