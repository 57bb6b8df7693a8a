//! Limits on password guessing, sign-ups, emails that visitors can request, new keys, and changes that are recorded. In
//! memory of one gateway only.
//!
//! An attempt to sign in with a password is counted three times: for the pair of person and network, for the network,
//! and for the person over all networks. The last only slows attempts, and never those of a browser with which the
//! person has signed in before: known browsers have counters of their own, which strangers cannot use. So guessing from
//! many networks is slow too, and an attacker cannot lock out the owner from browsers that they have used before. There are also limits on sign-ups
//! from one network, and on emails to one mailbox.

use std::{
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

mod counters;

use self::counters::{CounterKey, Counters, Limit, Rule};
use super::people::email_key;
use crate::base::network::Network;

/// Maximum of attempts for one person from one network, from one known browser, or in sessions of one person.
const PER_PERSON: Rule = Rule::AtMost(8);
/// Maximum of attempts from one network, for any person.
const PER_NETWORK: Rule = Rule::AtMost(60);
/// Maximum of sign-ups from one network.
const SIGN_UPS: Rule = Rule::AtMost(20);
/// Maximum of emails to one address that visitors from any network can request.
const EMAILS: Rule = Rule::AtMost(5);
/// Maximum of new addresses that a person tries where no mail server proves them.
const NEW_ADDRESSES: Rule = Rule::AtMost(5);
/// The number of wrong codes in a row after which the person is told.
const WRONG_CODES: usize = 4;
/// Maximum of emails about wrong codes to a person, in a window and in a day.
const TOLD: Rule = Rule::AtMost(1);
const TOLD_IN_A_DAY: Rule = Rule::AtMostInADay(4);
/// Maximum of keys that people create in one account. Rows of deleted keys stay in the store, so this bounds how fast
/// they grow in number.
const KEYS: Rule = Rule::AtMost(20);
/// Maximum of forms of one person, and of one account, that the portal records or that leave rows: records of operator
/// actions are kept for good, so this bounds how fast customers make them grow.
const CHANGES: Rule = Rule::AtMostInADay(300);
const CHANGES_OF_ACCOUNT: Rule = Rule::AtMostInADay(600);
/// Maximum of forms of one person that take effect only once. The number of each is stored for a month.
const ONCE: Rule = Rule::AtMostInADay(500);

#[derive(Default)]
pub struct Throttle(Mutex<Counters>);

/// The counters by which an attempt to prove an identity is counted. The first is that of the person.
pub(crate) struct Attempt(Vec<Limit>);

impl Attempt {
    /// A sign-in with a password. `device` is the ID of a browser with which this person has signed in before.
    pub(crate) fn sign_in(email: &str, peer: IpAddr, device: Option<&str>) -> Self {
        // The form in which the store compares addresses: one person must not have several counters.
        let email = email_key(email);
        if let Some(device) = device {
            return Self(vec![
                limit(&["device", device], PER_PERSON),
                // For an attacker who knew an earlier password and has collected the cookies of many sign-ins.
                limit(&["known devices", &email], Rule::Slowing),
                counted_only(of_network(peer)),
            ]);
        }
        Self(vec![
            limit(&["person", &network(peer), &email], PER_PERSON),
            of_network(peer),
            limit(&["person everywhere", &email], Rule::Slowing),
        ])
    }

    /// A signed-in person enters their password again. Attempts of strangers in the same network do not refuse it.
    pub(crate) fn confirmation(person_id: &str, peer: IpAddr) -> Self {
        Self(vec![
            limit(&["confirmation", person_id], PER_PERSON),
            counted_only(of_network(peer)),
        ])
    }

    /// A code of a person's authenticator app, by someone who knows the password. It is counted for the person alone: codes
    /// are short, and the password keeps strangers from using up the attempts.
    pub(crate) fn second_factor(person_id: &str, peer: IpAddr) -> Self {
        Self(vec![
            limit(&["second factor", person_id], PER_PERSON),
            counted_only(of_network(peer)),
        ])
    }

    /// A recovery code of a person, by someone who knows the password. It is too long to be guessed, so attempts elsewhere,
    /// and wrong codes of the app, do not refuse it: a thief of the password must not lock out its owner.
    pub(crate) fn recovery_code(person_id: &str, peer: IpAddr) -> Self {
        Self(vec![
            limit(&["recovery code", &network(peer), person_id], PER_PERSON),
            counted_only(of_network(peer)),
        ])
    }

    /// A sign-in with the operator token. It is not counted over all networks: the token has too many bits to be
    /// guessed, and strangers could slow down the operator.
    pub(crate) fn operator_token(peer: IpAddr) -> Self {
        Self(vec![
            limit(&["operator token", &network(peer)], PER_PERSON),
            of_network(peer),
        ])
    }

    /// A return from an OpenID Connect issuer with a code, in the attempt with this random state.
    pub(crate) fn oidc(state: &str, peer: IpAddr) -> Self {
        Self(vec![
            limit(&["oidc", &network(peer), state], PER_PERSON),
            of_network(peer),
        ])
    }
}

/// An attempt that was counted.
pub(crate) struct Counted {
    person: CounterKey,
    all: Vec<CounterKey>,
}

impl Throttle {
    /// Counts an attempt; the error is the number of seconds until the next one is allowed.
    ///
    /// Call it before the password is verified, so that concurrent attempts are all counted.
    pub(crate) fn attempt(&self, Attempt(limits): &Attempt) -> Result<Counted, u64> {
        let all = self.count(limits)?;
        let person = limits[0].key;
        Ok(Counted { person, all })
    }

    /// Undoes the count of an attempt with the right password, and resets the person's counter.
    pub(crate) fn succeeded(&self, counted: &Counted) {
        let mut counters = self.counters();
        for key in &counted.all {
            counters.undo(key);
        }
        counters.reset(&counted.person);
    }

    /// Counts a sign-up; the error is the number of seconds until the next one is allowed.
    pub(crate) fn sign_up(&self, peer: IpAddr) -> Result<(), u64> {
        self.count(&[sign_ups_of(peer)])?;
        Ok(())
    }

    /// Counts an email that any visitor, or an owner who invites a member, can request: as a sign-up from their network,
    /// and for the mailbox, which must not be flooded from many networks. The error is the number of seconds until the
    /// next one is allowed.
    pub(crate) fn message(&self, email: &str, peer: IpAddr) -> Result<(), u64> {
        let mailbox = limit(&["email", &email_key(email)], EMAILS);
        self.count(&[sign_ups_of(peer), mailbox])?;
        Ok(())
    }

    /// Counts an address that a signed-in person wants to have where it takes effect at once: the response tells whether it
    /// is in use. Counted as a sign-up, which tells it too. The error is the number of seconds until the next one is
    /// allowed.
    pub(crate) fn new_address(&self, person_id: &str, peer: IpAddr) -> Result<(), u64> {
        let of_person = limit(&["new address", person_id], NEW_ADDRESSES);
        self.count(&[sign_ups_of(peer), of_person])?;
        Ok(())
    }

    /// Whether the person is to be told by email of wrong codes: the last one, of this attempt, has made it several in a
    /// row. An email is counted; there are few of them, so that their password does not suffice to flood their mailbox.
    pub(crate) fn tells_of_wrong_codes(&self, person_id: &str, last: &Counted) -> bool {
        let in_a_row = self.counters().events(&last.person, Instant::now());
        let limits = [
            limit(&["wrong codes", person_id], TOLD),
            limit(&["wrong codes in a day", person_id], TOLD_IN_A_DAY),
        ];
        in_a_row >= WRONG_CODES && self.count(&limits).is_ok()
    }

    /// Counts a new key of an account; the error is the number of seconds until the next one is allowed.
    pub(crate) fn new_key(&self, account_id: &str) -> Result<(), u64> {
        self.count(&[limit(&["key", account_id], KEYS)])?;
        Ok(())
    }

    /// Counts a change by a person of an account; the error is the number of seconds until the next one is allowed.
    pub(crate) fn change(&self, person_id: &str, account_id: &str) -> Result<(), u64> {
        self.count(&[
            limit(&["change", person_id], CHANGES),
            limit(&["change in account", account_id], CHANGES_OF_ACCOUNT),
        ])?;
        Ok(())
    }

    /// Counts a form of a person that takes effect only once; the error is the number of seconds until the next one is
    /// allowed.
    pub(crate) fn once(&self, person_id: &str) -> Result<(), u64> {
        self.count(&[limit(&["once", person_id], ONCE)])?;
        Ok(())
    }

    fn count(&self, limits: &[Limit]) -> Result<Vec<CounterKey>, u64> {
        let counted = self.counters().count(limits, Instant::now());
        counted.map_err(|wait: Duration| wait.as_secs() + 1)
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn limit(parts: &[&str], rule: Rule) -> Limit {
    Limit {
        key: counter_key(parts),
        rule,
        refuses: true,
    }
}

fn of_network(peer: IpAddr) -> Limit {
    limit(&["network", &network(peer)], PER_NETWORK)
}

fn sign_ups_of(peer: IpAddr) -> Limit {
    limit(&["sign-up", &network(peer)], SIGN_UPS)
}

fn counted_only(limit: Limit) -> Limit {
    Limit {
        refuses: false,
        ..limit
    }
}

fn network(peer: IpAddr) -> String {
    Network::of(peer).to_string()
}

/// The key of a counter, from parts whose lengths are hashed too, so that different parts never give one key.
fn counter_key(parts: &[&str]) -> CounterKey {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_be_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "203.0.113.7";
    const VICTIM: &str = "victim@example.com";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn from(address: &str, email: &str) -> Attempt {
        Attempt::sign_in(email, ip(address), None)
    }

    /// An address of a network for each number.
    fn elsewhere(number: usize) -> IpAddr {
        ip(&format!("198.51.{}.{}", number / 250, number % 250))
    }

    fn most(rule: Rule) -> usize {
        match rule {
            Rule::AtMost(limit) | Rule::AtMostInADay(limit) => limit,
            Rule::Slowing => unreachable!("it has no limit"),
        }
    }

    /// Makes attempts until one is refused; returns how many were allowed, and the wait.
    fn until_refused(throttle: &Throttle, attempt: impl Fn(usize) -> Attempt) -> (usize, u64) {
        let mut tries = (0..1_000).map(|number| (number, throttle.attempt(&attempt(number))));
        let refused = tries.find_map(|(number, tried)| Some((number, tried.err()?)));
        refused.expect("an attempt is refused")
    }

    #[test]
    fn guesses_from_one_network_do_not_lock_out_other_networks() {
        let throttle = Throttle::default();
        let (allowed, wait) = until_refused(&throttle, |_| from(HERE, VICTIM));
        assert_eq!(allowed, most(PER_PERSON));
        assert!((1..=901).contains(&wait));
        assert!(throttle.attempt(&from(HERE, "Victim@example.com")).is_err());
        assert!(throttle.attempt(&from("198.51.100.1", VICTIM)).is_ok());
        assert!(throttle.attempt(&from(HERE, "other@example.com")).is_ok());
    }

    #[test]
    fn guesses_from_many_networks_are_slowed_for_unknown_browsers_only() {
        let throttle = Throttle::default();
        let guess = |number| Attempt::sign_in(VICTIM, elsewhere(number), None);
        let (allowed, wait) = until_refused(&throttle, guess);
        assert_eq!(allowed, counters::UNSLOWED);
        assert!((1..=16).contains(&wait), "{wait}");
        assert!(throttle.attempt(&from(HERE, "other@example.com")).is_ok());
        // The owner signs in with a known browser, also from a network that strangers have used up.
        until_refused(&throttle, |number| {
            Attempt::sign_in(&format!("{number}@example.com"), ip(HERE), None)
        });
        for _ in 0..100 {
            let known = Attempt::sign_in(VICTIM, ip(HERE), Some("known"));
            let counted = throttle.attempt(&known).unwrap();
            throttle.succeeded(&counted);
        }
        assert!(throttle.attempt(&from(HERE, "new@example.com")).is_err());
        // The browser has its own limit.
        let known = |_| Attempt::sign_in(VICTIM, ip(HERE), Some("known"));
        assert_eq!(until_refused(&throttle, known).0, most(PER_PERSON));
    }

    #[test]
    fn many_known_browsers_of_a_person_are_slowed_together() {
        let throttle = Throttle::default();
        let known = |number: usize| {
            let device = format!("device {number}");
            Attempt::sign_in(VICTIM, elsewhere(number), Some(&device))
        };
        assert_eq!(until_refused(&throttle, known).0, counters::UNSLOWED);
        assert!(throttle.attempt(&from(HERE, VICTIM)).is_ok());
    }

    /// The store ignores case and surrounding space, so these are one person.
    #[test]
    fn other_spellings_of_an_address_are_counted_together() {
        let throttle = Throttle::default();
        let spelt = |number: usize| {
            let space = ["\u{2003}", " ", "\t"][number % 3].repeat(number);
            let email = if number.is_multiple_of(2) {
                VICTIM
            } else {
                "VICTIM@Example.com"
            };
            from(HERE, &format!("{email}{space}"))
        };
        assert_eq!(until_refused(&throttle, spelt).0, most(PER_PERSON));
    }

    #[test]
    fn confirmations_of_others_do_not_refuse_ones_own() {
        let throttle = Throttle::default();
        for number in 0..20 {
            let person = format!("person_{number}");
            let guess = |_| Attempt::confirmation(&person, ip(HERE));
            assert_eq!(until_refused(&throttle, guess).0, most(PER_PERSON));
        }
        let own = Attempt::confirmation("person_me", ip(HERE));
        assert!(throttle.attempt(&own).is_ok());
        // They count for their network, in which strangers cannot go on.
        assert!(throttle.attempt(&from(HERE, VICTIM)).is_err());
        assert!(throttle.attempt(&from("198.51.100.1", VICTIM)).is_ok());
    }

    #[test]
    fn codes_of_a_person_are_limited_over_all_networks() {
        let throttle = Throttle::default();
        let guess = |number| Attempt::second_factor("person_1", elsewhere(number));
        let (allowed, wait) = until_refused(&throttle, guess);
        assert_eq!(allowed, most(PER_PERSON));
        assert!((1..=901).contains(&wait), "{wait}");
        let other = Attempt::second_factor("person_2", ip(HERE));
        assert!(throttle.attempt(&other).is_ok());
    }

    #[test]
    fn recovery_codes_are_limited_by_network_and_apart_from_the_app() {
        let throttle = Throttle::default();
        until_refused(&throttle, |_| Attempt::second_factor("person_1", ip(HERE)));
        let here = |_| Attempt::recovery_code("person_1", ip(HERE));
        assert_eq!(until_refused(&throttle, here).0, most(PER_PERSON));
        for (person, peer) in [("person_1", elsewhere(1)), ("person_2", ip(HERE))] {
            let own = Attempt::recovery_code(person, peer);
            assert!(throttle.attempt(&own).is_ok(), "{person} {peer}");
        }
    }

    #[test]
    fn a_person_is_told_of_wrong_codes_once_in_a_window() {
        let throttle = Throttle::default();
        let attempt = |person: &str, number| {
            let counted = throttle.attempt(&Attempt::second_factor(person, elsewhere(number)));
            counted.unwrap()
        };
        let wrong =
            |person: &str, number| throttle.tells_of_wrong_codes(person, &attempt(person, number));
        let told: Vec<_> = (0..8).map(|number| wrong("person_1", number)).collect();
        let expected = [false, false, false, true, false, false, false, false];
        assert_eq!(told, expected);
        // The right code in between begins anew.
        for number in 0..3 {
            assert!(!wrong("person_2", number));
        }
        throttle.succeeded(&attempt("person_2", 3));
        let told: Vec<_> = (0..4).map(|number| wrong("person_2", number)).collect();
        assert_eq!(told, [false, false, false, true]);
    }

    #[test]
    fn new_addresses_of_a_person_are_limited() {
        let throttle = Throttle::default();
        for number in 0..most(NEW_ADDRESSES) {
            let tried = throttle.new_address("person_1", elsewhere(number));
            tried.unwrap();
        }
        assert!(throttle.new_address("person_1", ip(HERE)).is_err());
        throttle.new_address("person_2", ip(HERE)).unwrap();
    }

    #[test]
    fn a_network_as_a_whole_has_a_limit() {
        let throttle = Throttle::default();
        let guess = |number| from(HERE, &format!("{number}@example.com"));
        assert_eq!(until_refused(&throttle, guess).0, most(PER_NETWORK));
    }

    #[test]
    fn the_operator_token_is_limited_by_network_alone() {
        let throttle = Throttle::default();
        let here = |_| Attempt::operator_token(ip(HERE));
        assert_eq!(until_refused(&throttle, here).0, most(PER_PERSON));
        for number in 0..500 {
            let tried = throttle.attempt(&Attempt::operator_token(elsewhere(number)));
            assert!(tried.is_ok());
        }
    }

    #[test]
    fn a_successful_sign_in_resets_the_counters() {
        let throttle = Throttle::default();
        for _ in 0..2 * most(PER_NETWORK) {
            let counted = throttle.attempt(&from(HERE, "me@example.com")).unwrap();
            throttle.succeeded(&counted);
        }
    }

    #[test]
    fn a_mailbox_is_not_flooded_from_many_networks() {
        let throttle = Throttle::default();
        for number in 0..most(EMAILS) {
            throttle.message(VICTIM, elsewhere(number)).unwrap();
        }
        assert!(throttle.message("Victim@example.com ", ip(HERE)).is_err());
        for other in 0..most(SIGN_UPS) {
            let email = format!("{other}@example.com");
            throttle.message(&email, ip(HERE)).unwrap();
        }
        let one_more = throttle.message("one-more@example.com", ip(HERE));
        assert!(one_more.is_err());
    }

    #[test]
    fn mapped_ipv4_addresses_and_ipv6_networks_are_normalised() {
        let of = |text: &str| network(ip(text));
        assert_eq!(of("::ffff:203.0.113.7"), of(HERE));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    }

    #[test]
    fn changes_of_a_person_and_of_an_account_are_limited() {
        let throttle = Throttle::default();
        let people = most(CHANGES_OF_ACCOUNT) / most(CHANGES);
        for person in 0..people {
            let person = format!("person_{person}");
            for _ in 0..most(CHANGES) {
                throttle.change(&person, "acct_1").unwrap();
            }
            let wait = throttle.change(&person, "acct_2").unwrap_err();
            assert!((1..=86_401).contains(&wait), "{wait}");
        }
        assert!(throttle.change("person_new", "acct_1").is_err());
        throttle.change("person_new", "acct_2").unwrap();
        for _ in 0..most(ONCE) {
            throttle.once("person_1").unwrap();
        }
        assert!(throttle.once("person_1").is_err());
        throttle.once("person_2").unwrap();
    }

    #[test]
    fn new_keys_of_an_account_are_limited() {
        let throttle = Throttle::default();
        for _ in 0..most(KEYS) {
            throttle.new_key("acct_1").unwrap();
        }
        assert!((1..=901).contains(&throttle.new_key("acct_1").unwrap_err()));
        throttle.new_key("acct_2").unwrap();
    }
}
