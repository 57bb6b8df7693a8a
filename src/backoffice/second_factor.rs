//! People's second factors: an authenticator app (TOTP), and recovery codes for those who have lost it.
//!
//! A secret counts only after a code has confirmed it. A code is accepted once: the step of the last one is stored, and
//! a code of that step or an earlier one is refused, with any gateway. A recovery code is used once likewise. Each use
//! has a random ID, so that a transaction that is executed again recognises its own.

use sha2::{Digest as _, Sha256};

use super::{
    Backoffice, BackofficeError, Digest,
    sessions::delete_sessions,
    sql::{Row, Statement, statement, unexpected},
};
use crate::base::{
    hex::hex,
    keys::{Secret, random_characters, random_id},
    totp::TotpSecret,
};

/// Most codes of the app that are checked in a day without a right one among them. Three of a million codes are right at a
/// time, so guessing for a year succeeds with a probability of 2 %.
const WRONG_CODES: i64 = 20;
const DAY_SECONDS: i64 = 24 * 3_600;
/// How many recovery codes a person gets.
const RECOVERY_CODES: usize = 10;
/// How long setting up an app may take, in seconds.
const SET_UP_SECONDS: i64 = 15 * 60;
/// Characters that people do not confuse.
const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Sixteen characters of 32: 80 bits, too many to be guessed from a digest.
const RECOVERY_CHARS: usize = 16;

/// A confirmed second factor.
struct Factor {
    secret: TotpSecret,
    last_step: i64,
    wrong_codes: i64,
    wrong_since: i64,
}

impl Backoffice {
    /// Stores the secret of an app that this session sets up, in place of one that was not confirmed. Changes nothing if
    /// the person has a confirmed one.
    pub(crate) async fn begin_second_factor(
        &self,
        person_id: &str,
        session: &Digest,
        secret: &TotpSecret,
        now: i64,
    ) -> Result<(), BackofficeError> {
        let begin = statement(
            "INSERT INTO backoffice_factors (person_id, secret, session, began_at, last_step)
             SELECT p.id, $1, $2, $3, 0 FROM backoffice_people p WHERE p.id = $4
             ON CONFLICT (person_id) DO UPDATE
             SET secret = excluded.secret, session = excluded.session, began_at = excluded.began_at
             WHERE backoffice_factors.confirmed_at IS NULL",
            [
                secret.reveal().as_str().into(),
                hex(session).as_str().into(),
                now.into(),
                person_id.into(),
            ],
        );
        self.run(vec![begin]).await?;
        Ok(())
    }

    /// The secret that this session sets up, for a quarter of an hour.
    pub(crate) async fn second_factor_begun(
        &self,
        person_id: &str,
        session: &Digest,
        now: i64,
    ) -> Result<Option<TotpSecret>, BackofficeError> {
        let select = statement(
            "SELECT secret FROM backoffice_factors
             WHERE person_id = $1 AND session = $2 AND began_at > $3 AND confirmed_at IS NULL",
            [
                person_id.into(),
                hex(session).as_str().into(),
                (now - SET_UP_SECONDS).into(),
            ],
        );
        let rows = self.run(vec![select]).await?;
        rows.into_iter().next().map(secret).transpose()
    }

    /// Turns on the second factor with the first code of the app, and ends the person's other sessions, which began
    /// without it. Returns recovery codes; `None` if the code is not right or nothing is being set up.
    pub(crate) async fn confirm_second_factor(
        &self,
        person_id: &str,
        session: &Digest,
        code: &str,
        now: i64,
    ) -> Result<Option<Vec<Secret>>, BackofficeError> {
        let begun = self.second_factor_begun(person_id, session, now).await?;
        let step = begun.as_ref().and_then(|it| it.accepted_step(code, now, 0));
        let (Some(secret), Some(step)) = (begun, step) else {
            return Ok(None);
        };
        let one_use = random_id("use_");
        let confirm = statement(
            "UPDATE backoffice_factors SET confirmed_at = $1, last_step = $2, last_use = $3
             WHERE person_id = $4 AND session = $5 AND secret = $6 AND confirmed_at IS NULL",
            [
                now.into(),
                step.into(),
                one_use.as_str().into(),
                person_id.into(),
                hex(session).as_str().into(),
                secret.reveal().as_str().into(),
            ],
        );
        let codes = new_codes();
        let add = codes
            .iter()
            .map(|code| add_recovery_code(person_id, code, &one_use));
        let mut steps = vec![confirm, delete_earlier_codes(person_id, &one_use)];
        steps.extend(add);
        steps.push(delete_sessions(person_id, Some(session)));
        steps.push(last_use(person_id));
        let confirmed = is_of(self.run(steps).await?, &one_use)?;
        Ok(confirmed.then_some(codes))
    }

