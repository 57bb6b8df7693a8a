//! Time-based one-time passwords (RFC 6238) as authenticator apps compute them: HMAC-SHA-1, six digits, steps of thirty
//! seconds. Every app supports these parameters, and many ignore others.

use data_encoding::BASE32_NOPAD;
use ring::{
    hmac,
    rand::{SystemRandom, generate},
};

use super::keys::Secret;

/// Length of a time step.
pub const STEP_SECONDS: i64 = 30;
/// The length that RFC 4226 recommends: 160 bits.
const SECRET_BYTES: usize = 20;
const DIGITS: usize = 6;
/// Steps before and after the present one whose codes are accepted, because clocks differ and people type slowly.
const TOLERANCE: i64 = 1;

/// The secret that a person's authenticator app shares with us. It has no `Display`, so that it is shown only where it
/// is meant to be.
#[derive(Clone, PartialEq, Eq)]
pub struct TotpSecret([u8; SECRET_BYTES]);

impl TotpSecret {
    /// A new secret; `None` if the system returns no random bytes.
    pub(crate) fn generate() -> Option<Self> {
        let bytes = generate::<[u8; SECRET_BYTES]>(&SystemRandom::new()).ok()?;
        Some(Self(bytes.expose()))
    }

    /// Reads the text that apps take; spaces and case do not matter.
    pub fn parse(text: &str) -> Option<Self> {
        let plain: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let bytes = BASE32_NOPAD.decode(plain.to_ascii_uppercase().as_bytes());
        Some(Self(bytes.ok()?.try_into().ok()?))
    }

    /// The secret as apps take it: 32 characters of base32.
    pub(crate) fn reveal(&self) -> String {
        BASE32_NOPAD.encode(&self.0)
    }

    /// The code of a time step: the time in seconds divided by [`STEP_SECONDS`].
    pub fn code(&self, step: i64) -> String {
        let code = truncated(&self.0, step) % 10_u32.pow(6);
        format!("{code:0DIGITS$}")
    }

    /// The time step, later than `last`, whose code this is; `None` if there is none close to `now`. Spaces in the code
    /// do not matter.
    pub(crate) fn accepted_step(&self, code: &str, now: i64, last: i64) -> Option<i64> {
        let code: String = code.chars().filter(|c| !c.is_whitespace()).collect();
        let present = now.div_euclid(STEP_SECONDS);
        let mut steps = (present - TOLERANCE..=present + TOLERANCE).filter(|step| *step > last);
        steps.find(|step| Secret::new(self.code(*step)).matches(&code))
    }
}

impl std::fmt::Debug for TotpSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TotpSecret(..)")
    }
}

/// The truncated HMAC of RFC 4226, section 5.3: 31 bits.
fn truncated(secret: &[u8], counter: i64) -> u32 {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &counter.to_be_bytes());
    let tag = tag.as_ref();
    let offset = usize::from(tag[tag.len() - 1] & 0xf);
    let word = tag[offset..offset + 4].iter();
    word.fold(0, |word, byte| word << 8 | u32::from(*byte)) & 0x7fff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_the_rfc() -> TotpSecret {
        TotpSecret(*b"12345678901234567890")
    }

    /// RFC 6238, appendix B, for SHA-1: times in seconds and codes of eight digits.
    #[test]
    fn the_codes_of_the_rfc() {
        for (time, code) in [
            (59, 94_287_082),
            (1_111_111_109, 7_081_804),
            (1_111_111_111, 14_050_471),
            (1_234_567_890, 89_005_924),
            (2_000_000_000, 69_279_037),
            (20_000_000_000, 65_353_130),
        ] {
            let step = time / STEP_SECONDS;
            let found = truncated(b"12345678901234567890", step);
            assert_eq!(found % 100_000_000, code, "{time}");
            let six = format!("{:06}", code % 1_000_000);
            assert_eq!(of_the_rfc().code(step), six, "{time}");
        }
    }

    #[test]
    fn a_code_is_accepted_close_to_its_step_and_later_than_the_last() {
        let secret = of_the_rfc();
        let (now, step) = (1_111_111_111, 37_037_037);
        let accepted = |code: &str, last| secret.accepted_step(code, now, last);
        for near in [step - 1, step, step + 1] {
            let code = secret.code(near);
            assert_eq!(accepted(&code, 0), Some(near));
            let spaced = format!(" {} {} ", &code[..3], &code[3..]);
            assert_eq!(accepted(&spaced, near - 1), Some(near));
            assert_eq!(accepted(&code, near), None, "it was used");
        }
        for far in [step - 2, step + 2] {
            assert_eq!(accepted(&secret.code(far), 0), None);
        }
        for wrong in ["", "0", "000000", &secret.code(step)[1..], "٠٥٠٤٧١"] {
            assert_eq!(accepted(wrong, 0), None, "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_read_back_from_its_text() {
        let secret = TotpSecret::generate().unwrap();
        let text = secret.reveal();
        assert_eq!(text.len(), 32);
        let spaced = format!(" {} {}", text[..4].to_lowercase(), &text[4..]);
        assert_eq!(TotpSecret::parse(&spaced), Some(secret.clone()));
        assert_ne!(TotpSecret::generate().unwrap(), secret);
        for wrong in ["", "A", "18", &text[..31], &format!("{text}A")] {
            assert_eq!(TotpSecret::parse(wrong), None, "{wrong}");
        }
        assert_eq!(format!("{secret:?}"), "TotpSecret(..)");
    }
}
