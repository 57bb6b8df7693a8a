//! Latencies of requests: median and 95th percentile, of all and by group.

use std::collections::HashMap;

use maud::{Markup, html};

use super::{names::Names, sums::GroupBy};
use crate::{
    ledger::{MAX_TIMINGS, Timing},
    portal::formatting,
};

/// The latencies of some requests, in milliseconds.
#[derive(Default)]
pub(crate) struct Latency {
    /// Until the first token of a stream.
    first: Vec<i64>,
    total: Vec<i64>,
}

/// The latencies of the latest answered requests of a period.
pub(crate) struct Latencies<'a> {
    pub all: Latency,
    by_group: HashMap<&'a str, Latency>,
    is_cut: bool,
}

impl<'a> Latencies<'a> {
    pub(crate) fn of(timings: &'a [Timing], by: Option<GroupBy>, names: &'a Names) -> Self {
        let (mut all, mut by_group) = (Latency::default(), HashMap::<_, Latency>::new());
        for timing in timings {
            all.add(timing);
            if let Some(by) = by {
                let of = (&*timing.model, &*timing.key_id, &*timing.project_id);
                by_group
                    .entry(names.group_id(by, of))
                    .or_default()
                    .add(timing);
            }
        }
        all.sort();
        by_group.values_mut().for_each(Latency::sort);
        Self {
            all,
            by_group,
            is_cut: timings.len() >= MAX_TIMINGS,
        }
    }

    pub(crate) fn group(&self, id: &str) -> Option<&Latency> {
        self.by_group.get(id)
    }

    /// Says of which requests they are.
    pub(crate) fn note(&self) -> Markup {
        html! {
            p.muted {
                "Latency is the median and the 95th percentile of "
                @if self.is_cut { "the latest " (formatting::count(MAX_TIMINGS as u64)) " answered requests" }
                @else { "answered requests" }
                "; time to first token, of streamed ones."
            }
        }
    }
}

impl Latency {
    fn add(&mut self, timing: &Timing) {
        self.first.extend(timing.first_ms);
        self.total.push(timing.total_ms);
    }

    fn sort(&mut self) {
        self.first.sort_unstable();
        self.total.sort_unstable();
    }

    pub(crate) fn first_token(&self) -> Option<(i64, i64)> {
        both(&self.first)
    }

    pub(crate) fn duration(&self) -> Option<(i64, i64)> {
        both(&self.total)
    }
}

/// The median and the 95th percentile; `None` without values, which must be sorted.
fn both(sorted: &[i64]) -> Option<(i64, i64)> {
    Some((percentile(sorted, 50)?, percentile(sorted, 95)?))
}

/// The least value that so many percent do not exceed.
fn percentile(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// Median and 95th percentile as a table cell.
pub(crate) fn cell(both: Option<(i64, i64)>) -> String {
    match both {
        Some((median, high)) => format!(
            "{} / {}",
            formatting::duration(median),
            formatting::duration(high)
        ),
        None => "–".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let hundred: Vec<i64> = (1..=100).collect();
        for (values, expected) in [
            (&[][..], None),
            (&[7], Some((7, 7))),
            (&[1, 2], Some((1, 2))),
            (&[1, 2, 3], Some((2, 3))),
            (hundred.as_slice(), Some((50, 95))),
        ] {
            assert_eq!(both(values), expected, "{values:?}");
        }
        assert_eq!(cell(Some((900, 1_500))), "900 ms / 1.50 s");
    }
}
