//! Puts the tool calls of one choice in order.
//!
//! Providers number, name and interleave the fragments of parallel calls in different ways. Clients need one call after
//! the other: fragments of a later call wait until the earlier one is complete, that is, until its arguments are a
//! complete JSON value.

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::{
    base::keys::random_id,
    wire::{
        chat::FinishReason, error::UpstreamError, json_text::JsonText, stream_writer::StreamWriter,
    },
};

/// The most tool calls of one choice; a response with more is malformed.
const MAX_CALLS: usize = 512;
/// The most bytes of arguments of one choice.
const MAX_BYTES: usize = 32 << 20;

#[derive(Default)]
pub(crate) struct Calls {
    all: Vec<Call>,
    /// Index of the call being written; those before it are complete.
    current: usize,
    bytes: usize,
}

/// The part of a tool call that has arrived.
struct Call {
    slot: u32,
    id: Option<String>,
    name: Option<String>,
    arguments: Vec<JsonText>,
    /// Whether its ID and name have been written, which needs the name.
    is_started: bool,
    /// Number of argument fragments written.
    written: usize,
    /// Number of argument fragments at the last check for completeness, to avoid repeating it.
    checked_at: usize,
}

/// A fragment of a call, in the form in which the provider sent it.
pub(crate) struct Fragment {
    pub slot: u32,
    pub id: Option<String>,
    pub name: Option<String>,
    pub arguments: Option<JsonText>,
}

impl Calls {
    pub(crate) fn add(&mut self, fragment: Fragment) -> Result<(), UpstreamError> {
        let number = self.find_or_add(&fragment);
        self.bytes += fragment
            .arguments
            .as_ref()
            .map_or(0, |text| text.as_json().len());
        if number >= MAX_CALLS || self.bytes > MAX_BYTES {
            return Err(UpstreamError::Malformed(
                "too many or too large tool calls".into(),
            ));
        }
        let call = &mut self.all[number];
        if call.id.is_none() {
            call.id = fragment.id;
        }
        if call.name.is_none() {
            call.name = fragment.name;
        }
        call.arguments.extend(fragment.arguments);
        Ok(())
    }

    /// Writes every fragment whose turn has come.
    pub(crate) fn write(
        &mut self,
        choice: u32,
        writer: &mut impl StreamWriter,
        out: &mut Vec<Bytes>,
    ) {
        while let Some(call) = self.all.get_mut(self.current) {
            call.write(choice, self.current, writer, out);
            let another_waits = self.all.len() > self.current + 1;
            if !another_waits || !self.all[self.current].is_complete() {
                return;
            }
            self.current += 1;
        }
    }

    /// Writes all fragments that still wait. A call without arguments gets `{}`, because arguments must be JSON.
    pub(crate) fn finish(
        &mut self,
        choice: u32,
        reason: FinishReason,
        writer: &mut impl StreamWriter,
        out: &mut Vec<Bytes>,
    ) {
        for (number, call) in self.all.iter_mut().enumerate().skip(self.current) {
            if call.arguments.is_empty() && reason == FinishReason::ToolCalls {
                call.arguments.push(JsonText::new("{}"));
            }
            call.write(choice, number, writer, out);
        }
        self.current = self.all.len();
    }

    pub(crate) fn has_unnamed(&self) -> bool {
        self.all.iter().any(|call| call.name.is_none())
    }

    /// The index of the call that a fragment belongs to; adds the call if it is new.
    ///
    /// It is the latest call of the fragment's slot, unless the fragment has another ID and a name: some servers give
    /// every parallel call the slot 0 and distinguish them by ID only.
    fn find_or_add(&mut self, fragment: &Fragment) -> usize {
        let latest = self.all.iter().rposition(|call| call.slot == fragment.slot);
        if let Some(number) = latest {
            let known = self.all[number].id.as_deref();
            let another =
                matches!((known, fragment.id.as_deref()), (Some(known), Some(id)) if known != id);
            if !another || fragment.name.is_none() {
                return number;
            }
        }
        self.all.push(Call {
            slot: fragment.slot,
            id: None,
            name: None,
            arguments: Vec::new(),
            is_started: false,
            written: 0,
            checked_at: 0,
        });
        self.all.len() - 1
    }
}

impl Call {
    fn write(
        &mut self,
        choice: u32,
        number: usize,
        writer: &mut impl StreamWriter,
        out: &mut Vec<Bytes>,
    ) {
        if let Some(name) = self.name.as_deref().filter(|_| !self.is_started) {
            let id = self.id.get_or_insert_with(|| random_id("call_"));
            writer.tool_call(choice, number, id, name, out);
            self.is_started = true;
        }
        if self.is_started {
            for arguments in &self.arguments[self.written..] {
                writer.tool_arguments(choice, number, arguments, out);
            }
            self.written = self.arguments.len();
        }
    }

    /// Whether its arguments are complete JSON. Checked only if another call waits.
    fn is_complete(&mut self) -> bool {
        if !self.is_started || self.checked_at == self.arguments.len() {
            return false;
        }
        let arguments = JsonText::concat(&self.arguments).decode();
        let is_complete = serde_json::from_str::<IgnoredAny>(&arguments).is_ok();
        self.checked_at = self.arguments.len();
        is_complete
    }
}
