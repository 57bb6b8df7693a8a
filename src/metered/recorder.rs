//! Writes the events of a stream into its recording, for retries.

use std::sync::Arc;

use bytes::Bytes;

use crate::{
    catalog::Model,
    gateway::retries::{Head, RecordedCall},
    wire::stream_style::StreamStyle,
};

/// Records a stream; does nothing if the call is not recorded.
pub(crate) struct Recorder {
    call: Option<Arc<RecordedCall>>,
    style: StreamStyle,
}

impl Recorder {
    pub(crate) fn new(call: Option<Arc<RecordedCall>>, style: StreamStyle) -> Self {
        Self { call, style }
    }

    pub(crate) fn call(&self) -> Option<&Arc<RecordedCall>> {
        self.call.as_ref()
    }

    /// The call, if it has an idempotency key.
    pub(crate) fn keyed(&self) -> Option<&Arc<RecordedCall>> {
        self.call.as_ref().filter(|call| call.is_keyed())
    }

    /// Makes the stream readable for others.
    pub(crate) fn begin(&self, routed: Option<Arc<Model>>) {
        if let Some(call) = &self.call {
            let stream = Some(self.style.clone());
            call.recording().begin(Head { stream, routed });
        }
    }

    pub(crate) fn event(&self, event: &Bytes) {
        if let Some(call) = &self.call {
            call.recording().write(event);
        }
    }

    /// The stream is complete.
    pub(crate) fn complete(&self) {
        if let Some(call) = &self.call {
            call.recording().complete();
        }
    }

    /// The stream has ended with an error, which is recorded.
    pub(crate) fn failed(&self) {
        if let Some(call) = &self.call {
            call.fail();
        }
    }
}
