//! Settings and state that the portal's pages share.

use super::cookie_secret::CachedSecret;
use crate::{
    backoffice::{Person, Role, Throttle},
    base::keys::Secret,
    catalog::Plan,
    config::{self, RequireSecondFactor},
};

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
    require_second_factor: RequireSecondFactor,
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
            require_second_factor: config.require_second_factor,
            throttle: Throttle::default(),
            cookie_secret: CachedSecret::default(),
        }
    }

    /// Returns the URL of a one-time link. The secret is in the query string, which is never logged.
    pub(crate) fn welcome_url(&self, secret: &Secret) -> Secret {
        let (url, secret) = (&self.url, secret.reveal());
        Secret::new(format!("{url}/portal/welcome?link={secret}"))
    }

    /// The URL of the page on which a person confirms a new email address.
    pub(crate) fn email_url(&self, secret: &Secret) -> Secret {
        let (url, secret) = (&self.url, secret.reveal());
        Secret::new(format!("{url}/portal/settings/email/confirm?link={secret}"))
    }

    /// Whether the person has to turn on two-factor authentication before anything else. For people without a password
    /// the issuer with which they sign in decides.
    pub(crate) fn lacks_second_factor(&self, person: &Person) -> bool {
        let is_required = match self.require_second_factor {
            RequireSecondFactor::None => false,
            RequireSecondFactor::Operators => person.role == Role::Operator,
            RequireSecondFactor::Everyone => true,
        };
        is_required && person.password.is_some() && person.second_factor_at.is_none()
    }

    /// The gateway's host, by which authenticator apps list its codes.
    pub(crate) fn host(&self) -> &str {
        let host = self.origin.split_once("://").map_or("", |(_, host)| host);
        host.rsplit_once(':').map_or(host, |(host, _)| host)
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