    /// Uses a code of the person's app, or one of their recovery codes.
    ///
    /// Codes of the app are so short that wrong ones are counted in the store, over all gateways and restarts. Recovery
    /// codes cannot be guessed and are always checked, so that a thief of the password cannot lock out its owner.
    pub(crate) async fn use_second_factor(
        &self,
        person_id: &str,
        code: &str,
        now: i64,
    ) -> Result<CodeCheck, BackofficeError> {
        if let Some(digest) = recovery_digest(person_id, code) {
            let used = self.use_recovery_code(person_id, &digest).await?;
            return Ok(CodeCheck::of(used, UsedCode::Recovery));
        }
        let Some(factor) = self.counted_second_factor(person_id, now).await? else {
            return Ok(CodeCheck::Wrong);
        };
        if factor.wrong_codes > WRONG_CODES {
            let seconds = factor.wrong_since + DAY_SECONDS - now;
            let seconds = u64::try_from(seconds).unwrap_or_default().max(1);
            return Ok(CodeCheck::TooMany { seconds });
        }
        let used = match factor.secret.accepted_step(code, now, factor.last_step) {
            Some(step) => self.use_step(person_id, step).await?,
            None => false,
        };
        Ok(CodeCheck::of(used, UsedCode::App))
    }

    /// The second factor, after one more code was counted as wrong. That is before it is checked, so that codes at the
    /// same time are all counted; a right one resets the count.
    async fn counted_second_factor(
        &self,
        person_id: &str,
        now: i64,
    ) -> Result<Option<Factor>, BackofficeError> {
        let count = statement(
            "UPDATE backoffice_factors
             SET wrong_codes = CASE WHEN wrong_since <= $1 THEN 1
                     WHEN wrong_codes > $2 THEN wrong_codes ELSE wrong_codes + 1 END,
                 wrong_since = CASE WHEN wrong_since <= $1 THEN $3 ELSE wrong_since END
             WHERE person_id = $4 AND confirmed_at IS NOT NULL",
            [
                (now - DAY_SECONDS).into(),
                WRONG_CODES.into(),
                now.into(),
                person_id.into(),
            ],
        );
        let select = statement(
            "SELECT secret, last_step, wrong_codes, wrong_since FROM backoffice_factors
             WHERE person_id = $1 AND confirmed_at IS NOT NULL",
            [person_id.into()],
        );
        let rows = self.run(vec![count, select]).await?;
        let Some(mut row) = rows.into_iter().next() else {
            return Ok(None);
        };
        let secret = row.text()?;
        Ok(Some(Factor {
            secret: TotpSecret::parse(&secret).ok_or_else(|| unexpected("a secret"))?,
            last_step: row.int()?,
            wrong_codes: row.int()?,
            wrong_since: row.int()?,
        }))
    }

    /// Of uses of one code at the same time, one gets `true`.
    async fn use_step(&self, person_id: &str, step: i64) -> Result<bool, BackofficeError> {
        let one_use = random_id("use_");
        let take = statement(
            "UPDATE backoffice_factors SET last_step = $1, last_use = $2, wrong_codes = 0
             WHERE person_id = $3 AND confirmed_at IS NOT NULL AND last_step < $1",
            [step.into(), one_use.as_str().into(), person_id.into()],
        );
        is_of(self.run(vec![take, last_use(person_id)]).await?, &one_use)
    }

