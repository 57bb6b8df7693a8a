//! What a coding agent says about itself in headers: its session, and which of its agents sends the request.
//!
//! A value that is not short visible ASCII is ignored: these headers are for reports, so a request never fails because
//! of them.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};

/// Longest value that is stored, in bytes. Agents send UUIDs.
const MAX_BYTES: usize = 128;
/// The beginning of API keys, which must not be stored.
const KEY: &str = "sk-svc-";
const CLAUDE_CODE: &str = "claude-code";

/// The sender of a request, as the agent named it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agent {
    /// The program, e.g. `claude-code` or `codex_cli_rs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Box<str>>,
    /// One agent, or thread, of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Box<str>>,
    /// The agent that started this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<Box<str>>,
    /// What a subagent does, e.g. `review`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Box<str>>,
}

impl Agent {
    /// Reads the headers of Claude Code (`x-claude-code-…`) and Codex (the others); `None` if there are none of them.
    pub(crate) fn read(headers: &HeaderMap) -> Option<Arc<Self>> {
        let mut agent = Self::default();
        let mut is_claude_code = false;
        // One pass over the few headers that there are costs less than a lookup for each of these names.
        for (name, value) in headers {
            let (field, of_claude_code) = match name.as_str() {
                "x-claude-code-session-id" => (&mut agent.session, true),
                "x-claude-code-agent-id" => (&mut agent.id, true),
                "x-claude-code-parent-agent-id" => (&mut agent.parent_id, true),
                "session-id" => (&mut agent.session, false),
                "thread-id" => (&mut agent.id, false),
                "x-openai-subagent" => (&mut agent.role, false),
                "originator" => (&mut agent.client, false),
                _ => continue,
            };
            if field.is_none() {
                *field = identifier(value);
            }
            is_claude_code |= of_claude_code;
        }
        if agent == Self::default() {
            return None;
        }
        if is_claude_code && agent.client.is_none() {
            agent.client = Some(CLAUDE_CODE.into());
        }
        Some(Arc::new(agent))
    }
}

fn identifier(value: &HeaderValue) -> Option<Box<str>> {
    let text = value.to_str().ok()?;
    let is_short = (1..=MAX_BYTES).contains(&text.len());
    let is_visible = is_short && text.bytes().all(|byte| byte.is_ascii_graphic());
    (is_visible && !text.contains(KEY)).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn read(sent: &[(&'static str, &[u8])]) -> Option<Agent> {
        let headers = sent.iter().map(|(name, value)| {
            let value = HeaderValue::from_bytes(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        let agent = Agent::read(&headers.collect());
        agent.map(Arc::unwrap_or_clone)
    }

    #[test]
    fn each_agent_has_its_own_headers() {
        let claude_code = read(&[
            ("content-type", b"application/json"),
            ("x-claude-code-session-id", b"s-1"),
            ("x-claude-code-agent-id", b"a-2"),
            ("x-claude-code-parent-agent-id", b"a-1"),
        ]);
        let expected = Agent {
            client: Some("claude-code".into()),
            session: Some("s-1".into()),
            id: Some("a-2".into()),
            parent_id: Some("a-1".into()),
            role: None,
        };
        assert_eq!(claude_code, Some(expected));
        let codex = read(&[
            ("originator", b"codex_cli_rs"),
            ("session-id", b"s-1"),
            ("thread-id", b"t-1"),
            ("x-openai-subagent", b"review"),
        ]);
        let expected = Agent {
            client: Some("codex_cli_rs".into()),
            session: Some("s-1".into()),
            id: Some("t-1".into()),
            parent_id: None,
            role: Some("review".into()),
        };
        assert_eq!(codex, Some(expected));
    }

    #[test]
    fn a_value_that_cannot_be_stored_is_ignored() {
        let long = [b'x'; MAX_BYTES + 1];
        for bad in [
            &b""[..],
            b"two words",
            b"tab\there",
            b"gr\xc3\xbc\xc3\x9f",
            b"sk-svc-0123456789",
            &long,
        ] {
            assert_eq!(read(&[("session-id", bad)]), None, "{bad:?}");
        }
        let longest = read(&[("session-id", &long[1..])]).unwrap();
        assert_eq!(longest.session.unwrap().len(), MAX_BYTES);
        assert_eq!(read(&[("x-request-id", b"req_1")]), None);
    }

    #[test]
    fn it_is_stored_without_what_is_missing() {
        let agent = read(&[("session-id", b"s-1")]).unwrap();
        let json = serde_json::to_string(&agent).unwrap();
        assert_eq!(json, r#"{"session":"s-1"}"#);
        assert_eq!(serde_json::from_str::<Agent>(&json).unwrap(), agent);
    }
}
