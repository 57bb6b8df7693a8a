//! What the portal's pages share.

use crate::{backoffice::Throttle, base::keys::Secret, catalog::Plan, config};

pub struct Portal {
    pub enabled: bool,
    /// Whether the operator's console is there too.
    pub console: bool,
    /// Where callers and browsers reach the gateway.
    pub url: String,
    /// The scheme and host of that, as browsers name where a form came from.
    pub origin: String,
    /// Whether anyone may make an account.
    pub sign_up_open: bool,
    /// The plan that a new account begins with.
    pub sign_up_plan: Plan,
    pub throttle: Throttle,
}

impl Portal {
    pub fn new(config: &config::Portal, url: &str) -> Self {
        Self {
            enabled: config.enabled,
            console: config.console,
            url: url.to_owned(),
            origin: origin(url),
            sign_up_open: config.sign_up_open,
            sign_up_plan: config.sign_up_plan,
            throttle: Throttle::default(),
        }
    }

    /// Where a one-time link leads. The secret is in the query, which is in no log.
    pub fn welcome_url(&self, secret: &Secret) -> Secret {
        let (url, secret) = (&self.url, secret.reveal());
        Secret::new(format!("{url}/portal/welcome?link={secret}"))
    }

    /// Whether browsers come by TLS, so that cookies may ask for it.
    pub fn is_secure(&self) -> bool {
        self.origin.starts_with("https://")
    }
}

fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let host = rest.split('/').next().unwrap_or(rest);
    format!("{scheme}://{}", host.to_lowercase())
}
