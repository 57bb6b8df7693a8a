//! Second factors: setting up, codes that work once, recovery codes, and what ends them.

use futures_util::future::join_all;

use super::*;
use crate::{
    backoffice::{CodeCheck, UsedCode},
    base::totp::{STEP_SECONDS, TotpSecret},
};

contract!(
    a_second_factor_counts_once_a_code_has_confirmed_it,
    a_set_up_is_of_one_session_and_for_a_while,
    a_code_is_accepted_once,
    of_uses_of_one_code_at_the_same_time_one_is_accepted,
    recovery_codes_work_once_and_can_be_renewed,
    a_second_factor_ends_with_its_person_and_by_removal,
    wrong_codes_of_a_day_are_counted_in_the_store,
);

const STEP: i64 = NOW / STEP_SECONDS;

impl Given {
    async fn begun(&self, person: &Person, session: &Digest) -> TotpSecret {
        let secret = TotpSecret::generate().unwrap();
        let begun = self
            .backoffice
            .begin_second_factor(&person.id, session, &secret, NOW);
        begun.await.unwrap();
        secret
    }

    /// A person with a second factor that was confirmed with the code of the previous step, and their recovery codes.
    async fn protected(&self, email: &str) -> (Person, TotpSecret, Vec<String>) {
        let person = self.person(email).await;
        let session = self.session(1, &person, NOW).await;
        let secret = self.begun(&person, &session).await;
        let code = secret.code(STEP - 1);
        let codes = self.confirm(&person, &session, &code).await;
        (person, secret, codes.unwrap())
    }

    async fn confirm(&self, person: &Person, session: &Digest, code: &str) -> Option<Vec<String>> {
        let confirmed = self
            .backoffice
            .confirm_second_factor(&person.id, session, code, NOW);
        let codes = confirmed.await.unwrap()?;
        Some(codes.iter().map(|code| code.reveal().to_owned()).collect())
    }

    async fn use_code(&self, person: &Person, code: &str) -> Option<UsedCode> {
        match self.check_code(person, code, NOW).await {
            CodeCheck::Right(used) => Some(used),
            CodeCheck::Wrong => None,
            CodeCheck::TooMany { .. } => panic!("too many codes"),
        }
    }

    async fn check_code(&self, person: &Person, code: &str, now: i64) -> CodeCheck {
        let check = self.backoffice.use_second_factor(&person.id, code, now);
        check.await.unwrap()
    }

    async fn is_on(&self, person: &Person) -> bool {
        let person = self.backoffice.person(&person.id).await.unwrap();
        person.unwrap().second_factor_at.is_some()
    }

    async fn codes_left(&self, person: &Person) -> i64 {
        let left = self.backoffice.recovery_codes_left(&person.id).await;
        left.unwrap()
    }
}

async fn a_second_factor_counts_once_a_code_has_confirmed_it(given: Given) {
    let person = given.person("ada@example.com").await;
    let (here, there) = (
        given.session(1, &person, NOW).await,
        given.session(2, &person, NOW).await,
    );
    let secret = given.begun(&person, &here).await;
    assert!(!given.is_on(&person).await);
    assert_eq!(given.use_code(&person, &secret.code(STEP)).await, None);
    for wrong in ["", "000000", &secret.code(STEP - 2)] {
        assert_eq!(given.confirm(&person, &here, wrong).await, None);
    }
    assert!(given.is_in(&there).await && !given.is_on(&person).await);
    let codes = given.confirm(&person, &here, &secret.code(STEP)).await;
    assert_eq!(codes.unwrap().len(), 10);
    assert!(given.is_on(&person).await && given.is_in(&here).await);
    assert!(!given.is_in(&there).await, "it began without the factor");
    let session = given.backoffice.session(&here, NOW).await.unwrap().unwrap();
    assert_eq!(session.person.unwrap().second_factor_at, Some(NOW));
    // The code that has confirmed it is used. A confirmed one is not replaced.
    assert_eq!(given.use_code(&person, &secret.code(STEP)).await, None);
    let other = given.begun(&person, &here).await;
    assert_eq!(given.confirm(&person, &here, &other.code(STEP)).await, None);
    assert_eq!(given.codes_left(&person).await, 10);
    let used = given.use_code(&person, &secret.code(STEP + 1)).await;
    assert_eq!(used, Some(UsedCode::App));
}

