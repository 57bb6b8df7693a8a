//! Letters by SMTP, where the operator has said through which server.

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

pub mod templates;

/// How long a letter may take in all.
const LONGEST: Duration = Duration::from_secs(20);

/// What is sent to one reader.
#[derive(Clone, Debug)]
pub struct Email {
    pub to: String,
    pub subject: String,
    /// Plain text, in lines.
    pub text: String,
}

/// Why a letter was not sent, for the log.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MailError(String);

/// The way letters go.
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
    pub fn new(config: &config::Mail) -> Result<Self, String> {
        Ok(Self {
            server: config::mail_server(&config.url)?,
            from: config.from.clone(),
        })
    }

    pub async fn send(&self, message: Email) -> Result<(), MailError> {
        let to = message.to.parse::<Address>();
        let to =
            to.map_err(|error| MailError(format!("nobody can be written to there: {error}")))?;
        let id = format!("<{}@{}>", random_id(""), self.from.email.domain());
        // Nobody's absence is to be told to us.
        let by_nobody = HeaderValue::new(
            HeaderName::new_from_ascii_str("Auto-Submitted"),
            "auto-generated".into(),
        );
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(message.subject)
            .message_id(Some(id))
            .raw_header(by_nobody)
            .header(ContentType::TEXT_PLAIN)
            .body(message.text);
        let message = message.map_err(|error| MailError(chain(&error)))?;
        match timeout(LONGEST, self.server.send(message)).await {
            Ok(sent) => sent.map(drop).map_err(|error| MailError(chain(&error))),
            Err(_) => Err(MailError("the server takes too long".into())),
        }
    }

    /// Says hello to the server and nothing else.
    pub async fn probe(&self) -> Result<String, String> {
        match self.server.test_connection().await {
            Ok(true) => Ok(format!("letters are from {}", self.from)),
            Ok(false) => Err("the server takes no letters".into()),
            Err(error) => Err(chain(&error)),
        }
    }
}

/// Whether a letter can be addressed like this: an address alone, and nothing around it.
pub fn is_address(text: &str) -> bool {
    text.parse::<Address>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn a_letter_goes_to_an_address_and_to_nothing_that_has_one_in_it() {
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
