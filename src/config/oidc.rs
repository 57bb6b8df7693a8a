//! The `[portal.oidc]` section: an OpenID Connect issuer that people sign in with.

use super::values::{Environment, is_safe_url, list, secret};
use crate::base::{
    checked_toml::{Section, Value, as_text},
    keys::Secret,
};

#[derive(Clone, Debug)]
pub struct Oidc {
    /// Exactly as the issuer writes it, a trailing `/` included: it must equal the `issuer` of the discovery document
    /// and the `iss` claim of ID tokens.
    pub issuer: String,
    pub client_id: String,
    /// `None` for a public client.
    pub client_secret: Option<Secret>,
    /// Display name of the issuer on the sign-in button.
    pub name: String,
    /// Domains in lower case. Only people with a verified email address in one of them may sign in; empty allows all.
    pub allowed_domains: Vec<String>,
    /// Separated by spaces, as sent to the issuer.
    pub scopes: String,
}

/// Reads the section; call it only if the section exists. `None` if a required setting is missing or unusable.
pub(crate) fn oidc(mut section: Section, environment: &Environment) -> Option<Oidc> {
    let expected = "the issuer's URL as it writes it itself, e.g. `https://accounts.google.com`; \
                    `http` is for this machine alone";
    let issuer = section.required("issuer", expected, issuer);
    let expected = "the ID that the issuer has given to this gateway";
    let client_id = section.required("client_id", expected, |value| {
        as_text(value).filter(|id| !id.trim().is_empty())
    });
    let client_secret = secret(&mut section, "client_secret", None, environment);
    let expected = "what the issuer is called on the button, in up to 40 characters, e.g. `Google`";
    let name = section.optional("name", expected, name);
    let expected = "a list of domains, e.g. `[\"example.com\"]`";
    let allowed_domains = list(&mut section, "allowed_domains", expected, domain);
    let expected =
        "scopes with spaces between them, `openid` among them, e.g. `openid email profile`";
    let scopes = section.optional("scopes", expected, scopes);
    section.finish();
    let issuer = issuer?;
    Some(Oidc {
        name: name.unwrap_or_else(|| host(&issuer)),
        issuer,
        client_id: client_id?,
        client_secret,
        allowed_domains,
        scopes: scopes.unwrap_or_else(|| "openid email profile".into()),
    })
}

fn issuer(value: &Value) -> Option<String> {
    let url = as_text(value)?;
    (is_safe_url(&url) && !url.contains(['?', '#'])).then_some(url)
}

fn host(url: &str) -> String {
    let uri = url.parse::<axum::http::Uri>().ok();
    let host = uri.as_ref().and_then(axum::http::Uri::host);
    host.unwrap_or(url).to_owned()
}

fn name(value: &Value) -> Option<String> {
    let name = as_text(value)?.trim().to_owned();
    let plain = !name.chars().any(char::is_control);
    (plain && (1..=40).contains(&name.chars().count())).then_some(name)
}

fn domain(text: &str) -> Option<String> {
    let forbidden = |c: char| c == '@' || c == '*' || c.is_whitespace() || c.is_control();
    (!text.is_empty() && !text.contains(forbidden)).then(|| text.to_lowercase())
}

fn scopes(value: &Value) -> Option<String> {
    let scopes = as_text(value)?;
    let scopes: Vec<_> = scopes.split_whitespace().collect();
    scopes.contains(&"openid").then(|| scopes.join(" "))
}
