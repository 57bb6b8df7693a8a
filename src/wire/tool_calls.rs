//! The tool calls of one choice, put in order.
//!
//! Providers number, name and interleave the fragments of parallel calls as they please. Clients
//! want one call after the other: what arrives for a later call waits until the earlier one is
//! over, which is when its arguments are a whole JSON value.

use bytes::Bytes;
use serde::de::IgnoredAny;

use crate::{
    base::keys::random_id,
    wire::{chat::FinishReason, error::UpstreamError, json_text::JsonText, script::Script},
};

/// The most tool calls one choice may make; more are a provider gone wrong.
const MAX_CALLS: usize = 512;
/// The most that the arguments of one choice may come to.
const MAX_BYTES: usize = 32 << 20;

#[derive(Default)]
pub struct Calls {
    all: Vec<Call>,
    /// The one that is being written; those before it are over.
    current: usize,
    bytes: usize,
}

/// A tool call as far as it has been seen.
struct Call {
    slot: u32,
    id: Option<String>,
    name: Option<String>,
    arguments: Vec<JsonText>,
    /// Its ID and name have been written: both were known.
    begun: bool,
    /// How many fragments of its arguments have been written.
    written: usize,
    /// With how many fragments it was last found to be unfinished.
    unfinished_at: usize,
}

/// A fragment of a call, as a provider sent it.
pub struct Fragment {
    pub slot: u32,
    pub id: Option<String>,
    pub name: Option<String>,
    pub arguments: Option<JsonText>,
}

impl Calls {
    pub fn add(&mut self, fragment: Fragment) -> Result<(), UpstreamError> {
        let number = self.find_or_begin(&fragment);
        self.bytes += fragment
            .arguments
            .as_ref()
            .map_or(0, |text| text.as_json().len());
        if number >= MAX_CALLS || self.bytes > MAX_BYTES {
            return Err(UpstreamError::Malformed(
                "more tool calls than can be meant".into(),
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

    /// Writes what can be written by now.
    pub fn write(&mut self, choice: u32, script: &mut impl Script, out: &mut Vec<Bytes>) {
        while let Some(call) = self.all.get_mut(self.current) {
            call.write(choice, self.current, script, out);
            let another_waits = self.all.len() > self.current + 1;
            if !another_waits || !self.all[self.current].is_over() {
                return;
            }
            self.current += 1;
        }
    }

    /// Writes everything that still waits. A call without arguments is one with none, and still
    /// JSON.
    pub fn finish(
        &mut self,
        choice: u32,
        reason: FinishReason,
        script: &mut impl Script,
        out: &mut Vec<Bytes>,
    ) {
        for (number, call) in self.all.iter_mut().enumerate().skip(self.current) {
            if call.arguments.is_empty() && reason == FinishReason::ToolCalls {
                call.arguments.push(JsonText::new("{}"));
            }
            call.write(choice, number, script, out);
        }
        self.current = self.all.len();
    }

    pub fn has_nameless(&self) -> bool {
        self.all.iter().any(|call| call.name.is_none())
    }

    /// Our number for the call that a fragment belongs to.
    ///
    /// It is the latest call in the same slot, unless the fragment brings another ID: some servers
    /// give every parallel call the slot 0 and tell them apart by their IDs alone.
    fn find_or_begin(&mut self, fragment: &Fragment) -> usize {
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
            begun: false,
            written: 0,
            unfinished_at: 0,
        });
        self.all.len() - 1
    }
}

impl Call {
    fn write(
        &mut self,
        choice: u32,
        number: usize,
        script: &mut impl Script,
        out: &mut Vec<Bytes>,
    ) {
        if let Some(name) = self.name.as_deref().filter(|_| !self.begun) {
            let id = self.id.get_or_insert_with(|| random_id("call_"));
            script.tool_call(choice, number, id, name, out);
            self.begun = true;
        }
        if self.begun {
            for arguments in &self.arguments[self.written..] {
                script.tool_arguments(choice, number, arguments, out);
            }
            self.written = self.arguments.len();
        }
    }

    /// Whether its arguments are whole. Asked only when another call waits for that.
    fn is_over(&mut self) -> bool {
        if !self.begun || self.unfinished_at == self.arguments.len() {
            return false;
        }
        let arguments = JsonText::concat(&self.arguments).decode();
        let is_over = serde_json::from_str::<IgnoredAny>(&arguments).is_ok();
        self.unfinished_at = self.arguments.len();
        is_over
    }
}
