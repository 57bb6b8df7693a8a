//! In whose words a call is answered, and what is kept of the answer.

use std::time::SystemTime;

use bytes::Bytes;

use crate::{
    base::keys::random_id,
    conversations::{Kept, Record},
    gateway::Gateway,
    prompt::ChatCall,
    wire::{
        chat::{Answer, Bill, Frames, ShowUsage},
        error::Envelope,
        responses::{Events, NewResponse, error_event},
        stream_normalizer::StreamNormalizer,
        stream_writer::StreamWriter,
    },
};

pub enum Form {
    /// `/v1/chat/completions` (SPEC §2.5, §2.6).
    Chat,
    /// `/v1/responses` (SPEC §4.2).
    Response {
        response: Box<NewResponse>,
        /// The conversation that it answers, as JSON.
        input: String,
    },
}

/// What is needed to store an answer.
pub struct Keeping {
    id: String,
    account_id: String,
    input: String,
}

/// How an error is written as the last event of a stream, after so many others.
pub type ErrorWords = fn(&Envelope, u64) -> Bytes;

impl Form {
    /// For an error that no script is left to write.
    pub fn words(&self) -> ErrorWords {
        match self {
            Self::Chat => |envelope, _| Frames::error(envelope),
            Self::Response { .. } => error_event,
        }
    }

    /// What writes a streamed answer, and what stores it where that is wanted.
    pub fn script(self, call: &ChatCall) -> (Box<dyn StreamWriter>, Option<Keeping>) {
        match self {
            Self::Chat => {
                let usage = ShowUsage {
                    at_all: call.include_usage,
                    cached: shows_cached(call),
                };
                let (id, created) = (random_id("chatcmpl-"), now());
                let frames = Frames::new(&id, created, &call.route.requested.id, usage);
                (Box::new(frames), None)
            }
            Self::Response { response, input } => {
                let keeping = Keeping::new(&response, input, call);
                (Box::new(Events::new(*response, now)), keeping)
            }
        }
    }

    /// The body of a whole answer, stored before it is told.
    pub async fn whole(
        self,
        gateway: &Gateway,
        call: &ChatCall,
        answer: &Answer,
        bill: Option<Bill>,
    ) -> Vec<u8> {
        match self {
            Self::Chat => {
                let (id, created) = (random_id("chatcmpl-"), now());
                let model = &call.route.requested.id;
                answer.to_json(&id, created, model, bill, shows_cached(call))
            }
            Self::Response { response, input } => {
                let object = |stored| response.whole(answer, bill, now(), stored).to_string();
                let stored = match Keeping::new(&response, input, call) {
                    Some(keeping) => {
                        let stored = object(true);
                        // Boxed, so that answers which are not stored keep no room for it.
                        let kept = Box::pin(keeping.keep(gateway, stored.clone())).await;
                        kept.then_some(stored)
                    }
                    None => None,
                };
                stored.unwrap_or_else(|| object(false)).into_bytes()
            }
        }
    }
}

impl Keeping {
    fn new(response: &NewResponse, input: String, call: &ChatCall) -> Option<Self> {
        response.echo.store.then(|| Self {
            id: response.id.clone(),
            account_id: call.user.clone(),
            input,
        })
    }

    /// Stores a streamed answer that is complete.
    pub async fn keep_streamed<S: StreamWriter>(
        self,
        gateway: &Gateway,
        shape: &mut StreamNormalizer<S>,
    ) {
        let bill = shape.billed();
        let stored = match shape.writer().to_store(bill) {
            Some(response) => Box::pin(self.keep(gateway, response)).await,
            None => false,
        };
        if !stored {
            shape.writer().not_stored();
        }
    }

    /// Whether it was stored. An answer is given either way: storing is best effort, and the
    /// response says what came of it.
    async fn keep(self, gateway: &Gateway, response: String) -> bool {
        let record = Record {
            id: self.id,
            account_id: self.account_id,
            response,
            input: self.input,
        };
        match gateway.conversations.store(record).await {
            Ok(Kept::Stored) => true,
            Ok(Kept::TooLarge) => false,
            Err(error) => {
                tracing::debug!(%error, "a response was not stored");
                false
            }
        }
    }
}

fn shows_cached(call: &ChatCall) -> bool {
    call.route.requested.has_feature("prompt_caching")
}

/// Unix seconds.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}
