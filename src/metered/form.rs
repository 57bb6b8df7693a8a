//! Writes responses in the form of the API that was called, and stores them for `/v1/responses`.
//!
//! A response that cannot be stored is delivered, marked as not stored.

use std::{sync::Arc, time::SystemTime};

use crate::{
    base::keys::random_id,
    conversations::{Record, StoreOutcome},
    gateway::{Gateway, retries::RecordedCall},
    prompt::ChatCall,
    wire::{
        chat::{Answer, Bill, Frames, ShowUsage},
        messages::{self, NewMessage, ToolIds},
        responses::{Events, NewResponse},
        stream_normalizer::StreamNormalizer,
        stream_style::{ErrorWriter, StreamStyle},
        stream_writer::StreamWriter,
    },
};

/// The API in whose form the response is written.
pub(crate) enum Form {
    /// `/v1/chat/completions` (§2.5, §2.6).
    Chat,
    /// `/v1/responses` (§4.2).
    Response {
        response: Arc<NewResponse>,
        /// The conversation up to this response, as JSON.
        input: String,
    },
    /// `/v1/messages` (§4.9).
    Messages(Box<NewMessage>),
}

/// The data that is stored together with a response.
pub(crate) struct Storing {
    pub id: String,
    account_id: String,
    input: String,
}

/// A comment, which clients ignore.
const COMMENT: &[u8] = b": keep-alive\n\n";

impl Form {
    /// Whether a streamed response starts though the provider is silent.
    pub(crate) fn starts_early(&self) -> bool {
        matches!(self, Self::Messages(_) | Self::Response { .. })
    }

    /// The ID of the response, if it is to be stored for `previous_response_id`.
    pub(crate) fn stored_response(&self) -> Option<String> {
        match self {
            Self::Response { response, .. } => response.echo.store.then(|| response.id.clone()),
            Self::Chat | Self::Messages(_) => None,
        }
    }

    pub(crate) fn stream_style(&self) -> StreamStyle {
        let (error, keep_alive) = match self {
            Self::Chat => (ErrorWriter::Chat, COMMENT),
            Self::Response { response, .. } => (ErrorWriter::Response(response.clone()), COMMENT),
            Self::Messages(_) => (ErrorWriter::Messages, messages::PING),
        };
        StreamStyle { error, keep_alive }
    }

    /// Whether the client of a stream needs events while the provider is silent, and not comments only.
    pub(crate) fn needs_keep_alive_events(&self) -> bool {
        matches!(self, Self::Response { .. })
    }

    /// The writer of a streamed response, and the data to store it with if the request has `store: true`.
    /// `input` are the estimated tokens of the prompt.
    pub(crate) fn stream_writer(
        self,
        call: &ChatCall,
        input: u64,
    ) -> (Box<dyn StreamWriter>, Option<Storing>) {
        match self {
            Self::Chat => {
                let usage = ShowUsage {
                    at_all: call.include_usage,
                    cached: shows_cached(call),
                };
                let (id, created) = (random_id("chatcmpl-"), now());
                let frames = Frames::new(&id, created, call.route.requested_name(), usage);
                (Box::new(frames), None)
            }
            Self::Response { response, input } => {
                let storing = Storing::new(&response, input, call);
                (Box::new(Events::new(response, now)), storing)
            }
            Self::Messages(message) => {
                let model = call.route.requested_name().to_owned();
                let ids = ToolIds::of(&call.messages);
                let events = messages::Events::new(*message, model, ids, input);
                (Box::new(events), None)
            }
        }
    }

    /// The body of a whole response. It is stored before it is returned, because its `store` field shows whether that worked.
    pub(crate) async fn whole(
        self,
        gateway: &Gateway,
        call: &ChatCall,
        answer: &Answer,
        bill: Option<Bill>,
    ) -> Vec<u8> {
        match self {
            Self::Chat => {
                let (id, created) = (random_id("chatcmpl-"), now());
                let model = call.route.requested_name();
                answer.to_json(&id, created, model, bill, shows_cached(call))
            }
            Self::Response { response, input } => {
                let object = |stored| response.whole(answer, bill, now(), stored).to_string();
                let stored = match Storing::new(&response, input, call) {
                    Some(storing) => {
                        let stored = object(true);
                        // Boxed, so that responses that are not stored reserve no memory for it.
                        let was_stored =
                            Box::pin(storing.store(gateway, stored.clone(), None)).await;
                        was_stored.then_some(stored)
                    }
                    None => None,
                };
                stored.unwrap_or_else(|| object(false)).into_bytes()
            }
            Self::Messages(message) => {
                let ids = ToolIds::of(&call.messages);
                message.whole(call.route.requested_name(), answer, ids, bill)
            }
        }
    }
}

impl Storing {
    fn new(response: &NewResponse, input: String, call: &ChatCall) -> Option<Self> {
        response.echo.store.then(|| Self {
            id: response.id.clone(),
            account_id: call.user.clone(),
            input,
        })
    }

    /// Stores a streamed response that is complete, with its events up to the last one, which can be written again.
    pub(crate) async fn store_streamed<S: StreamWriter>(
        &self,
        gateway: &Gateway,
        normalizer: &mut StreamNormalizer<S>,
        recorded: Option<&Arc<RecordedCall>>,
    ) {
        let bill = normalizer.billed();
        let stored = match normalizer.writer().to_store(bill) {
            Some(response) => {
                let events = recorded.and_then(|call| call.to_store(normalizer.ready()));
                Box::pin(self.store(gateway, response, events)).await
            }
            None => false,
        };
        if !stored {
            normalizer.writer().not_stored();
        }
    }

    /// Stores a response; returns whether that worked. The response is delivered either way.
    async fn store(&self, gateway: &Gateway, response: String, events: Option<Arc<str>>) -> bool {
        let record = Record {
            id: self.id.clone(),
            account_id: self.account_id.clone(),
            response,
            input: self.input.clone(),
            events,
        };
        match gateway.conversations.store(record).await {
            Ok(StoreOutcome::Stored) => true,
            Ok(StoreOutcome::TooLarge) => false,
            Err(error) => {
                tracing::debug!(%error, "storing a response failed; it is delivered with `store: false`");
                false
            }
        }
    }
}

impl Storing {
    /// Deletes the stored response, as far as that is possible.
    pub(crate) async fn delete(&self, gateway: &Gateway) {
        let deleted = gateway.conversations.delete(&self.account_id, &self.id);
        if let Err(error) = deleted.await {
            tracing::debug!(%error, "deleting the stored response of a call that was not charged failed");
        }
    }
}

fn shows_cached(call: &ChatCall) -> bool {
    call.route.requested.has_feature("prompt_caching")
}

/// Unix seconds.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
