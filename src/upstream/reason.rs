//! A provider's reason for a refusal, made fit for a caller to read.

use serde_json::Value;

use crate::{base::keys::Secret, wire::error::CONTEXT_OVERFLOW};

const MAX_WORDS: usize = 60;
const HIDDEN: &str = "[...]";

/// Takes out of a provider's words whatever tells who it is or what we authenticate with.
pub struct Cleaner {
    /// In lower case; a word that contains one of these is not shown.
    forbidden: Vec<String>,
}

impl Cleaner {
    pub fn new(base_url: &str, api_keys: &[Secret]) -> Self {
        let uri: Option<axum::http::Uri> = base_url.parse().ok();
        let host = uri
            .as_ref()
            .and_then(|uri| uri.host())
            .unwrap_or_default()
            .to_lowercase();
        // `api.vendor.com`: the vendor's name is the part that would give it away.
        let vendor = host
            .rsplit('.')
            .nth(1)
            .filter(|part| part.len() > 3)
            .map(str::to_owned);
        let keys = api_keys.iter().map(|key| key.reveal().to_lowercase());
        let forbidden = [Some(host), vendor].into_iter().flatten().chain(keys);
        Self {
            forbidden: forbidden.filter(|word| !word.is_empty()).collect(),
        }
    }

    /// Also these words, in lower case.
    pub fn hide(&mut self, words: &[&str]) {
        let words = words.iter().map(|word| (*word).to_owned());
        self.forbidden.extend(words);
    }

    /// The reason, where it is about the caller's request and not about us.
    pub fn for_caller(
        &self,
        status: u16,
        body: &[u8],
        upstream_model: &str,
        requested_model: &str,
    ) -> Option<String> {
        if !matches!(status, 400 | 413 | 422) {
            return None;
        }
        if is_about_us(body) {
            return None;
        }
        let error = error_in(body)?;
        let message = error
            .get("message")
            .or(Some(&error))
            .and_then(Value::as_str)?;
        let model = upstream_model.to_lowercase();
        let clean = |word: &str| {
            let lower = word.to_lowercase();
            let names_us = self.forbidden.iter().any(|name| lower.contains(name));
            if names_us || lower.contains("://") || looks_secret(word) {
                HIDDEN.to_owned()
            } else if names_model(&lower, &model) {
                format!("`{requested_model}`")
            } else {
                word.chars().filter(|c| !c.is_control()).collect()
            }
        };
        let words: Vec<_> = message
            .split_whitespace()
            .take(MAX_WORDS)
            .map(clean)
            .collect();
        let reason = words.join(" ");
        if is_context_overflow(&error, message) && !reason.to_lowercase().contains(CONTEXT_OVERFLOW)
        {
            return Some(format!(
                "The model's {CONTEXT_OVERFLOW} is exceeded: {reason}"
            ));
        }
        (!reason.is_empty()).then_some(reason)
    }
}

/// Whether a provider found the request longer than the model's context. Vendors have a word for it, or only a sentence.
fn is_context_overflow(error: &Value, message: &str) -> bool {
    const WORDS: [&str; 3] = [
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_max_prompt_tokens_exceeded",
    ];
    const SENTENCES: [[&str; 2]; 7] = [
        [CONTEXT_OVERFLOW, ""],
        ["input token count", "exceeds the maximum"],
        ["prompt is too long", ""],
        ["input is too long", ""],
        ["input length", "context l"],
        ["exceed", "context size"],
        ["exceed", "context window"],
    ];
    let has_word = |field: &str| {
        let word = error.get(field).and_then(Value::as_str);
        word.is_some_and(|word| WORDS.contains(&word))
    };
    let message = message.to_lowercase();
    let says = |parts: [&str; 2]| parts.iter().all(|part| message.contains(part));
    has_word("code") || has_word("type") || SENTENCES.into_iter().any(says)
}

/// The error object of a body, or the body itself.
fn error_in(body: &[u8]) -> Option<Value> {
    let body: Value = serde_json::from_slice(body).ok()?;
    // Some wrap it in a list.
    let body = body.get(0).unwrap_or(&body);
    Some(body.get("error").unwrap_or(body).clone())
}

