//! Parses `[[sim …]]` directives, which control the simulator (docs/SIMULATOR.md).

use std::time::Duration;

use serde_json::Value;

use crate::wire::chat::FinishReason;

const OPENING: &str = "[[sim ";
/// How many unknown directives are listed in the response.
const MAX_UNKNOWN: usize = 8;

/// What the response should be like.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Directives {
    pub tokens: Option<u32>,
    /// Delay before each chunk.
    pub delay: Duration,
    /// Delay before the response begins.
    pub first: Duration,
    pub tools: Vec<(String, Value)>,
    pub status: Option<u16>,
    pub drop_after: Option<usize>,
    pub finish: Option<FinishReason>,
    pub no_usage: bool,
    pub cached: u32,
    pub cache_write: u32,
    pub cache_write_1h: u32,
    pub reasoning: u32,
    /// Unknown or invalid directives, which the response lists.
    pub unknown: Vec<String>,
}

impl Directives {
    pub(crate) fn read(text: &str) -> Self {
        let mut directives = Self::default();
        let mut rest = text;
        while let Some(start) = rest.find(OPENING) {
            rest = directives.read_one(&rest[start + OPENING.len()..]);
        }
        directives
    }

    /// Parses up to the closing brackets; returns the text after them.
    fn read_one<'a>(&mut self, mut rest: &'a str) -> &'a str {
        loop {
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix("]]") {
                return after;
            }
            let end = rest.find(|c: char| c.is_whitespace()).unwrap_or(rest.len());
            let end = rest[..end].find("]]").unwrap_or(end);
            if end == 0 {
                return rest; // end of the text, without closing brackets
            }
            let (word, after) = rest.split_at(end);
            rest = after;
            if let Some(name) = word.strip_prefix("tool=") {
                let (arguments, after) = leading_json(rest);
                self.tools.push((name.to_owned(), arguments));
                rest = after;
            } else if self.set(word).is_none() && self.unknown.len() < MAX_UNKNOWN {
                self.unknown.push(word.to_owned());
            }
        }
    }

    fn set(&mut self, word: &str) -> Option<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "tokens" => self.tokens = Some(count(value)?),
            "delay_ms" => self.delay = milliseconds(value)?,
            "first_ms" => self.first = milliseconds(value)?,
            "status" => {
                self.status = Some(value.parse().ok().filter(|s| (400..=599).contains(s))?);
            }
            "drop_after" => self.drop_after = Some(value.parse().ok()?),
            "finish" => {
                self.finish = Some(match value {
                    "stop" => FinishReason::Stop,
                    "length" => FinishReason::Length,
                    "content_filter" => FinishReason::ContentFilter,
                    _ => return None,
                });
            }
            "no_usage" if value.is_empty() => self.no_usage = true,
            "cached" => self.cached = count(value)?,
            "cache_write" => self.cache_write = count(value)?,
            "cache_write_1h" => self.cache_write_1h = count(value)?,
            "reasoning" => self.reasoning = count(value)?,
            _ => return None,
        }
        Some(())
    }
}

/// A number of tokens: at most a million, so that sums cannot overflow.
fn count(value: &str) -> Option<u32> {
    value.parse().ok().filter(|count| *count <= 1_000_000)
}

/// A delay of at most ten minutes.
fn milliseconds(value: &str) -> Option<Duration> {
    let milliseconds = value.parse().ok().filter(|ms| *ms <= 600_000)?;
    Some(Duration::from_millis(milliseconds))
}

/// The JSON object at the beginning of a text (an empty one if there is none), and the text after it.
fn leading_json(text: &str) -> (Value, &str) {
    let empty = Value::Object(serde_json::Map::new());
    let trimmed = text.trim_start();
    if !trimmed.starts_with('{') {
        return (empty, text);
    }
    let mut values = serde_json::Deserializer::from_str(trimmed).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => (value, &trimmed[values.byte_offset()..]),
        _ => (empty, text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn directives_are_found_anywhere_in_the_text() {
        let read =
            Directives::read("Hi [[sim tokens=200 delay_ms=20 first_ms=300]] and [[sim cached=5]]");
        assert_eq!(read.tokens, Some(200));
        assert_eq!((read.delay.as_millis(), read.first.as_millis()), (20, 300));
        assert_eq!(read.cached, 5);
    }

    #[test]
    fn tools_bring_their_arguments() {
        let read = Directives::read(
            r#"[[sim tool=a {"x":[[1]]}]][[sim tool=b]][[sim tool=c {} no_usage]]"#,
        );
        let expected = [
            ("a", json!({"x": [[1]]})),
            ("b", json!({})),
            ("c", json!({})),
        ]
        .map(|(n, v)| (n.to_owned(), v));
        assert_eq!(read.tools, expected);
        assert!(read.no_usage);
    }

    #[test]
    fn unknown_directives_are_listed() {
        assert_eq!(
            Directives::read("[[sim tokens=many speed=9]]").unknown,
            ["tokens=many", "speed=9"]
        );
        assert_eq!(Directives::read("[[sim tokens=5").tokens, Some(5));
        assert_eq!(Directives::read("nothing here ]]"), Directives::default());
        let endless = format!("[[sim {}", "a ".repeat(200_000));
        assert_eq!(Directives::read(&endless).unknown.len(), MAX_UNKNOWN);
    }
}
