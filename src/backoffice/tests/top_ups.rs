//! Contract of automatic top-ups: whatever is tried at once, a month's maximum holds.

use super::*;
use crate::{
    backoffice::{Bought, Checkout, NewTopUp, Payment, TopUp, TopUpState},
    base::money::NanoUsd,
};

contract!(
    settings_wait_for_a_card_and_forget_it_when_a_payment_fails,
    concurrent_attempts_stay_within_the_month,
    an_attempt_counts_in_the_month_in_which_it_is_paid,
    a_claim_keeps_others_away_until_its_end,
    a_claim_that_ran_out_begins_nothing,
    settings_that_were_changed_neither_begin_nor_are_paused,
    settings_of_another_person_forget_the_card,
    settings_end_with_the_person_who_agreed_to_them,
    people_are_told_of_a_maximum_once_a_month,
);

fn dollars(dollars: i64) -> NanoUsd {
    NanoUsd::new(dollars * 1_000_000_000)
}

fn settings(account_id: &str) -> NewTopUp {
    NewTopUp {
        account_id: account_id.into(),
        threshold: dollars(5),
        amount: dollars(20),
        monthly_max: dollars(50),
        consent: "I agree.".into(),
        consent_by: "ada@example.com".into(),
        provider: "stripe",
        now: NOW,
    }
}

async fn turned_on(given: &Given, account_id: &str) -> TopUp {
    let backoffice = &given.backoffice;
    let set = backoffice.set_top_up(&settings(account_id)).await.unwrap();
    let agreed = ("stripe", set.consent_id.as_str());
    let card = ("cus_1", "pi_1");
    let saved = backoffice.save_card(account_id, agreed, card);
    assert!(saved.await.unwrap());
    backoffice.top_up(account_id).await.unwrap().unwrap()
}

async fn settings_wait_for_a_card_and_forget_it_when_a_payment_fails(given: Given) {
    let backoffice = &given.backoffice;
    assert_eq!(backoffice.top_up("acct_1").await.unwrap(), None);
    let set = backoffice.set_top_up(&settings("acct_1")).await.unwrap();
    assert_eq!((set.state, &set.card), (TopUpState::Waiting, &None));
    assert_eq!(
        backoffice.begin_attempt(&set, NOW, NOW).await.unwrap(),
        None
    );
    let card = ("cus_1", "pi_1");
    // Neither of another provider or account, nor for what was agreed to before.
    let earlier = set.consent_id;
    let set = backoffice.set_top_up(&settings("acct_1")).await.unwrap();
    let present = set.consent_id.as_str();
    for (account_id, agreed) in [
        ("acct_1", ("other", present)),
        ("acct_2", ("stripe", present)),
        ("acct_1", ("stripe", earlier.as_str())),
    ] {
        let saved = backoffice.save_card(account_id, agreed, card);
        assert!(!saved.await.unwrap(), "{account_id} {agreed:?}");
    }
    let on = turned_on(&given, "acct_1").await;
    assert_eq!(
        (on.state, on.consent.as_str()),
        (TopUpState::On, "I agree.")
    );
    assert_eq!(on.saved_card(), Some(("cus_1", "pi_1")));
    // A saved card stays while settings change, and is not replaced.
    let set = backoffice.set_top_up(&settings("acct_1")).await.unwrap();
    assert_eq!((set.state, &set.card), (TopUpState::On, &on.card));
    let agreed = ("stripe", set.consent_id.as_str());
    let replaced = backoffice.save_card("acct_1", agreed, ("cus_2", "pi_2"));
    replaced.await.unwrap();
    backoffice.turn_off_top_up("acct_1").await.unwrap();
    let off = backoffice.top_up("acct_1").await.unwrap().unwrap();
    assert_eq!((off.state, &off.card), (TopUpState::Off, &on.card));
    backoffice.set_top_up(&settings("acct_1")).await.unwrap();
    let on = backoffice.top_up("acct_1").await.unwrap().unwrap();
    let attempt = backoffice.begin_attempt(&on, NOW, NOW).await;
    let attempt = attempt.unwrap().unwrap().id;
    for problem in ["declined", "again"] {
        let failed = (attempt.as_str(), problem);
        let paused = backoffice.pause_top_up("acct_1", problem, failed, NOW);
        assert!(paused.await.unwrap());
    }
    let failed = backoffice.checkout(&attempt).await.unwrap().unwrap();
    assert_eq!(failed.failed, Some((NOW, "declined".to_owned())));
    let paused = backoffice.top_up("acct_1").await.unwrap().unwrap();
    assert_eq!((paused.state, paused.card), (TopUpState::Paused, None));
    assert_eq!(paused.problem.as_deref(), Some("declined"));
    // Another provider has no card of theirs.
    turned_on(&given, "acct_3").await;
    let moved = NewTopUp {
        provider: "test",
        ..settings("acct_3")
    };
    let moved = backoffice.set_top_up(&moved).await.unwrap();
    assert_eq!((moved.state, moved.card), (TopUpState::Waiting, None));
}