async fn a_set_up_is_of_one_session_and_for_a_while(given: Given) {
    let person = given.person("ada@example.com").await;
    let (here, there) = (
        given.session(1, &person, NOW).await,
        given.session(2, &person, NOW).await,
    );
    let secret = given.begun(&person, &here).await;
    let begun = async |session: &Digest, now| {
        let begun = given
            .backoffice
            .second_factor_begun(&person.id, session, now);
        begun.await.unwrap()
    };
    assert_eq!(begun(&here, NOW + 899).await, Some(secret.clone()));
    assert_eq!(begun(&here, NOW + 900).await, None);
    assert_eq!(begun(&there, NOW).await, None);
    assert_eq!(
        given.confirm(&person, &there, &secret.code(STEP)).await,
        None
    );
    // The latest one counts.
    let next = given.begun(&person, &there).await;
    assert_eq!(
        given.confirm(&person, &here, &secret.code(STEP)).await,
        None
    );
    let codes = given.confirm(&person, &there, &next.code(STEP)).await;
    assert!(codes.is_some());
    let nobody = given
        .backoffice
        .begin_second_factor("person_1", &here, &next, NOW);
    nobody.await.unwrap();
    assert_eq!(
        given.count("SELECT count(*) FROM backoffice_factors").await,
        1
    );
}

async fn a_code_is_accepted_once(given: Given) {
    let (person, secret, _) = given.protected("ada@example.com").await;
    let (other, ..) = given.protected("grace@example.com").await;
    let code = secret.code(STEP);
    assert_eq!(given.use_code(&other, &code).await, None);
    assert_eq!(given.use_code(&person, &code).await, Some(UsedCode::App));
    assert_eq!(given.use_code(&person, &code).await, None);
    assert_eq!(given.use_code(&person, &secret.code(STEP - 1)).await, None);
    assert_eq!(given.use_code(&person, &secret.code(STEP + 2)).await, None);
    let next = given.use_code(&person, &secret.code(STEP + 1)).await;
    assert_eq!(next, Some(UsedCode::App));
    let given = given.restart();
    assert_eq!(given.use_code(&person, &secret.code(STEP + 1)).await, None);
}

async fn of_uses_of_one_code_at_the_same_time_one_is_accepted(given: Given) {
    let (person, secret, codes) = given.protected("ada@example.com").await;
    for code in [secret.code(STEP), codes[0].clone()] {
        let uses = (0..8).map(|_| given.use_code(&person, &code));
        let accepted = join_all(uses).await.into_iter().flatten().count();
        assert_eq!(accepted, 1);
    }
    // Confirming twice gives one set of codes, and those are the ones that work.
    let person = given.person("grace@example.com").await;
    let session = given.session(2, &person, NOW).await;
    let secret = given.begun(&person, &session).await;
    let code = secret.code(STEP);
    let confirming = (0..4).map(|_| given.confirm(&person, &session, &code));
    let mut confirmed: Vec<_> = join_all(confirming).await.into_iter().flatten().collect();
    assert_eq!(confirmed.len(), 1);
    assert_eq!(given.codes_left(&person).await, 10);
    let used = given.use_code(&person, &confirmed.remove(0)[3]).await;
    assert_eq!(used, Some(UsedCode::Recovery));
}

async fn recovery_codes_work_once_and_can_be_renewed(given: Given) {
    let (person, secret, codes) = given.protected("ada@example.com").await;
    let (other, ..) = given.protected("grace@example.com").await;
    assert_eq!(given.use_code(&other, &codes[0]).await, None);
    for code in &codes[..2] {
        let used = given.use_code(&person, code).await;
        assert_eq!(used, Some(UsedCode::Recovery));
        assert_eq!(given.use_code(&person, code).await, None);
    }
    assert_eq!(given.codes_left(&person).await, 8);
    let renewed = given.backoffice.renew_recovery_codes(&person.id).await;
    let renewed = renewed.unwrap().unwrap();
    assert_eq!(given.codes_left(&person).await, 10);
    assert_eq!(given.use_code(&person, &codes[5]).await, None);
    let used = given.use_code(&person, renewed[0].reveal()).await;
    assert_eq!(used, Some(UsedCode::Recovery));
    // The app goes on.
    let used = given.use_code(&person, &secret.code(STEP)).await;
    assert_eq!(used, Some(UsedCode::App));
    let without = given.person("eve@example.com").await;
    let renewed = given.backoffice.renew_recovery_codes(&without.id).await;
    assert!(renewed.unwrap().is_none());
    assert_eq!(given.codes_left(&without).await, 0);
}

