//! Settings and state that the portal's pages share.

use super::cookie_secret::CachedSecret;
use crate::{backoffice::Throttle, base::keys::Secret, catalog::Plan, config};

pub struct Portal {
    pub enabled: bool,
    /// Whether the operator console is served too.
    pub console: bool,
    /// URL at which callers and browsers reach the gateway.
    pub url: String,
    /// Scheme and host of `url`, in lower case: the `Origin` header of the portal's own forms.
    pub origin: String,
    /// Whether anyone may create an account.
    pub sign_up_open: bool,
    /// Plan of a new account.
    pub sign_up_plan: Plan,
    /// Credit of an account that signs up.
    pub starter_credit: Option<config::StarterCredit>,
    /// The seller's name and address on receipts and statements, in lines.
    pub seller: Vec<String>,
    pub throttle: Throttle,
    pub(super) cookie_secret: CachedSecret,
}

impl Portal {
    pub(crate) fn new(config: &config::Portal, url: &str) -> Self {
        Self {
            enabled: config.enabled,
            console: config.console,
            url: url.to_owned(),
            origin: origin(url),
            sign_up_open: config.sign_up_open,
            sign_up_plan: config.sign_up_plan,
            starter_credit: config.starter_credit,
            seller: config.seller.clone(),
            throttle: Throttle::default(),
            cookie_secret: CachedSecret::default(),
        }
    }

    /// Returns the URL of a one-time link. The secret is in the query string, which is never logged.
    pub(crate) fn welcome_url(&self, secret: &Secret) -> Secret {
        let (url, secret) = (&self.url, secret.reveal());
        Secret::new(format!("{url}/portal/welcome?link={secret}"))
    }

    /// Returns whether browsers connect over TLS, so that cookies can be marked `Secure`.
    pub(crate) fn is_secure(&self) -> bool {
        self.origin.starts_with("https://")
    }
}

fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let host = rest.split('/').next().unwrap_or(rest);
    format!("{scheme}://{}", host.to_lowercase())
}
