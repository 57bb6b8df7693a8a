//! What happens when a client leaves before the end of its response.

use std::{fmt, sync::Arc};

use tokio::runtime::Handle;

use super::body::ReceivedBody;
use crate::{
    gateway::{Retries, retries::Recording},
    ledger::{Payer, RequestHash},
};

/// Offers the response of a call to a retry of its request. Part of the request's log line, which knows how the request
/// ended.
pub(crate) struct Departure {
    pub retries: Arc<Retries>,
    pub recording: Arc<Recording>,
    pub payer: Arc<Payer>,
    pub path: &'static str,
    /// Hashed only if the client leaves.
    pub body: ReceivedBody,
}

impl Departure {
    /// The client has left.
    pub(super) fn happened(self) {
        if self.body.is_large() && Handle::try_current().is_ok() {
            tokio::task::spawn_blocking(|| self.offer());
        } else {
            self.offer();
        }
    }

    fn offer(self) {
        let request = RequestHash::of(self.path, self.body.bytes());
        self.retries
            .leave(&self.payer.key_id, request, self.recording);
    }
}

impl fmt::Debug for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Departure(..)")
    }
}
