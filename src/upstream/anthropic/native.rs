//! Requests of callers that speak this API: sent as they are, and their responses relayed as they come.

use std::collections::VecDeque;

use serde::Deserialize;

use super::events::EventTranslator;
use crate::{
    upstream::stream::{AfterEvent, Translator},
    wire::{error::UpstreamError, messages::NativeEvent, part::Part},
};

/// Relays events; usage and finish reason are read from them as from any stream, so that it is charged alike.
#[derive(Default)]
pub(crate) struct NativeTranslator {
    reader: EventTranslator,
    read: VecDeque<Part>,
}

impl Translator for NativeTranslator {
    fn is_finished(&self) -> bool {
        self.reader.is_finished()
    }

    fn on_event(
        &mut self,
        data: &[u8],
        parts: &mut VecDeque<Part>,
    ) -> Result<AfterEvent, UpstreamError> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow, rename = "type")]
            kind: Option<&'a str>,
        }
        let after = self.reader.on_event(data, &mut self.read)?;
        let kind = serde_json::from_slice::<Kind<'_>>(data).ok();
        let kind = kind.and_then(|kind| kind.kind);
        let event = kind.and_then(|kind| NativeEvent::new(kind, data));
        parts.extend(event.map(Part::Native));
        let is_metered = |part: &Part| matches!(part, Part::Usage(_) | Part::Finish { .. });
        parts.extend(self.read.drain(..).filter(is_metered));
        if parts.is_empty() {
            parts.push_back(Part::Silence);
        }
        Ok(after)
    }
}
