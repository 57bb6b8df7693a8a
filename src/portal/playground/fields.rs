//! The fields of the playground's form, and the chat request that they make.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The form as the browser sent it: every field is text, and empty if it was left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Fields {
    pub model: String,
    pub system: String,
    pub message: String,
    pub temperature: String,
    pub top_p: String,
    pub max_tokens: String,
    pub seed: String,
    /// A stop sequence on each line.
    pub stop: String,
    pub reasoning_effort: String,
    pub json: String,
    /// The turns so far, as JSON.
    pub conversation: String,
    pub once: String,
}

/// A message of the conversation so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Turn {
    pub role: Speaker,
    pub content: String,
    /// The model of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Speaker {
    User,
    Assistant,
}

impl Turn {
    pub(crate) fn of_user(content: &str) -> Self {
        Self {
            role: Speaker::User,
            content: content.to_owned(),
            model: None,
        }
    }

    pub(crate) fn of_model(model: &str, content: String) -> Self {
        Self {
            role: Speaker::Assistant,
            content,
            model: Some(model.to_owned()),
        }
    }
}

impl Fields {
    /// The turns so far, or what is wrong with them.
    pub(crate) fn turns(&self) -> Result<Vec<Turn>, String> {
        if self.conversation.is_empty() {
            return Ok(Vec::new());
        }
        serde_json::from_str(&self.conversation)
            .map_err(|_| "The conversation could not be read. Start a new one.".into())
    }

    /// The body of the chat request that asks for the next answer, or what is wrong with a field. Ranges are checked by
    /// the endpoint.
    pub(crate) fn request(&self, turns: &[Turn]) -> Result<Value, String> {
        if self.message.trim().is_empty() {
            return Err("Write a message first.".into());
        }
        let mut messages = Vec::with_capacity(turns.len() + 2);
        if !self.system.trim().is_empty() {
            messages.push(json!({ "role": "system", "content": self.system.trim() }));
        }
        let before = turns.iter().filter(|turn| !turn.content.is_empty());
        messages.extend(before.map(|turn| json!({ "role": turn.role, "content": turn.content })));
        messages.push(json!({ "role": "user", "content": self.message.trim() }));
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        body.insert("messages".into(), Value::Array(messages));
        let decimal = "a number, such as 0.7";
        let whole = "a whole number";
        let settings = [
            (
                "temperature",
                number::<f64>("Temperature", &self.temperature, decimal)?,
            ),
            ("top_p", number::<f64>("Top P", &self.top_p, decimal)?),
            (
                "max_tokens",
                number::<u32>("Max tokens", &self.max_tokens, whole)?,
            ),
            ("seed", number::<i64>("Seed", &self.seed, whole)?),
            ("stop", self.stops()),
            ("reasoning_effort", text(&self.reasoning_effort)),
            ("response_format", self.format()),
        ];
        for (name, value) in settings {
            if let Some(value) = value {
                body.insert(name.into(), value);
            }
        }
        Ok(Value::Object(body))
    }

    fn stops(&self) -> Option<Value> {
        let lines = self.stop.lines().filter(|line| !line.is_empty());
        let stops: Vec<_> = lines.collect();
        (!stops.is_empty()).then(|| json!(stops))
    }

    fn format(&self) -> Option<Value> {
        (!self.json.is_empty()).then(|| json!({ "type": "json_object" }))
    }
}

fn text(field: &str) -> Option<Value> {
    let field = field.trim();
    (!field.is_empty()).then(|| json!(field))
}

fn number<T: FromStr + Serialize>(
    name: &str,
    field: &str,
    what: &str,
) -> Result<Option<Value>, String> {
    let field = field.trim();
    if field.is_empty() {
        return Ok(None);
    }
    let wrong = || format!("{name} must be {what}.");
    let parsed = field.parse::<T>().map_err(|_| wrong())?;
    // JSON has no NaN and no infinity.
    match json!(parsed) {
        Value::Null => Err(wrong()),
        value => Ok(Some(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_conversation_and_the_fields_that_were_filled_in() {
        let fields = Fields {
            model: "svc-1".into(),
            system: " Be brief. ".into(),
            message: " And now? ".into(),
            temperature: "0.5".into(),
            max_tokens: " 64 ".into(),
            stop: "END\n\nSTOP\r\n".into(),
            json: "on".into(),
            ..Fields::default()
        };
        let turns = [
            Turn::of_user("Hello"),
            Turn::of_model("svc-2", "Hi".to_owned()),
        ];
        assert_eq!(
            fields.request(&turns).unwrap(),
            json!({
                "model": "svc-1",
                "messages": [
                    { "role": "system", "content": "Be brief." },
                    { "role": "user", "content": "Hello" },
                    { "role": "assistant", "content": "Hi" },
                    { "role": "user", "content": "And now?" },
                ],
                "temperature": 0.5,
                "max_tokens": 64,
                "stop": ["END", "STOP"],
                "response_format": { "type": "json_object" },
            })
        );
        let written = serde_json::to_string(&turns).unwrap();
        let read = Fields {
            conversation: written,
            ..fields
        };
        assert_eq!(read.turns().unwrap(), turns);
    }

    #[test]
    fn a_field_that_is_no_number_is_named() {
        let message = || "Hello".to_owned();
        for (fields, said) in [
            (Fields::default(), "Write a message first."),
            (
                Fields {
                    message: message(),
                    temperature: "NaN".into(),
                    ..Fields::default()
                },
                "Temperature must be a number, such as 0.7.",
            ),
            (
                Fields {
                    message: message(),
                    max_tokens: "-1".into(),
                    ..Fields::default()
                },
                "Max tokens must be a whole number.",
            ),
        ] {
            assert_eq!(fields.request(&[]).unwrap_err(), said);
        }
        let forged = Fields {
            conversation: r#"[{"role":"system","content":""}]"#.into(),
            ..Fields::default()
        };
        assert!(forged.turns().is_err());
    }
}
