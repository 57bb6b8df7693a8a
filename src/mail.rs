//! Letters by SMTP, where the operator has said through which server.

use std::{fmt, time::Duration};

use lettre::{
    AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor,
    message::{Mailbox, header::ContentType},
};

use crate::{auth::Secret, config, outgoing::chain};

/// How long a server may take for each of its answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is sent to one reader.
#[derive(Clone, Debug)]
pub struct Letter {
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
            server: server(&config.url)?,
            from: config.from.clone(),
        })
    }

    pub async fn send(&self, letter: Letter) -> Result<(), MailError> {
        let to = letter.to.parse::<Mailbox>();
        let to =
            to.map_err(|error| MailError(format!("nobody can be written to there: {error}")))?;
        let message = Message::builder()
            .from(self.from.clone())
            .to(to)
            .subject(letter.subject)
            .header(ContentType::TEXT_PLAIN)
            .body(letter.text);
        let message = message.map_err(|error| MailError(chain(&error)))?;
        let sent = self.server.send(message).await;
        sent.map(drop).map_err(|error| MailError(chain(&error)))
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

/// The server that a URL names; what is wrong with it, without the URL, which may hold a password.
pub fn server(url: &Secret) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.reveal());
    let builder = builder.map_err(|error| chain(&error))?;
    Ok(builder.timeout(Some(PATIENCE)).build())
}
