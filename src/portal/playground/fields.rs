//! The fields of the playground's form, and the chat request that they make.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The most models that answer one message.
pub(crate) const MAX_MODELS: usize = 4;

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
    /// Not empty if another model is asked the last message of the conversation, in place of `message`.
    pub compare: String,
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
    /// The request ID of an answer, by which its charge is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// A message and the answers of the models that were asked it.
#[derive(Clone, Copy)]
pub(crate) struct Exchange<'a> {
    pub question: &'a str,
    pub answers: &'a [Turn],
}

/// The conversation, message by message.
pub(crate) fn exchanges(turns: &[Turn]) -> impl Iterator<Item = Exchange<'_>> {
    let each = turns.chunk_by(|_, next| next.role == Speaker::Assistant);
    each.filter_map(|turns| match turns {
        [first, answers @ ..] if first.role == Speaker::User => Some(Exchange {
            question: &first.content,
            answers,
        }),
        _ => None,
    })
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
            request: None,
        }
    }

    pub(crate) fn of_model(model: &str, content: String, request: String) -> Self {
        Self {
            role: Speaker::Assistant,
            content,
            model: Some(model.to_owned()),
            request: Some(request),
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

    pub(crate) fn is_compare(&self) -> bool {
        !self.compare.is_empty()
    }

    /// The body of the chat request that asks for the next answer, or what is wrong with a field. Ranges are checked by
    /// the endpoint.
    pub(crate) fn request(&self, turns: &[Turn]) -> Result<Value, String> {
        let mut before: Vec<_> = exchanges(turns).collect();
        let last = before.pop_if(|_| self.is_compare());
        if last.is_some_and(|last| last.answers.len() >= MAX_MODELS) {
            return Err(format!("At most {MAX_MODELS} models answer a message."));
        }
        let message = match last {
            Some(last) => last.question,
            None => self.message.trim(),
        };
        if message.is_empty() {
            return Err("Write a message first.".into());
        }
        let mut messages = Vec::with_capacity(turns.len() + 2);
        if !self.system.trim().is_empty() {
            messages.push(json!({ "role": "system", "content": self.system.trim() }));
        }
        for Exchange { question, answers } in before {
            // A model goes on with its own answers, or with the first one where it has none.
            let own = |turn: &&Turn| turn.model.as_ref() == Some(&self.model);
            let answer = answers.iter().find(own).or(answers.first());
            if let Some(answer) = answer.filter(|answer| !answer.content.is_empty()) {
                messages.push(json!({ "role": "user", "content": question }));
                messages.push(json!({ "role": "assistant", "content": answer.content }));
            }
        }
        messages.push(json!({ "role": "user", "content": message }));
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
        let answer =
            |model: &str, text: &str| Turn::of_model(model, text.into(), format!("req_{model}"));
        let turns = [Turn::of_user("Hello"), answer("svc-2", "Hi")];
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
    fn a_compared_model_is_asked_the_last_message_and_goes_on_with_its_own_answers() {
        let answer = |model: &str, text: &str| Turn::of_model(model, text.into(), "req_1".into());
        let turns = [
            Turn::of_user("One"),
            answer("svc-1", "1 of svc-1"),
            answer("svc-2", "1 of svc-2"),
            Turn::of_user("Two"),
            answer("svc-1", ""),
            Turn::of_user("Three"),
            answer("svc-1", "3 of svc-1"),
        ];
        let asked = |model: &str, compare: &str, turns: &[Turn]| {
            let fields = Fields {
                model: model.into(),
                message: "Four".into(),
                compare: compare.into(),
                ..Fields::default()
            };
            let body = fields.request(turns)?;
            let messages = body["messages"].as_array().unwrap().clone();
            let texts = messages.iter().map(|one| one["content"].as_str().unwrap());
            Ok::<_, String>(texts.collect::<Vec<_>>().join(", "))
        };
        let of = |model, compare| asked(model, compare, &turns).unwrap();
        assert_eq!(of("svc-2", "on"), "One, 1 of svc-2, Three");
        assert_eq!(of("svc-3", "on"), "One, 1 of svc-1, Three");
        assert_eq!(of("svc-2", ""), "One, 1 of svc-2, Three, 3 of svc-1, Four");
        // Without a conversation there is nothing to compare.
        assert_eq!(asked("svc-1", "on", &[]).unwrap(), "Four");
        let mut many = vec![Turn::of_user("One")];
        many.extend((0..MAX_MODELS).map(|_| answer("svc-1", "1")));
        let refused = asked("svc-2", "on", &many).unwrap_err();
        assert_eq!(refused, "At most 4 models answer a message.");
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
