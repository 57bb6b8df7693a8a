//! Signatures of events in Stripe's scheme: `t=1800000000,v1=5257a8…`.
//!
//! A signature is the HMAC-SHA256 of the time, a dot and the body as it was sent. The header has several signatures while
//! a secret is being replaced; signatures of other schemes than `v1` are ignored.

use axum::http::{HeaderMap, HeaderName};
use ring::hmac;

use super::EventError;
use crate::base::{hex::hex, keys::Secret};

pub(crate) const HEADER: HeaderName = HeaderName::from_static("stripe-signature");
/// How far the time of a signature may differ from the gateway's clock, either way.
const TOLERANCE_SECONDS: u64 = 300;

/// Checks that the body was signed with the secret, at a time close to `now`.
pub(crate) fn check(
    secret: &Secret,
    headers: &HeaderMap,
    body: &[u8],
    now: i64,
) -> Result<(), EventError> {
    let mut lines = headers.get_all(HEADER).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return Err(EventError::Unsigned);
    };
    let line = line.to_str().map_err(|_| EventError::Unsigned)?;
    let parts = || {
        line.split(',')
            .filter_map(|part| part.trim().split_once('='))
    };
    let mut times = parts().filter(|(name, _)| *name == "t");
    let (Some((_, time)), None) = (times.next(), times.next()) else {
        return Err(EventError::Unsigned);
    };
    let at: i64 = time.parse().map_err(|_| EventError::Unsigned)?;
    let key = key(secret);
    let signed = signed_text(time, body);
    let right = parts()
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, signature)| from_hex(signature))
        .any(|signature| hmac::verify(&key, &signed, &signature).is_ok());
    if !right {
        return Err(EventError::WrongSignature);
    }
    // A replayed event has a right signature, but an old time.
    if now.abs_diff(at) > TOLERANCE_SECONDS {
        return Err(EventError::OutsideTolerance);
    }
    Ok(())
}

/// The header value for a body that is signed at `now`.
pub(crate) fn sign(secret: &Secret, body: &[u8], now: i64) -> String {
    let time = now.to_string();
    let tag = hmac::sign(&key(secret), &signed_text(&time, body));
    format!("t={time},v1={}", hex(tag.as_ref()))
}

fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes())
}

fn signed_text(time: &str, body: &[u8]) -> Vec<u8> {
    [time.as_bytes(), b".", body].concat()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const NOW: i64 = 1_800_000_000;
    const BODY: &[u8] = br#"{"type":"ping"}"#;
    /// Computed with another program.
    const RIGHT: &str = "504478bc6fae78d9cf01ffe6469c5e1f6705ea47a383fa1b8488034f6bd78ac5";

    fn checked(line: &str, body: &[u8], now: i64) -> Result<(), EventError> {
        let value = HeaderValue::try_from(line).unwrap();
        let headers = HeaderMap::from_iter([(HEADER, value)]);
        check(&Secret::new("whsec_example"), &headers, body, now)
    }

    #[test]
    fn a_signature_is_valid_for_its_time_and_body_only() {
        let line = format!("t={NOW},v1={RIGHT}");
        assert_eq!(sign(&Secret::new("whsec_example"), BODY, NOW), line);
        assert_eq!(checked(&line, BODY, NOW), Ok(()));
        assert_eq!(checked(&line, b"{}", NOW), Err(EventError::WrongSignature));
        let later = format!("t={},v1={RIGHT}", NOW + 1);
        assert_eq!(checked(&later, BODY, NOW), Err(EventError::WrongSignature));
        for (now, expected) in [
            (NOW + 300, Ok(())),
            (NOW - 300, Ok(())),
            (NOW + 301, Err(EventError::OutsideTolerance)),
            (NOW - 301, Err(EventError::OutsideTolerance)),
        ] {
            assert_eq!(checked(&line, BODY, now), expected, "{now}");
        }
    }

    #[test]
    fn one_right_signature_among_others_is_enough() {
        let wrong = "0".repeat(64);
        for line in [
            format!("t={NOW},v1={wrong},v1={RIGHT}"),
            format!("v0={wrong}, v1={RIGHT}, t={NOW}"),
            format!("t={NOW},v1=zz,v1=,v1=a,v1={RIGHT}"),
        ] {
            assert_eq!(checked(&line, BODY, NOW), Ok(()), "{line}");
        }
    }

    #[test]
    fn events_without_a_signature_of_the_scheme_are_refused() {
        for line in [
            "",
            "v1=",
            &format!("v1={RIGHT}"),
            &format!("t=,v1={RIGHT}"),
            &format!("t=soon,v1={RIGHT}"),
            &format!("t={NOW},t={NOW},v1={RIGHT}"),
        ] {
            assert_eq!(
                checked(line, BODY, NOW),
                Err(EventError::Unsigned),
                "{line}"
            );
        }
        for line in [
            format!("t={NOW}"),
            format!("t={NOW},v0={RIGHT}"),
            format!("t={NOW},v1={}", &RIGHT[..62]),
            format!("t={NOW},v1={RIGHT}00"),
        ] {
            assert_eq!(
                checked(&line, BODY, NOW),
                Err(EventError::WrongSignature),
                "{line}"
            );
        }
        let nothing = HeaderMap::new();
        let unsigned = check(&Secret::new("whsec_example"), &nothing, BODY, NOW);
        assert_eq!(unsigned, Err(EventError::Unsigned));
    }
}
