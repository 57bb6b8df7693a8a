//! The body of a call: a body of the Messages API with other members at its top, and its values byte for byte.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer as _,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::wire::{error::UpstreamError, json_writer::JsonWriter};

/// The version of the API at Bedrock.
const VERSION: &str = "bedrock-2023-05-31";
const BETAS: &str = "anthropic_beta";
const BUDGET: &str = "max_tokens";
/// The beta without which Bedrock refuses an effort for Claude Opus 4.5. Anthropic's own API has none for it any more, so
/// callers do not name it.
const EFFORT_BETA: &str = "effort-2025-11-24";
/// Members that the path, the action and the service's own version replace.
const REPLACED: [&str; 3] = ["model", "stream", "anthropic_version"];

/// Rewrites a body of the Messages API for Bedrock. `betas` are those of the caller's headers; betas that are not in
/// `allowed` are left out. A body with an effort gets the beta for it.
pub(crate) fn body(
    messages: &[u8],
    betas: &[&str],
    allowed: &[impl AsRef<str>],
) -> Result<Vec<u8>, UpstreamError> {
    rewrite(messages, betas, allowed, None)
}

/// The body of a call whose tokens are to be counted. It has an output budget, which Bedrock wants to see here too.
pub(crate) fn counted_body(
    messages: &[u8],
    betas: &[&str],
    allowed: &[impl AsRef<str>],
) -> Result<Vec<u8>, UpstreamError> {
    rewrite(messages, betas, allowed, Some(1))
}

fn rewrite(
    messages: &[u8],
    betas: &[&str],
    allowed: &[impl AsRef<str>],
    default_budget: Option<u32>,
) -> Result<Vec<u8>, UpstreamError> {
    let mut json = serde_json::Deserializer::from_slice(messages);
    let Members(members) = json
        .deserialize_map(MembersVisitor)
        .map_err(|error| UpstreamError::unreadable(&error))?;
    let own = members.iter().filter(|(name, _)| name == BETAS);
    let own = own.filter_map(|(_, value)| serde_json::from_str::<Vec<String>>(value.get()).ok());
    let own: Vec<String> = own.flatten().collect();
    let own = own.iter().map(String::as_str);
    let of_effort = has_effort(&members).then_some(EFFORT_BETA);
    let mut chosen: Vec<&str> = Vec::new();
    for beta in betas.iter().copied().chain(own).chain(of_effort) {
        let is_allowed = allowed.iter().any(|allowed| allowed.as_ref() == beta);
        if is_allowed && !chosen.contains(&beta) {
            chosen.push(beta);
        }
    }
    let mut written = JsonWriter::with_capacity(messages.len() + 128);
    written.raw("{\"anthropic_version\":").string(VERSION);
    if !chosen.is_empty() {
        written.raw(",").string(BETAS).raw(":");
        written.list(&chosen, |beta, json| {
            json.string(beta);
        });
    }
    let has_budget = members.iter().any(|(name, _)| name == BUDGET);
    if let Some(tokens) = default_budget.filter(|_| !has_budget) {
        written.raw(",").string(BUDGET).raw(":").number(tokens);
    }
    for (name, value) in &members {
        if !REPLACED.contains(&name.as_ref()) && name != BETAS {
            written.raw(",").string(name).raw(":").raw(value.get());
        }
    }
    written.raw("}");
    Ok(written.into_string().into_bytes())
}

/// Whether `output_config` has an effort; it can have a format alone.
fn has_effort(members: &[(Cow<'_, str>, &RawValue)]) -> bool {
    #[derive(Deserialize)]
    struct Config<'a> {
        #[serde(borrow)]
        effort: Option<&'a RawValue>,
    }
    let mut configs = members.iter().filter(|(name, _)| name == "output_config");
    configs.any(|(_, value)| {
        let config = serde_json::from_str::<Config<'_>>(value.get());
        config.is_ok_and(|config| config.effort.is_some())
    })
}

/// The members of an object in their order, with their values as they are written.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

struct MembersVisitor;

impl<'de> Visitor<'de> for MembersVisitor {
    type Value = Members<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some(Name(name)) = map.next_key()? {
            members.push((name, map.next_value()?));
        }
        Ok(Members(members))
    }
}

/// A name, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN_BETAS: [&str; 2] = ["context-1m-2025-08-07", "effort-2025-11-24"];

    fn rewritten(messages: &str, betas: &[&str]) -> String {
        String::from_utf8(body(messages.as_bytes(), betas, &KNOWN_BETAS).unwrap()).unwrap()
    }

    #[test]
    fn values_stay_as_they_are_written() {
        let messages = r#"{ "model" : "m", "max_tokens":1e2, "stream":true,
            "x\u0022":[1.50, "\u00e9"],"messages":[{"model":"kept"}], "anthropic_version":"y" }"#;
        assert_eq!(
            rewritten(messages, &[]),
            r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":1e2,"x\"":[1.50, "\u00e9"],"messages":[{"model":"kept"}]}"#
        );
    }

    #[test]
    fn betas_that_bedrock_does_not_know_are_left_out() {
        let (known, other) = ("context-1m-2025-08-07", "claude-code-20250219");
        let own = format!(r#"{{"anthropic_beta":["{known}","effort-2025-11-24","{other}"]}}"#);
        assert_eq!(
            rewritten(&own, &[other, known]),
            format!(
                r#"{{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["{known}","effort-2025-11-24"]}}"#
            )
        );
        let none = rewritten("{}", &[other]);
        assert_eq!(none, r#"{"anthropic_version":"bedrock-2023-05-31"}"#);
        let more = body(b"{}", &[other], &[other]).unwrap();
        assert!(String::from_utf8(more).unwrap().contains(other));
    }

    #[test]
    fn an_effort_has_its_beta() {
        let known = format!(r#","anthropic_beta":["{EFFORT_BETA}"]"#);
        for (config, expected) in [
            (r#"{"effort":"low"}"#, known.as_str()),
            (
                r#"{"format":{"type":"json_schema"},"effort":"high"}"#,
                &known,
            ),
            (r#"{"format":{"type":"json_schema"}}"#, ""),
            (r#"{"effort":null}"#, ""),
            ("7", ""),
        ] {
            let messages = format!(r#"{{"output_config":{config}}}"#);
            let expected = format!(
                r#"{{"anthropic_version":"{VERSION}"{expected},"output_config":{config}}}"#
            );
            assert_eq!(rewritten(&messages, &[]), expected);
        }
        let twice = rewritten(r#"{"output_config":{"effort":"low"}}"#, &[EFFORT_BETA]);
        assert_eq!(twice.matches(EFFORT_BETA).count(), 1, "{twice}");
        let none: [&str; 0] = [];
        let turned_off = body(br#"{"output_config":{"effort":"low"}}"#, &[], &none).unwrap();
        assert!(!String::from_utf8(turned_off).unwrap().contains(BETAS));
    }

    #[test]
    fn a_body_to_be_counted_has_a_budget() {
        for (given, expected) in [("{}", "1"), (r#"{"max_tokens":7}"#, "7")] {
            let body = counted_body(given.as_bytes(), &[], &KNOWN_BETAS).unwrap();
            let expected =
                format!(r#"{{"anthropic_version":"bedrock-2023-05-31","max_tokens":{expected}}}"#);
            assert_eq!(String::from_utf8(body).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["[]", "", "{\"a\":}", "1"] {
            assert!(body(text.as_bytes(), &[], &KNOWN_BETAS).is_err(), "{text}");
        }
    }
}
