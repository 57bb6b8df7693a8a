//! Sends emails through the SMTP server of the configuration's `[mail]` section.
//!
//! A failed email is not queued: `send` returns the reason within 20 seconds, and the caller decides about a retry.

use std::{fmt, time::Duration};

use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor,
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
};
use tokio::time::timeout;

use crate::{base::keys::random_id, config, net::connect::chain};

pub(crate) mod templates;

/// Timeout for sending one email.
const TIMEOUT: Duration = Duration::from_secs(20);

/// An email to one recipient.
#[derive(Clone, Debug)]
pub(crate) struct Email {
    pub to: String,
    pub subject: String,
    /// Plain text, in lines.
    pub text: String,
}

/// Why an email was not sent, for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MailError(String);

/// The SMTP client.
pub struct Mail {
    server: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
}

impl fmt::Debug for Mail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mail(from {})", self.from)
    }
}

impl Mail {
    pub(crate) fn new(config: &config::Mail) -> Result<Self, String> {
        Ok(Self {
            server: config::mail_server(&config.url)?,
            from: config.from.clone(),
        })
    }

    pub(crate) async fn send(&self, message: Email) -> Result<(), MailError> {
        let to = message.to.parse::<Address>();
        let to =
            to.map_err(|error| MailError(format!("the recipient's address is invalid: {error}")))?;
        let id = format!("<{}@{}>", random_id(""), self.from.email.domain());
        // Keeps mail servers from sending out-of-office replies.
        let auto_submitted = HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".into(),
        );
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(message.subject)
            .message_id(Some(id))
            .raw_header(auto_submitted)
            .header(ContentType::TEXT_PLAIN)
            .body(message.text);
        let message = message.map_err(|error| MailError(chain(&error)))?;
        match timeout(TIMEOUT, self.server.send(message)).await {
            Ok(sent) => sent.map(drop).map_err(|error| MailError(chain(&error))),
            Err(_) => Err(MailError("the SMTP server timed out".into())),
        }
    }

    /// Connects and signs in to the server; sends nothing.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        match self.server.test_connection().await {
            Ok(true) => Ok(format!("emails are sent from {}", self.from)),
            Ok(false) => Err("the server accepts no emails".into()),
            Err(error) => Err(chain(&error)),
        }
    }
}

/// Whether the text is a plain email address, without a display name or a list around it.
pub(crate) fn is_address(text: &str) -> bool {
    text.parse::<Address>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn only_plain_addresses_are_accepted() {
        assert!(is_address("ada@example.com"));
        for other in [
            "",
            "ada",
            "a<ada@example.com>",
            "<ada@example.com>",
            "a@b,c@d",
        ] {
            assert!(!is_address(other), "{other}");
        }
    }
}