async fn concurrent_attempts_stay_within_the_month(given: Given) {
    let on = turned_on(&given, "acct_1").await;
    let backoffice = given.backoffice.clone();
    let mut paid = 0;
    for round in 0..4 {
        let tasks = (0..8).map(|_| {
            let (backoffice, on) = (backoffice.clone(), on.clone());
            tokio::spawn(async move {
                let begun = backoffice.begin_attempt(&on, NOW, NOW + round).await;
                begun.unwrap()
            })
        });
        let mut begun = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            begun.extend(task.await.unwrap());
        }
        let Some(attempt) = begun.pop() else { break };
        assert_eq!(begun, [], "one attempt is open at a time");
        assert!(attempt.automatic && attempt.amount == dollars(20));
        let open = backoffice.open_attempt("acct_1").await.unwrap();
        assert_eq!(open.as_ref(), Some(&attempt));
        pay(&given, &attempt, NOW + round).await;
        // Paid and not credited, it is still open.
        let more = backoffice.begin_attempt(&on, NOW, NOW + round).await;
        assert_eq!(more.unwrap(), None);
        credit(&given, &attempt).await;
        paid += 1;
    }
    assert_eq!(paid, 2, "a third would be 60 of 50 dollars");
    let bought = async |since| backoffice.topped_up_since("acct_1", since).await.unwrap();
    let paid = Bought {
        paid: dollars(40),
        ..Bought::default()
    };
    assert_eq!(bought(NOW).await, paid);
    assert!(on.is_at_maximum(paid));
    // The next month begins with nothing. A failed attempt counts as nothing, one of unknown outcome as paid.
    let next = NOW + 40 * 86_400;
    for (why, counted) in [("declined", 0), ("unknown", 20)] {
        let attempt = backoffice.begin_attempt(&on, next, next).await;
        let attempt = attempt.unwrap().unwrap();
        let open = bought(next).await;
        assert_eq!((open.pending, open.sum()), (dollars(20), dollars(20)));
        backoffice
            .fail_attempt(&attempt.id, why, next)
            .await
            .unwrap();
        let given_up = Bought {
            unknown: dollars(counted),
            ..Bought::default()
        };
        assert_eq!(bought(next).await, given_up, "{why}");
        assert!(!on.is_at_maximum(given_up), "40 of 50 dollars are allowed");
        assert_eq!(backoffice.open_attempt("acct_1").await.unwrap(), None);
        let failed = backoffice.checkout(&attempt.id).await.unwrap().unwrap();
        assert_eq!(failed.failed, Some((next, why.to_owned())));
    }
}

async fn an_attempt_counts_in_the_month_in_which_it_is_paid(given: Given) {
    let on = turned_on(&given, "acct_1").await;
    let backoffice = &given.backoffice;
    let (november, before) = (NOW, NOW - 60);
    let begin = async |now| {
        let begun = backoffice.begin_attempt(&on, november, now).await;
        begun.unwrap()
    };
    let bought = async || {
        let bought = backoffice.topped_up_since("acct_1", november).await;
        bought.unwrap().sum()
    };
    // Begun in October, one is paid in November, and the outcome of one is not known.
    let october = NOW - 30 * 86_400;
    let first = backoffice.begin_attempt(&on, october, before).await;
    let first = first.unwrap().unwrap();
    assert_eq!(bought().await, dollars(20), "while it is open");
    pay(&given, &first, november + 1).await;
    assert_eq!(bought().await, dollars(20));
    credit(&given, &first).await;
    let second = begin(before).await.unwrap();
    let failed = backoffice.fail_attempt(&second.id, "unknown", november + 2);
    failed.await.unwrap();
    assert_eq!(bought().await, dollars(40));
    assert_eq!(
        begin(november + 3).await,
        None,
        "it would be 60 of 50 dollars"
    );
    // An event tells that it was paid, which counts once.
    pay(&given, &second, november + 4).await;
    assert_eq!(bought().await, dollars(40));
    let december = backoffice.topped_up_since("acct_1", november + 5).await;
    assert_eq!(december.unwrap(), Bought::default());
}

async fn pay(given: &Given, attempt: &Checkout, now: i64) {
    let payment = Payment {
        provider: "stripe",
        session: &format!("pi_{}", attempt.id),
        amount: attempt.amount,
        now,
        expires_at: None,
    };
    let paid = given.backoffice.checkout_paid(&attempt.id, &payment).await;
    assert!(paid.unwrap().unwrap().receipt.is_some());
}

