//! The tool calls of a turn that wait for their results.

use std::collections::HashSet;

use super::blocks::{Place, wrong};
use crate::wire::error::GatewayError;

/// The calls of the assistant's last turn. They are looked up by ID, because a turn may be as long as a body allows.
#[derive(Default)]
pub(super) struct OpenCalls {
    /// The message with the last of them.
    at: usize,
    /// The IDs in order, as the caller wrote them.
    ids: Vec<String>,
    without_result: HashSet<String>,
}

impl OpenCalls {
    pub(super) fn is_complete(&self) -> bool {
        self.without_result.is_empty()
    }

    pub(super) fn add(&mut self, at: usize, id: String, place: Place) -> Result<(), GatewayError> {
        self.at = at;
        if !self.without_result.insert(id.clone()) {
            let path = format!("{place}.id");
            return Err(wrong(path, "`tool_use` ids must be unique."));
        }
        self.ids.push(id);
        Ok(())
    }

    pub(super) fn close(&mut self, id: &str, place: Place) -> Result<(), GatewayError> {
        if self.without_result.remove(id) {
            return Ok(());
        }
        if self.ids.iter().any(|known| known == id) {
            let reason = format!(
                "each `tool_use` must have a single result. Found multiple `tool_result` blocks with id: {id}."
            );
            return Err(wrong(place, reason));
        }
        // Clients recognise this error, and the next one, by these words.
        let reason = format!(
            "unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a \
             corresponding `tool_use` block in the previous message."
        );
        Err(wrong(place, reason))
    }

    pub(super) fn check(&self) -> Result<(), GatewayError> {
        if self.is_complete() {
            return Ok(());
        }
        let ids = self.ids.iter().map(String::as_str);
        let ids: Vec<_> = ids.filter(|id| self.without_result.contains(*id)).collect();
        let path = format!("messages.{}", self.at);
        let reason = format!(
            "`tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must \
             have a corresponding `tool_result` block in the next message.",
            ids.join(", ")
        );
        Err(wrong(path, reason))
    }
}
