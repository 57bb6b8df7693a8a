//! A streamed response as a client reads it, and the rules that every stream keeps.

use serde_json::Value;

/// The whole text of a stream.
#[derive(Clone, Debug)]
pub struct Stream {
    pub text: String,
}

impl Stream {
    /// The data of each event, `[DONE]` included. Asserts that there are only `data:` events.
    pub fn events(&self) -> Vec<&str> {
        assert!(
            self.text.is_empty() || self.text.ends_with("\n\n"),
            "{:?}",
            self.text
        );
        let events = self.text.split("\n\n").filter(|event| !event.is_empty());
        events
            .map(|event| {
                assert!(!event.contains('\n'), "one line an event: {event:?}");
                event
                    .strip_prefix("data: ")
                    .unwrap_or_else(|| panic!("not data: {event:?}"))
            })
            .collect()
    }

    pub fn is_done(&self) -> bool {
        self.events().last() == Some(&"[DONE]")
    }

    /// Every event but `[DONE]`.
    pub fn chunks(&self) -> Vec<Value> {
        let events = self.events().into_iter().filter(|event| *event != "[DONE]");
        events
            .map(|event| serde_json::from_str(event).expect("an event is JSON"))
            .collect()
    }

    /// The error event at the end, if there is one.
    pub fn error(&self) -> Option<Value> {
        self.chunks()
            .last()
            .and_then(|chunk| chunk.get("error").cloned())
    }

    /// The text of one choice.
    pub fn content(&self, choice: u64) -> String {
        self.deltas(choice)
            .iter()
            .filter_map(|delta| delta["content"].as_str().map(str::to_owned))
            .collect()
    }

    pub fn deltas(&self, choice: u64) -> Vec<Value> {
        self.choices(choice)
            .into_iter()
            .map(|choice| choice["delta"].clone())
            .collect()
    }

    pub fn finish_reason(&self, choice: u64) -> Option<String> {
        let choices = self.choices(choice);
        let mut reasons = choices
            .iter()
            .filter_map(|choice| choice["finish_reason"].as_str());
        reasons.next_back().map(str::to_owned)
    }

    /// Tool calls assembled as clients do: by index, with their arguments concatenated.
    pub fn tool_calls(&self, choice: u64) -> Vec<(String, String, String)> {
        let mut calls: Vec<(String, String, String)> = Vec::new();
        for delta in self.deltas(choice) {
            for fragment in delta["tool_calls"].as_array().into_iter().flatten() {
                let index = usize::try_from(fragment["index"].as_u64().unwrap()).unwrap();
                if index == calls.len() {
                    assert_eq!(fragment["type"], "function");
                    calls.push((
                        fragment["id"].as_str().unwrap().to_owned(),
                        fragment["function"]["name"].as_str().unwrap().to_owned(),
                        String::new(),
                    ));
                } else {
                    assert!(index < calls.len(), "indices have no gaps: {fragment}");
                    assert_eq!(fragment.get("id"), None, "an id comes once");
                    assert_eq!(fragment["function"].get("name"), None, "a name comes once");
                }
                calls[index]
                    .2
                    .push_str(fragment["function"]["arguments"].as_str().unwrap());
            }
        }
        calls
    }

    pub fn usage(&self) -> Option<Value> {
        self.chunks()
            .iter()
            .find_map(|chunk| chunk.get("usage").cloned())
    }

    fn choices(&self, index: u64) -> Vec<Value> {
        self.chunks()
            .iter()
            .flat_map(|chunk| chunk["choices"].as_array().cloned().unwrap_or_default())
            .filter(|choice| choice["index"] == index)
            .collect()
    }

    /// Asserts §6.1 for a stream that finished.
    #[track_caller]
    pub fn assert_complete(&self, model: &str) {
        assert!(self.is_done(), "ends with [DONE]: {}", self.text);
        self.assert_well_formed(model);
        let chunks = self.chunks();
        let mut indices: Vec<u64> = chunks
            .iter()
            .flat_map(|chunk| chunk["choices"].as_array().cloned().unwrap_or_default())
            .map(|choice| choice["index"].as_u64().unwrap())
            .collect();
        indices.sort_unstable();
        indices.dedup();
        assert!(!indices.is_empty());
        for index in indices {
            let choices = self.choices(index);
            let terminal: Vec<_> = choices
                .iter()
                .filter(|choice| !choice["finish_reason"].is_null())
                .collect();
            assert_eq!(
                terminal.len(),
                1,
                "one terminal chunk for choice {index}: {}",
                self.text
            );
            assert_eq!(
                terminal[0]["delta"],
                serde_json::json!({}),
                "with an empty delta"
            );
            assert_eq!(choices.last(), Some(terminal[0]), "and nothing after it");
        }
    }

    /// Asserts §6.2 for a stream that broke off.
    #[track_caller]
    pub fn assert_interrupted(&self, model: &str) {
        assert!(!self.is_done(), "no [DONE] after a failure: {}", self.text);
        let error = self
            .error()
            .unwrap_or_else(|| panic!("an error event: {}", self.text));
        assert_eq!(error["type"], "upstream_stream_error");
        assert_eq!(error["code"], "stream_interrupted");
        assert!(error["message"].is_string());
        self.assert_well_formed(model);
        for chunk in self.chunks() {
            for choice in chunk["choices"].as_array().into_iter().flatten() {
                assert!(
                    choice["finish_reason"].is_null(),
                    "not finished: {}",
                    self.text
                );
            }
        }
    }

    /// Asserts what holds for every stream, however it ended.
    #[track_caller]
    fn assert_well_formed(&self, model: &str) {
        let chunks: Vec<_> = self
            .chunks()
            .into_iter()
            .filter(|chunk| chunk.get("error").is_none())
            .collect();
        let Some(first) = chunks.first() else { return };
        assert!(first["id"].as_str().unwrap().starts_with("chatcmpl-"));
        let mut opened = Vec::new();
        for chunk in &chunks {
            assert_eq!(chunk["object"], "chat.completion.chunk");
            for constant in ["id", "created"] {
                assert_eq!(chunk[constant], first[constant], "{constant} is constant");
            }
            assert_eq!(chunk["model"], model);
            for key in chunk.as_object().unwrap().keys() {
                let known = ["id", "object", "created", "model", "choices", "usage"];
                assert!(
                    known.contains(&key.as_str()),
                    "no key of the provider's: {key}"
                );
            }
            for choice in chunk["choices"].as_array().unwrap() {
                let index = choice["index"].as_u64().unwrap();
                let has_role = choice["delta"].get("role").is_some();
                if opened.contains(&index) {
                    assert!(!has_role, "a role comes once: {chunk}");
                } else {
                    assert_eq!(
                        choice["delta"]["role"], "assistant",
                        "a role comes first: {chunk}"
                    );
                    assert_eq!(opened.len() as u64, index, "choices open in order");
                    opened.push(index);
                }
            }
        }
    }
}
