//! What the body of a stream writes by itself: something while there are no events, and the events of a failure.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    chat::Frames,
    error::Envelope,
    messages,
    responses::{NewResponse, failure_events},
};

/// In the form of one API.
#[derive(Clone)]
pub(crate) struct StreamStyle {
    pub error: ErrorWriter,
    /// What is sent while a provider is silent.
    pub keep_alive: &'static [u8],
}

/// Writes the last events of a stream whose task died.
#[derive(Clone)]
pub(crate) enum ErrorWriter {
    Chat,
    Response(Arc<NewResponse>),
    Messages,
}

impl ErrorWriter {
    /// `sent` is the number of events before them.
    pub(crate) fn write(&self, envelope: &Envelope, sent: u64, request_id: &str) -> Bytes {
        match self {
            Self::Chat => Frames::error(envelope),
            Self::Response(response) => {
                let events = failure_events(response, envelope, sent, &[]);
                events.concat().into()
            }
            Self::Messages => messages::error_event(envelope, request_id),
        }
    }
}
