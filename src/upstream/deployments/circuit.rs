//! Whether an upstream is worth asking: it is left alone for a while after it failed too often.
//!
//! Pure: times are handed in. Closed, it is asked like any other. Open, it is passed over for as long
//! as there is someone else. When its rest is over one call is let through to try it: if that is
//! answered it is closed, else it rests again, for twice as long.

use std::time::{Duration, Instant};

/// This many failures in a row, and it rests.
const MAX_IN_A_ROW: u32 = 5;
/// Or this many of the last [`REMEMBERED`], once there are [`ENOUGH`] to judge by.
const MAX_OF_LAST: u32 = 10;
const REMEMBERED: u32 = 20;
const ENOUGH: u32 = 10;
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// An upstream may ask to be left alone for longer, up to this.
const LONGEST_ASKED_REST: Duration = Duration::from_mins(1);

#[derive(Clone, Debug, Default)]
pub struct Circuit {
    in_a_row: u32,
    /// The last outcomes, newest lowest; a set bit is a failure.
    last: u32,
    seen: u32,
    /// Set while it rests, and until a call has tried it.
    rests_until: Option<Instant>,
    /// How often it has rested since it was last answered.
    rests: u32,
    /// A call is trying it.
    on_trial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    Open,
    /// Its rest is over; the next call tries it, or is trying it.
    HalfOpen,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

impl Circuit {
    pub fn state(&self, now: Instant) -> State {
        match self.rests_until {
            None => State::Closed,
            Some(until) if now < until => State::Open,
            Some(_) => State::HalfOpen,
        }
    }

    /// Whether a call may ask it now, others being there.
    pub fn is_inviting(&self, now: Instant) -> bool {
        match self.state(now) {
            State::Closed => true,
            State::Open => false,
            State::HalfOpen => !self.on_trial,
        }
    }

    /// When it can be asked again, for choosing among those that rest.
    pub fn rests_until(&self) -> Option<Instant> {
        self.rests_until
    }

    /// Whether it has opened by itself since it last answered, and not only because it was asked to.
    pub fn has_opened(&self) -> bool {
        self.rests > 0
    }

    pub fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// A call asks it.
    pub fn asked(&mut self) {
        self.on_trial = self.rests_until.is_some();
    }

    /// The call that asked is not heard of again: that says nothing about the upstream.
    pub fn unheard(&mut self) {
        self.on_trial = false;
    }

    pub fn answered(&mut self) {
        if self.rests_until.is_some() {
            *self = Self::default();
        }
        self.in_a_row = 0;
        self.remember(false);
    }

    /// `asked_rest` is how long the upstream itself wants to be left alone.
    pub fn failed(&mut self, now: Instant, asked_rest: Option<Duration>) {
        let on_trial = std::mem::take(&mut self.on_trial);
        self.in_a_row += 1;
        self.remember(true);
        let often = self.seen >= ENOUGH && self.last.count_ones() >= MAX_OF_LAST;
        let opens = on_trial || self.in_a_row >= MAX_IN_A_ROW || often;
        let mut rest = asked_rest.map(|rest| rest.min(LONGEST_ASKED_REST));
        if opens && self.state(now) != State::Open {
            let own = FIRST_REST.saturating_mul(1 << self.rests.min(16));
            rest = rest.max(Some(own.min(LONGEST_REST)));
            self.rests += 1;
        }
        if let Some(rest) = rest {
            self.rests_until = self.rests_until.max(Some(now + rest));
        }
    }

    fn remember(&mut self, failed: bool) {
        let kept = (1 << REMEMBERED) - 1;
        self.last = (self.last << 1 | u32::from(failed)) & kept;
        self.seen = (self.seen + 1).min(REMEMBERED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(circuit: &mut Circuit, now: Instant, times: u32) {
        for _ in 0..times {
            circuit.asked();
            circuit.failed(now, None);
        }
    }

    #[test]
    fn five_failures_in_a_row_and_it_rests() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        fail(&mut circuit, now, 4);
        assert!(circuit.is_inviting(now));
        circuit.answered();
        fail(&mut circuit, now, 4);
        assert_eq!(circuit.state(now), State::Closed, "they are counted anew");
        fail(&mut circuit, now, 1);
        assert_eq!(circuit.state(now), State::Open);
        assert!(!circuit.is_inviting(now + Duration::from_millis(999)));
        assert!(circuit.is_inviting(now + FIRST_REST));
    }

    #[test]
    fn half_of_the_last_and_it_rests_though_none_followed_another() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for turn in 1..=10 {
            assert_eq!(circuit.state(now), State::Closed, "{turn}");
            circuit.answered();
            fail(&mut circuit, now, 1);
        }
        assert_eq!(circuit.state(now), State::Open);
    }

    #[test]
    fn one_call_tries_it_and_decides() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        fail(&mut circuit, now, 5);
        let later = now + FIRST_REST;
        circuit.asked();
        assert_eq!(circuit.state(later), State::HalfOpen);
        assert!(!circuit.is_inviting(later), "one at a time");
        circuit.unheard();
        assert!(circuit.is_inviting(later), "the next one tries");
        circuit.asked();
        circuit.failed(later, None);
        assert!(!circuit.is_inviting(later + FIRST_REST), "twice as long");
        assert!(circuit.is_inviting(later + 2 * FIRST_REST));
        circuit.asked();
        circuit.answered();
        assert_eq!(circuit.state(later), State::Closed);
        fail(&mut circuit, later, 4);
        assert_eq!(circuit.state(later), State::Closed, "with a clean slate");
    }

    #[test]
    fn rests_grow_to_a_bound() {
        let (mut circuit, mut now) = (Circuit::default(), Instant::now());
        for _ in 0..40 {
            fail(&mut circuit, now, 5);
            now = circuit.rests_until().unwrap();
        }
        fail(&mut circuit, now, 1);
        assert_eq!(circuit.rests_until().unwrap() - now, LONGEST_REST);
    }

    #[test]
    fn who_asks_to_be_left_alone_is() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        circuit.failed(now, Some(Duration::from_secs(20)));
        assert!(!circuit.is_inviting(now + Duration::from_secs(19)));
        assert!(circuit.is_inviting(now + Duration::from_secs(20)));
        circuit.failed(now, Some(Duration::from_hours(1)));
        assert!(
            circuit.is_inviting(now + LONGEST_ASKED_REST),
            "within reason"
        );
    }
}
