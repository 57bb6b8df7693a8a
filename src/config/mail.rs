//! The `[mail]` section: the SMTP server that sends emails.

use std::time::Duration;

use lettre::{AsyncSmtpTransport, Tokio1Executor, message::Mailbox};

use super::values::{Environment, store_url};
use crate::{
    base::{
        checked_toml::{Section, as_text},
        keys::Secret,
    },
    net::connect::chain,
};

/// Timeout of each SMTP command.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Mail {
    /// A secret, because it may contain a password.
    pub url: Secret,
    /// Sender of every email.
    pub from: Mailbox,
}

/// Reads the section; call it only if the section exists. `None` if a required setting is missing or unusable.
pub(crate) fn mail(mut section: Section, environment: &Environment) -> Option<Mail> {
    let expected = "a URL, e.g. `smtps://user:password@smtp.example.com`; better under `url_env`";
    let url = store_url(&mut section, expected, environment).map(Secret::new);
    match &url {
        None => section.mistake("url", &format!("is missing; expected {expected}")),
        Some(url) => {
            if let Err(why) = mail_server(url) {
                section.mistake("url", &format!("cannot be used: {why}"));
            }
        }
    }
    let expected = "an address, e.g. `Example AI <noreply@example.com>`";
    let from = section.required("from", expected, |value| as_text(value)?.parse().ok());
    section.finish();
    Some(Mail {
        url: url?,
        from: from?,
    })
}

/// The SMTP transport for a URL. An error does not repeat the URL, which may contain a password.
pub(crate) fn mail_server(url: &Secret) -> Result<AsyncSmtpTransport<Tokio1Executor>, String> {
    let builder = AsyncSmtpTransport::<Tokio1Executor>::from_url(url.reveal());
    let builder = builder.map_err(|error| chain(&error))?;
    Ok(builder.timeout(Some(TIMEOUT)).build())
}