    async fn use_recovery_code(
        &self,
        person_id: &str,
        digest: &Digest,
    ) -> Result<bool, BackofficeError> {
        let (one_use, digest) = (random_id("use_"), hex(digest));
        let take = statement(
            "UPDATE backoffice_recovery_codes SET used_by = $1
             WHERE digest = $2 AND person_id = $3 AND used_by IS NULL",
            [
                one_use.as_str().into(),
                digest.as_str().into(),
                person_id.into(),
            ],
        );
        let reset = statement(
            "UPDATE backoffice_factors SET wrong_codes = 0 WHERE person_id = $1 AND EXISTS
                 (SELECT 1 FROM backoffice_recovery_codes WHERE digest = $2 AND used_by = $3)",
            [
                person_id.into(),
                digest.as_str().into(),
                one_use.as_str().into(),
            ],
        );
        let select = statement(
            "SELECT used_by FROM backoffice_recovery_codes WHERE digest = $1",
            [digest.as_str().into()],
        );
        is_of(self.run(vec![take, reset, select]).await?, &one_use)
    }

    /// How many recovery codes the person has left.
    pub(crate) async fn recovery_codes_left(
        &self,
        person_id: &str,
    ) -> Result<i64, BackofficeError> {
        let select = statement(
            "SELECT count(*) FROM backoffice_recovery_codes WHERE person_id = $1 AND used_by IS NULL",
            [person_id.into()],
        );
        let mut rows = self.run(vec![select]).await?;
        rows.first_mut().map_or(Ok(0), Row::int)
    }

    /// Makes new recovery codes in place of all earlier ones; `None` without a second factor.
    pub(crate) async fn renew_recovery_codes(
        &self,
        person_id: &str,
    ) -> Result<Option<Vec<Secret>>, BackofficeError> {
        let one_use = random_id("use_");
        let take = statement(
            "UPDATE backoffice_factors SET last_use = $1
             WHERE person_id = $2 AND confirmed_at IS NOT NULL",
            [one_use.as_str().into(), person_id.into()],
        );
        let codes = new_codes();
        let mut steps = vec![take, delete_earlier_codes(person_id, &one_use)];
        let add = codes
            .iter()
            .map(|code| add_recovery_code(person_id, code, &one_use));
        steps.extend(add);
        steps.push(last_use(person_id));
        let renewed = is_of(self.run(steps).await?, &one_use)?;
        Ok(renewed.then_some(codes))
    }

    /// Turns off the second factor and deletes the recovery codes.
    pub(crate) async fn remove_second_factor(
        &self,
        person_id: &str,
    ) -> Result<(), BackofficeError> {
        self.run(delete_second_factor(person_id).into()).await?;
        Ok(())
    }
}

/// Whether a code was right, and is used now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeCheck {
    Right(UsedCode),
    /// It is wrong, or was used before.
    Wrong,
    /// It was not checked: too many were wrong. The next code of the app is checked in so many seconds.
    TooMany {
        seconds: u64,
    },
}

impl CodeCheck {
    fn of(is_used: bool, used: UsedCode) -> Self {
        if is_used {
            Self::Right(used)
        } else {
            Self::Wrong
        }
    }
}

/// What a code was that has been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UsedCode {
    App,
    Recovery,
}

fn new_codes() -> Vec<Secret> {
    let code = || {
        let plain = random_characters(ALPHABET, RECOVERY_CHARS);
        let parts = [&plain[..4], &plain[4..8], &plain[8..12], &plain[12..]];
        Secret::new(parts.join("-"))
    };
    std::iter::repeat_with(code).take(RECOVERY_CODES).collect()
}

/// Whether a text has the form of a recovery code.
pub(crate) fn is_recovery_code(text: &str) -> bool {
    plain_recovery_code(text).is_some()
}

/// The digest under which a recovery code of a person is stored; `None` if the text cannot be one.
fn recovery_digest(person_id: &str, code: &str) -> Option<Digest> {
    let plain = plain_recovery_code(code)?;
    Some(Sha256::digest(format!("{person_id} {plain}")).into())
}

