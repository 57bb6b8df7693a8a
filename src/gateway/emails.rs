//! Letters of the gateway's, sent as far as a server takes them.

use std::sync::Arc;

use super::Gateway;
use crate::backoffice::mail::Email;

impl Gateway {
    /// Whether the server has taken it. Why it has not is in the log, which says no word of the letter:
    /// there may be a link in it.
    pub async fn send(&self, message: Email) -> bool {
        let Some(mail) = &self.mail else { return false };
        match mail.send(message).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "a letter could not be sent");
                false
            }
        }
    }

    /// Does what a letter needs and sends it while nobody waits, so that the time until the answer tells
    /// nothing of whom it was for.
    pub fn send_later(
        self: &Arc<Self>,
        message: impl Future<Output = Option<Email>> + Send + 'static,
    ) {
        let gateway = self.clone();
        self.tasks.spawn(async move {
            if let Some(message) = message.await {
                gateway.send(message).await;
            }
        });
    }
}
