//! W3C trace context: the IDs by which the spans of several programs become one trace.

use axum::http::{HeaderMap, HeaderName};

pub(crate) const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
pub(crate) const TRACE_STATE: HeaderName = HeaderName::from_static("tracestate");

/// A longer state is dropped, as the standard permits.
const MAX_STATE: usize = 512;
/// The flag of a trace that its first program records.
const SAMPLED: u8 = 1;

/// The span of the client that sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub trace: u128,
    pub span: u64,
    pub is_sampled: bool,
    /// What vendors pass along, as it was sent.
    pub state: String,
}

impl Parent {
    /// Reads the headers. What is malformed counts as absent.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut parents = headers.get_all(TRACE_PARENT).iter();
        let (parent, None) = (parents.next()?, parents.next()) else {
            return None;
        };
        let (trace, span, flags) = read(parent.to_str().ok()?)?;
        let states = headers.get_all(TRACE_STATE).iter();
        let states: Option<Vec<_>> = states.map(|state| state.to_str().ok()).collect();
        let state = states.unwrap_or_default().join(",");
        // Providers and collectors get it, and must not get keys.
        let has_key = state.contains("sk-svc-");
        let is_plain = !has_key
            && state.len() <= MAX_STATE
            && !state.bytes().any(|byte| byte.is_ascii_control());
        Some(Self {
            trace,
            span,
            is_sampled: flags & SAMPLED != 0,
            state: if is_plain { state } else { String::new() },
        })
    }
}

/// Reads `00-TRACE-SPAN-FLAGS`. Later versions may have more behind that.
fn read(text: &str) -> Option<(u128, u64, u8)> {
    let (version, rest) = text.split_at_checked(2)?;
    let (fields, more) = rest.split_at_checked(53)?;
    let version = hex(version).and_then(|version| u8::from_str_radix(version, 16).ok())?;
    let is_known = match version {
        0 => more.is_empty(),
        0xff => false,
        _ => more.is_empty() || more.starts_with('-'),
    };
    let mut fields = fields.strip_prefix('-')?.split('-');
    let (trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?);
    if !is_known || fields.next().is_some() || [trace.len(), span.len(), flags.len()] != [32, 16, 2]
    {
        return None;
    }
    let trace = u128::from_str_radix(hex(trace)?, 16).ok()?;
    let span = u64::from_str_radix(hex(span)?, 16).ok()?;
    let flags = u8::from_str_radix(hex(flags)?, 16).ok()?;
    (trace != 0 && span != 0).then_some((trace, span, flags))
}

/// Digits in lower case, without a sign.
fn hex(text: &str) -> Option<&str> {
    let mut bytes = text.bytes();
    let is_hex = bytes.all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex.then_some(text)
}

/// The header for the next program.
pub(crate) fn written(trace: u128, span: u64, is_sampled: bool) -> String {
    let flags = if is_sampled { SAMPLED } else { 0 };
    format!("00-{trace:032x}-{span:016x}-{flags:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn of(parents: &[&str], states: &[&str]) -> Option<Parent> {
        let mut headers = HeaderMap::new();
        for parent in parents {
            headers.append(TRACE_PARENT, parent.parse().unwrap());
        }
        for state in states {
            headers.append(TRACE_STATE, state.parse().unwrap());
        }
        Parent::of(&headers)
    }

    #[test]
    fn a_parent_is_read_and_written() {
        let text = format!("00-{TRACE}-b7ad6b7169203331-01");
        let parent = of(&[&text], &["a=1", "b=2"]).unwrap();
        assert_eq!(written(parent.trace, parent.span, parent.is_sampled), text);
        assert_eq!(parent.state, "a=1,b=2");
        let unsampled = format!("00-{TRACE}-b7ad6b7169203331-02");
        assert!(!of(&[&unsampled], &[]).unwrap().is_sampled);
        let later = format!("cc-{TRACE}-b7ad6b7169203331-01-what-the-future-has");
        assert_eq!(of(&[&later], &[]).unwrap().trace, parent.trace);
        assert_eq!(of(&[&text], &[&"x".repeat(513)]).unwrap().state, "");
    }

    #[test]
    fn what_is_malformed_counts_as_absent() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333-001",
        ] {
            assert_eq!(of(&[text], &[]), None, "{text}");
        }
        let text = format!("00-{TRACE}-b7ad6b7169203331-01");
        assert_eq!(of(&[&text, &text], &[]), None, "two parents are none");
    }
}
