//! Refused requests of the public API whose key is known: each is recorded for the people of its account. Its error names
//! the page that shows it, as every error does: so a 401 does not say whether its key was valid before.
//!
//! A request that was admitted is a call, which the ledger records. The record of another one is put into memory here;
//! `gateway/refused_requests` writes it.

use std::time::Duration;

use axum::http::StatusCode;

use super::access_log::Sender;
use crate::{
    backoffice::RefusedRequest,
    base::{keys::rising_id, timestamp},
    gateway::Gateway,
    wire::error::GatewayError,
};

/// Most characters of a message that are stored. It can quote what is wrong in the request.
const MAX_MESSAGE_CHARS: usize = 300;

/// The response to a refused request.
#[derive(Clone, Copy)]
pub(super) struct Answered<'a> {
    pub path: &'a str,
    pub status: StatusCode,
    pub took: Duration,
}

/// Records a refused request, if its sender has a key that is or was valid.
pub(super) fn record(
    gateway: &Gateway,
    sender: Sender,
    error: &GatewayError,
    answered: Answered<'_>,
) {
    let requests = &gateway.refused_requests;
    let has_former_key = answered.status == StatusCode::UNAUTHORIZED
        && !requests.were_never_valid(&sender.invalid_keys);
    if sender.payer.is_none() && !has_former_key {
        return;
    }
    let envelope = error.envelope();
    let code = envelope.reason().to_owned();
    let message = match error {
        // It can quote the provider, and that the prompt.
        GatewayError::Upstream(_) => "The model's provider refused the request.".to_owned(),
        _ => stored(&envelope.message),
    };
    let at_ms = timestamp::now_ms();
    let payer = sender.payer.as_deref().cloned().unwrap_or_default();
    let refused = RefusedRequest {
        id: rising_id("refused_", u64::try_from(at_ms).unwrap_or(0)),
        at_ms,
        request_id: sender.request_id,
        account_id: sender.account_id.unwrap_or_default(),
        key_id: payer.key_id,
        project_id: payer.project_id,
        member_id: payer.member_id,
        path: printable(answered.path),
        model: sender.model.as_deref().map(printable),
        status: answered.status.as_u16(),
        code,
        param: envelope.param.as_deref().map(stored),
        message,
        agent: sender
            .agent
            .and_then(|agent| agent.client.clone())
            .map(Into::into),
        took_ms: i64::try_from(answered.took.as_millis()).unwrap_or(i64::MAX),
    };
    if sender.payer.is_some() {
        requests.add(refused);
    } else {
        requests.add_with_keys(sender.invalid_keys, refused);
    }
}

/// A text of the response as it is stored: printable, without values of the request, without anything that looks like an
/// API key, and not long.
fn stored(text: &str) -> String {
    let key = text.find("sk-svc-").unwrap_or(text.len());
    let mut stored = without_values(&printable(&text[..key]));
    if let Some((end, _)) = stored.char_indices().nth(MAX_MESSAGE_CHARS) {
        stored.truncate(end);
    }
    if stored.len() < text.len() && !stored.ends_with('…') {
        stored.push('…');
    }
    stored
}

/// A message without the values that it quotes: they can be parts of the conversation. Names of fields, models and the
/// like, which have no spaces, stay.
fn without_values(message: &str) -> String {
    const LONGEST_NAME: usize = 64;
    let mut kept = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(from) = rest.find(['`', '"']) {
        let quote = &rest[from..=from];
        let inside = &rest[from + 1..];
        let end = end_of_quoted(inside, quote);
        let value = &inside[..end];
        let is_name = quote == "`" && end <= LONGEST_NAME && !value.contains(char::is_whitespace);
        kept.push_str(&rest[..from]);
        for part in [quote, if is_name { value } else { "…" }, quote] {
            kept.push_str(part);
        }
        rest = inside.get(end + 1..).unwrap_or_default();
    }
    kept + rest
}

/// Where a quoted text ends: before the next quotation mark that is not escaped, or with the message.
fn end_of_quoted(text: &str, quote: &str) -> usize {
    let mut from = 0;
    while let Some(at) = text[from..].find(quote).map(|at| from + at) {
        let before = &text[..at];
        let backslashes = before.len() - before.trim_end_matches('\\').len();
        if quote == "`" || backslashes.is_multiple_of(2) {
            return at;
        }
        from = at + 1;
    }
    text.len()
}

fn printable(text: &str) -> String {
    let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_text_is_short_and_has_no_key() {
        assert_eq!(stored("as it is"), "as it is");
        assert_eq!(stored("two\nlines\u{1b}[31m"), "two lines [31m");
        assert_eq!(stored("the key sk-svc-abc"), "the key …");
        assert_eq!(stored("a \"key sk-svc-abc\""), "a \"…\"…");
        let long = stored(&"ü".repeat(5_000));
        assert_eq!(long.chars().count(), MAX_MESSAGE_CHARS + 1);
        assert!(long.ends_with("ü…"));
    }

    #[test]
    fn values_are_not_stored() {
        for (message, expected) in [
            ("`messages` is missing.", "`messages` is missing."),
            (
                "`input[3].output` is not right: x.",
                "`input[3].output` is not right: x.",
            ),
            (
                "invalid type: string \"my secret\", expected an array",
                "invalid type: string \"…\", expected an array",
            ),
            (
                r#"string "say \"my secret\" and \\", expected u64"#,
                "string \"…\", expected u64",
            ),
            (
                "unknown variant `my secret`, expected `auto` or `none`",
                "unknown variant `…`, expected `auto` or `none`",
            ),
            ("`my secret", "`…`"),
            ("\"", "\"…\""),
        ] {
            assert_eq!(without_values(message), expected);
        }
        assert_eq!(without_values(&format!("`{}`", "n".repeat(65))), "`…`");
    }
}