async fn a_second_factor_ends_with_its_person_and_by_removal(given: Given) {
    let (ada, secret, codes) = given.protected("ada@example.com").await;
    let (grace, ..) = given.protected("grace@example.com").await;
    let (eve, ..) = given.protected("eve@example.com").await;
    let left = "SELECT count(*) FROM backoffice_factors";
    let codes_left = "SELECT count(*) FROM backoffice_recovery_codes";
    given
        .backoffice
        .remove_second_factor(&ada.id)
        .await
        .unwrap();
    assert!(!given.is_on(&ada).await);
    assert_eq!(given.use_code(&ada, &secret.code(STEP)).await, None);
    assert_eq!(given.use_code(&ada, &codes[0]).await, None);
    assert_eq!(
        (given.count(left).await, given.count(codes_left).await),
        (2, 20)
    );
    given.backoffice.remove_person(&grace.id).await.unwrap();
    assert_eq!(
        (given.count(left).await, given.count(codes_left).await),
        (1, 10)
    );
    given.backoffice.remove_member(&eve).await.unwrap();
    assert_eq!(
        (given.count(left).await, given.count(codes_left).await),
        (0, 0)
    );
    // The last owner stays, with the second factor.
    let (last, ..) = {
        let session = given.session(9, &ada, NOW).await;
        let secret = given.begun(&ada, &session).await;
        let codes = given.confirm(&ada, &session, &secret.code(STEP)).await;
        (codes.unwrap(), secret)
    };
    assert!(given.backoffice.remove_member(&ada).await.is_err());
    assert!(given.is_on(&ada).await);
    assert_eq!(
        given.use_code(&ada, &last[0]).await,
        Some(UsedCode::Recovery)
    );
}

async fn wrong_codes_of_a_day_are_counted_in_the_store(given: Given) {
    const DAY: i64 = 24 * 3_600;
    let (ada, secret, codes) = given.protected("ada@example.com").await;
    let (grace, other, _) = given.protected("grace@example.com").await;
    let wrong = async |given: &Given, count: usize, now: i64| {
        for _ in 0..count {
            let check = given.check_code(&ada, "no code", now).await;
            assert_eq!(check, CodeCheck::Wrong);
        }
    };
    // A right code in between begins anew, of the app or for recovery.
    wrong(&given, 19, NOW).await;
    let used = given.use_code(&ada, &secret.code(STEP)).await;
    assert_eq!(used, Some(UsedCode::App));
    wrong(&given, 20, NOW).await;
    let used = given.use_code(&ada, &codes[0]).await;
    assert_eq!(used, Some(UsedCode::Recovery));
    wrong(&given, 20, NOW).await;
    // A restart does not help who guesses.
    let given = given.restart();
    let right = secret.code(STEP + 1);
    for _ in 0..3 {
        let check = given.check_code(&ada, &right, NOW).await;
        assert_eq!(check, CodeCheck::TooMany { seconds: 86_400 });
    }
    let check = given.check_code(&ada, &right, NOW + DAY - 1).await;
    assert_eq!(check, CodeCheck::TooMany { seconds: 1 });
    let used = given.use_code(&grace, &other.code(STEP)).await;
    assert_eq!(used, Some(UsedCode::App));
    // After a day as many are checked again.
    wrong(&given, 19, NOW + DAY).await;
    let tomorrow = secret.code((NOW + DAY) / STEP_SECONDS);
    let check = given.check_code(&ada, &tomorrow, NOW + DAY).await;
    assert_eq!(check, CodeCheck::Right(UsedCode::App));
    // Recovery codes work in between, for who has them.
    wrong(&given, 20, NOW + DAY).await;
    let check = given.check_code(&ada, "no code", NOW + DAY).await;
    assert!(matches!(check, CodeCheck::TooMany { .. }), "{check:?}");
    let used = given.use_code(&ada, &codes[1]).await;
    assert_eq!(used, Some(UsedCode::Recovery));
}
