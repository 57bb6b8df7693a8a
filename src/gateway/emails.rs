//! Emails of the gateway: one attempt each, failures are logged.

use std::sync::Arc;

use super::Gateway;
use crate::backoffice::mail::Email;

impl Gateway {
    /// Sends an email and returns whether the mail server accepted it. A failure is logged without any of the
    /// email's content, which may hold a one-time link.
    pub(crate) async fn send(&self, message: Email) -> bool {
        let Some(mail) = &self.mail else { return false };
        match mail.send(message).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%error, "sending an email failed; it is not retried");
                false
            }
        }
    }

    /// Prepares and sends an email in a task of its own, so that the response time does not reveal whether the
    /// address has an account.
    pub(crate) fn send_later(
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