async fn credit(given: &Given, attempt: &Checkout) {
    let credited = given.backoffice.checkout_credited(&attempt.id, "grant");
    credited.await.unwrap();
}

async fn a_claim_keeps_others_away_until_its_end(given: Given) {
    let backoffice = &given.backoffice;
    turned_on(&given, "acct_1").await;
    turned_on(&given, "acct_2").await;
    backoffice.set_top_up(&settings("acct_3")).await.unwrap();
    let claim = async |now| {
        let claimed = backoffice.claim_top_ups(now, now + 100, 10).await.unwrap();
        let mut ids: Vec<_> = claimed.iter().map(|one| one.account_id.clone()).collect();
        ids.sort_unstable();
        (ids, claimed)
    };
    let (ids, claimed) = claim(NOW).await;
    assert_eq!(ids, ["acct_1", "acct_2"]);
    assert_eq!(claim(NOW + 99).await.0, [""; 0]);
    backoffice
        .release_top_up(&claimed[0], NOW + 10)
        .await
        .unwrap();
    assert_eq!(claim(NOW + 10).await.0, [claimed[0].account_id.clone()]);
    // The first claim is over, so its end changes nothing.
    backoffice.release_top_up(&claimed[0], NOW).await.unwrap();
    assert_eq!(claim(NOW + 11).await.0, [""; 0]);
    // Settings that are off are looked at while an attempt is open.
    let first = backoffice.top_up("acct_1").await.unwrap().unwrap();
    backoffice
        .begin_attempt(&first, NOW, NOW)
        .await
        .unwrap()
        .unwrap();
    backoffice.turn_off_top_up("acct_1").await.unwrap();
    backoffice.turn_off_top_up("acct_2").await.unwrap();
    assert_eq!(claim(NOW + 1_000).await.0, ["acct_1"]);
}

async fn a_claim_that_ran_out_begins_nothing(given: Given) {
    let backoffice = &given.backoffice;
    turned_on(&given, "acct_1").await;
    let claim = async |now| {
        let claimed = backoffice.claim_top_ups(now, now + 100, 10).await;
        claimed.unwrap().remove(0)
    };
    let (late, next) = (claim(NOW).await, claim(NOW + 100).await);
    let begun = backoffice.begin_attempt(&late, NOW, NOW + 101).await;
    assert_eq!(begun.unwrap(), None);
    let begun = backoffice.begin_attempt(&next, NOW, NOW + 101).await;
    assert!(begun.unwrap().is_some());
}

async fn settings_that_were_changed_neither_begin_nor_are_paused(given: Given) {
    let backoffice = &given.backoffice;
    let before = turned_on(&given, "acct_1").await;
    let attempt = backoffice.begin_attempt(&before, NOW, NOW).await;
    let attempt = attempt.unwrap().unwrap();
    assert!(before.allows(&attempt));
    // Agreed to again in the same second, in the same words.
    let set = backoffice.set_top_up(&settings("acct_1")).await.unwrap();
    assert_eq!(set.consent_at, before.consent_at);
    assert!(set.state == TopUpState::On && !set.allows(&attempt));
    let failed = (attempt.id.as_str(), "unknown");
    let paused = backoffice.pause_top_up("acct_1", "lost", failed, NOW);
    assert!(!paused.await.unwrap());
    let kept = backoffice.top_up("acct_1").await.unwrap().unwrap();
    assert_eq!(kept, set);
    let failed = backoffice.checkout(&attempt.id).await.unwrap().unwrap();
    assert_eq!(failed.failed, Some((NOW, "unknown".to_owned())));
    // Whether credit is needed was decided by settings that are not there any more.
    let begun = backoffice.begin_attempt(&before, NOW, NOW).await;
    assert_eq!(begun.unwrap(), None);
    let begun = backoffice.begin_attempt(&set, NOW, NOW).await.unwrap();
    assert!(set.allows(&begun.unwrap()));
}