/// The characters of a recovery code; `None` if the text cannot be one. Case, spaces and hyphens do not matter.
fn plain_recovery_code(code: &str) -> Option<String> {
    let is_sign = |c: &char| !c.is_whitespace() && *c != '-';
    let plain: String = code.chars().filter(is_sign).collect();
    let plain = plain.to_ascii_lowercase();
    let has_form = plain.len() == RECOVERY_CHARS && plain.bytes().all(|b| ALPHABET.contains(&b));
    has_form.then_some(plain)
}

/// Adds a recovery code if this use is the one that has taken effect.
fn add_recovery_code(person_id: &str, code: &Secret, one_use: &str) -> Statement {
    let digest = recovery_digest(person_id, code.reveal()).unwrap_or_default();
    statement(
        "INSERT INTO backoffice_recovery_codes (digest, person_id)
         SELECT $1, f.person_id FROM backoffice_factors f WHERE f.person_id = $2 AND f.last_use = $3
         ON CONFLICT (digest) DO NOTHING",
        [
            hex(&digest).as_str().into(),
            person_id.into(),
            one_use.into(),
        ],
    )
}

/// Deletes a person's recovery codes if this use is the one that has taken effect.
fn delete_earlier_codes(person_id: &str, one_use: &str) -> Statement {
    statement(
        "DELETE FROM backoffice_recovery_codes WHERE person_id = $1 AND EXISTS
             (SELECT 1 FROM backoffice_factors f WHERE f.person_id = $1 AND f.last_use = $2)",
        [person_id.into(), one_use.into()],
    )
}

/// Deletes a person's second factor.
pub(super) fn delete_second_factor(person_id: &str) -> [Statement; 2] {
    [
        "DELETE FROM backoffice_factors WHERE person_id = $1",
        "DELETE FROM backoffice_recovery_codes WHERE person_id = $1",
    ]
    .map(|sql| statement(sql, [person_id.into()]))
}

/// Deletes a person's second factor if the person is gone.
pub(super) fn delete_second_factor_left_behind(person_id: &str) -> [Statement; 2] {
    [
        "DELETE FROM backoffice_factors WHERE person_id = $1
             AND NOT EXISTS (SELECT 1 FROM backoffice_people WHERE id = $1)",
        "DELETE FROM backoffice_recovery_codes WHERE person_id = $1
             AND NOT EXISTS (SELECT 1 FROM backoffice_people WHERE id = $1)",
    ]
    .map(|sql| statement(sql, [person_id.into()]))
}

fn last_use(person_id: &str) -> Statement {
    statement(
        "SELECT last_use FROM backoffice_factors WHERE person_id = $1",
        [person_id.into()],
    )
}

/// Whether the first row has the ID of this use.
fn is_of(rows: Vec<Row>, one_use: &str) -> Result<bool, BackofficeError> {
    let Some(mut row) = rows.into_iter().next() else {
        return Ok(false);
    };
    Ok(row.text_or_null()?.as_deref() == Some(one_use))
}

fn secret(mut row: Row) -> Result<TotpSecret, BackofficeError> {
    TotpSecret::parse(&row.text()?).ok_or_else(|| unexpected("a secret"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_codes_differ_and_are_read_however_they_are_typed() {
        let codes = new_codes();
        assert_eq!(codes.len(), RECOVERY_CODES);
        let mut digests = Vec::new();
        for code in &codes {
            let code = code.reveal();
            assert_eq!(code.len(), RECOVERY_CHARS + 3);
            let digest = recovery_digest("person_1", code).unwrap();
            let typed = format!(" {} ", code.to_uppercase().replace('-', " "));
            assert_eq!(recovery_digest("person_1", &typed), Some(digest));
            assert_ne!(recovery_digest("person_2", code), Some(digest));
            digests.push(digest);
        }
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), RECOVERY_CODES);
        for wrong in ["", "123456", "abcd-efgh-ijkm-npq", "abcd-efgh-ijkm-npql"] {
            assert_eq!(recovery_digest("person_1", wrong), None, "{wrong}");
        }
    }
}