/// Whether a provider that has no other status for it complains of our key or of where we are.
pub fn is_about_us(body: &[u8]) -> bool {
    let Some(error) = error_in(body) else {
        return false;
    };
    let details = error.get("details").and_then(Value::as_array);
    let mut reasons = details.into_iter().flatten();
    error.get("status").and_then(Value::as_str) == Some("FAILED_PRECONDITION")
        || reasons.any(|detail| {
            let reason = detail.get("reason").and_then(Value::as_str);
            reason.is_some_and(|reason| reason.starts_with("API_KEY_"))
        })
}

/// Whether a word is about this model: it has the name or a part of it (`vendor/name:size`), or it
/// is itself a part that says something, as a name without its date does. A bare number is not.
fn names_model(word: &str, model: &str) -> bool {
    let mut parts = model.split(['/', ':', '@']).filter(|part| part.len() >= 3);
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let telling = bare.len() >= 4
        && bare.contains(|c: char| c.is_ascii_digit())
        && bare.contains(|c: char| c.is_ascii_alphabetic());
    parts.any(|part| word.contains(part)) || telling && model.contains(bare)
}

/// Long runs of letters and digits are keys and identifiers, not prose.
fn looks_secret(word: &str) -> bool {
    let run = |part: &str| {
        part.len() >= 20
            && part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let separator = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
    word.starts_with("sk-") || word.split(separator).any(run)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reason_is_shown_without_names_and_keys() {
        let key = Secret::new("sk-live-0123456789");
        let cleaner = Cleaner::new("https://api.vendor.com/v1", &[key]);
        let reason = |message: &str| {
            let body = serde_json::json!({ "error": { "message": message } }).to_string();
            cleaner.for_caller(400, body.as_bytes(), "gpt-9o", "svc-pro")
        };
        assert_eq!(
            reason("This model's maximum context length is 8192 tokens.").unwrap(),
            "This model's maximum context length is 8192 tokens.",
        );
        assert_eq!(
            reason("GPT-9o-2026-01-01 at https://api.vendor.com says no to sk-live-0123456789")
                .unwrap(),
            "`svc-pro` at [...] says no to [...]",
        );
        let body = br#"{"error":{"message":"GPT-9o (gpt-9o-large) of 'acme' takes 8192 tokens"}}"#;
        assert_eq!(
            cleaner
                .for_caller(400, body, "acme/gpt-9o-large:2026", "svc-pro")
                .unwrap(),
            "`svc-pro` `svc-pro` of `svc-pro` takes 8192 tokens",
        );
        assert_eq!(
            reason("Vendor req_0123456789abcdef0123").unwrap(),
            "[...] [...]"
        );
        assert_eq!(
            cleaner.for_caller(401, b"{\"error\":{\"message\":\"x\"}}", "m", "n"),
            None
        );
        assert_eq!(cleaner.for_caller(400, b"<html>no</html>", "m", "n"), None);
    }
    #[test]
    fn a_reason_may_come_in_a_list() {
        let mut cleaner = Cleaner::new("https://api.vendor.com/v1", &[]);
        cleaner.hide(&["gemini"]);
        let reason = |body: Value| {
            cleaner.for_caller(400, body.to_string().as_bytes(), "gemini-3-pro", "svc-pro")
        };
        let error = json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT",
            "message": "Gemini-3-Pro of Gemini takes no such role." } });
        let shown = "[...] of [...] takes no such role.";
        assert_eq!(reason(error.clone()).unwrap(), shown);
        assert_eq!(reason(json!([error])).unwrap(), shown);
        assert_eq!(reason(json!([])), None);
        let too_long = json!({ "error": { "message":
            "The input token count (9000) exceeds the maximum number of tokens allowed (8192)." } });
        assert_eq!(
            reason(too_long).unwrap(),
            "The model's maximum context length is exceeded: The input token count (9000) exceeds the \
             maximum number of tokens allowed (8192).",
        );
    }

    #[test]
    fn what_is_wrong_with_us_is_not_the_callers_to_read() {
        let cleaner = Cleaner::new("https://api.vendor.com/v1", &[]);
        for error in [
            json!({ "message": "API key not valid.", "status": "INVALID_ARGUMENT",
                "details": [{ "@type": "x" }, { "reason": "API_KEY_INVALID" }] }),
            json!({ "message": "Location is not supported.", "status": "FAILED_PRECONDITION" }),
        ] {
            let body = json!({ "error": error }).to_string();
            let reason = cleaner.for_caller(400, body.as_bytes(), "m", "n");
            assert_eq!(reason, None, "{body}");
        }
    }
}