async fn settings_of_another_person_forget_the_card(given: Given) {
    let backoffice = &given.backoffice;
    let ada = turned_on(&given, "acct_1").await;
    let attempt = backoffice.begin_attempt(&ada, NOW, NOW).await;
    let attempt = attempt.unwrap().unwrap();
    for is_off in [false, true] {
        turned_on(&given, "acct_2").await;
        if is_off {
            backoffice.turn_off_top_up("acct_2").await.unwrap();
        }
        let of_grace = NewTopUp {
            consent_by: "grace@example.com".into(),
            ..settings("acct_2")
        };
        let set = backoffice.set_top_up(&of_grace).await.unwrap();
        assert_eq!((set.state, set.saved_card()), (TopUpState::Waiting, None));
        let begun = backoffice.begin_attempt(&set, NOW, NOW).await;
        assert_eq!(begun.unwrap(), None, "no card can be charged");
        // It does not come back with the person either.
        let again = backoffice.set_top_up(&settings("acct_2")).await.unwrap();
        assert_eq!((again.state, again.card), (TopUpState::Waiting, None));
    }
    // An open attempt is not charged, and can be looked up.
    let of_grace = NewTopUp {
        consent_by: "grace@example.com".into(),
        ..settings("acct_1")
    };
    let set = backoffice.set_top_up(&of_grace).await.unwrap();
    assert!(!set.allows(&attempt));
    assert_eq!(set.customer.as_deref(), Some("cus_1"));
    let agreed = ("stripe", set.consent_id.as_str());
    let saved = backoffice.save_card("acct_1", agreed, ("cus_2", "pi_2"));
    assert!(saved.await.unwrap());
    let on = backoffice.top_up("acct_1").await.unwrap().unwrap();
    assert_eq!(on.saved_card(), Some(("cus_2", "pi_2")));
}

async fn settings_end_with_the_person_who_agreed_to_them(given: Given) {
    let backoffice = &given.backoffice;
    turned_on(&given, "acct_2").await;
    for (number, by_operator) in [(1, false), (2, true)] {
        let ada = given.person("ada@example.com").await;
        let grace = given.person("grace@example.com").await;
        let on = turned_on(&given, "acct_1").await;
        // They are of the person, whatever their address is.
        let session = given.session(number, &ada, NOW).await;
        let renamed = backoffice.change_email(&ada.id, "lovelace@example.com", &session);
        let renamed = renamed.await.unwrap().unwrap();
        let same = backoffice.top_up("acct_1").await.unwrap().unwrap();
        assert_eq!(same.consent_by, "lovelace@example.com");
        assert_eq!(
            (same.state, same.consent_id),
            (TopUpState::On, on.consent_id.clone())
        );
        backoffice.remove_person(&grace.id).await.unwrap();
        assert!(
            backoffice
                .top_up("acct_1")
                .await
                .unwrap()
                .unwrap()
                .saved_card()
                .is_some()
        );
        if by_operator {
            backoffice.remove_person(&renamed.id).await.unwrap();
        } else {
            assert!(
                backoffice.remove_member(&renamed).await.is_err(),
                "the last owner"
            );
            let kept = backoffice.top_up("acct_1").await.unwrap().unwrap();
            assert_eq!(kept.state, TopUpState::On);
            let eve = given.person("eve@example.com").await;
            backoffice.remove_member(&renamed).await.unwrap();
            backoffice.remove_person(&eve.id).await.unwrap();
        }
        let left = backoffice.top_up("acct_1").await.unwrap().unwrap();
        assert_eq!((left.state, left.saved_card()), (TopUpState::Paused, None));
        assert_eq!(
            left.problem.as_deref(),
            Some("the member who turned it on has left")
        );
        assert_eq!(backoffice.begin_attempt(&on, NOW, NOW).await.unwrap(), None);
        let other = backoffice.top_up("acct_2").await.unwrap().unwrap();
        assert_eq!(
            (other.state, other.consent_by.as_str()),
            (TopUpState::On, "ada@example.com")
        );
    }
}

async fn people_are_told_of_a_maximum_once_a_month(given: Given) {
    turned_on(&given, "acct_1").await;
    let claim = async |now| {
        let claimed = given.backoffice.claim_top_ups(now, now + 100, 10).await;
        claimed.unwrap().remove(0)
    };
    let on = claim(NOW).await;
    let told = async |top_up: &TopUp, month| {
        let told = given.backoffice.tell_of_maximum(top_up, month).await;
        told.unwrap()
    };
    assert!(told(&on, 1_000).await);
    assert!(told(&on, 1_000).await, "a transaction that is repeated");
    let (stale, on) = (on, claim(NOW + 100).await);
    assert!(!told(&on, 1_000).await, "the next look");
    assert!(!told(&stale, 1_500).await, "claimed since");
    let set = given.backoffice.set_top_up(&settings("acct_1")).await;
    let set = set.unwrap();
    assert_eq!(set.told_month, 1_000);
    assert!(!told(&set, 1_000).await, "changed within the month");
    assert!(
        !told(&on, 2_000).await,
        "these settings are not there any more"
    );
    assert!(told(&set, 2_000).await);
    let on = claim(NOW + 200).await;
    assert_eq!((on.told_month, told(&on, 2_000).await), (2_000, false));
}
