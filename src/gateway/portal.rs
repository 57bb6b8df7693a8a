//! Settings and state that the portal's pages share.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::cookie_secret::CachedSecret;
use crate::{
    backoffice::{Person, Role, Throttle},
    base::keys::Secret,
    catalog::Plan,
    config::{self, RequireSecondFactor},
};

/// The reference of the grant that is an account's starter credit.
pub(crate) const STARTER_CREDIT: &str = "starter-credit";

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
    require_second_factor: RequireSecondFactor,
    pub throttle: Throttle,
    /// The pages that show requests.
    pub(crate) request_pages: RequestPages,
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
            require_second_factor: config.require_second_factor,
            throttle: Throttle::default(),
            request_pages: RequestPages::new(config.enabled, url),
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

/// Most bytes of a request ID in a URL, so that an error body stays short.
const MAX_ID_IN_URL: usize = 256;

/// What a path segment may have as it is.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The URLs of the pages that show requests. Errors name them.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestPages {
    /// `None` if there is no portal.
    base: Option<Arc<str>>,
}

impl RequestPages {
    fn new(enabled: bool, url: &str) -> Self {
        Self {
            base: enabled.then(|| format!("{url}/portal/requests/").into()),
        }
    }

    /// The page of a request, by the ID that is stored of it. `None` without a portal, and for IDs that are too long or
    /// cannot be part of a path.
    pub(crate) fn url(&self, request_id: &str) -> Option<String> {
        let base = self.base.as_deref()?;
        // The last two are other pages.
        if matches!(request_id, "" | "." | ".." | "refused" | "find") {
            return None;
        }
        let id = utf8_percent_encode(request_id, ESCAPED).to_string();
        (id.len() <= MAX_ID_IN_URL).then(|| format!("{base}{id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_page_if_its_id_can_be_part_of_a_url() {
        let pages = RequestPages::new(true, "https://llm.example.com");
        let of = |id: &str| pages.url(id);
        let page = |id: &str| Some(format!("https://llm.example.com/portal/requests/{id}"));
        assert_eq!(of("req_0-a.b~c"), page("req_0-a.b~c"));
        assert_eq!(of("order 66/ü?#"), page("order%2066%2F%C3%BC%3F%23"));
        assert_eq!(of(&"i".repeat(128)), page(&"i".repeat(128)));
        for id in ["", ".", "..", "refused", "find", &"ü".repeat(128)] {
            assert_eq!(of(id), None, "{id}");
        }
        assert_eq!(RequestPages::new(false, "https://x").url("req_1"), None);
    }
}
