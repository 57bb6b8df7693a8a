//! Which secrets the providers of changes may use, and to which hosts they may be sent.
//!
//! A change names a variable or a file, and the host to which its content is sent. Operators of the console need not be
//! those who may read every secret of the machine. So a secret that the file's own providers name is sent only to where
//! they send it (scheme, host and port), and no other can be named, unless the file allows it in
//! `operator.provider_secrets`: then it can be sent anywhere. An identity could obtain tokens for anything that its account
//! may do, so what the file's providers obtain with it is all that a change may obtain.

use std::collections::{BTreeMap, BTreeSet};

use axum::http::Uri;

use super::{Base, Changes};
use crate::{
    base::checked_toml::{self, Mistake, Node, Origin, Value, as_text},
    config::upstreams::known_url,
};

#[derive(Debug, Default)]
struct ProviderSecrets {
    /// Names of variables and paths of files that may be sent anywhere; one may end with `*`.
    anywhere: BTreeSet<String>,
    /// What the file's providers do with their secrets.
    bound: BTreeMap<String, BTreeSet<Usage>>,
}

/// What a provider does with its secrets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Usage {
    /// Where they are sent; see [`destination`].
    to: String,
    /// The settings that choose what is obtained with them; see [`identity`].
    identity: String,
}

impl ProviderSecrets {
    fn of(base: &Base) -> Self {
        let listed = base.at(&["operator", "provider_secrets"]);
        let anywhere = match listed.map(|node| &node.value) {
            Some(Value::List(items)) => items
                .iter()
                .filter_map(|item| as_text(&item.value))
                .collect(),
            // From the environment: one text with commas.
            Some(Value::Text(text)) => text.split(',').map(|name| name.trim().to_owned()).collect(),
            _ => BTreeSet::new(),
        };
        let mut bound: BTreeMap<String, BTreeSet<Usage>> = BTreeMap::new();
        let providers = match base.at(&["providers"]).map(|node| &node.value) {
            Some(Value::Table(providers)) => Some(providers),
            _ => None,
        };
        for provider in providers.into_iter().flat_map(BTreeMap::values) {
            let Some(to) = destination(provider) else {
                continue;
            };
            let identity = identity(provider);
            let usage = Usage { to, identity };
            for (_, secret) in named(provider) {
                bound.entry(secret).or_default().insert(usage.clone());
            }
        }
        Self { anywhere, bound }
    }

    /// Why a secret may not be sent there, or not be used with these settings of an identity; `None` if it may.
    fn refusal(&self, secret: &str, to: Option<&str>, identity: &str) -> Option<String> {
        if self.is_allowed_anywhere(secret) {
            return None;
        }
        let Some(known) = self.bound.get(secret) else {
            return Some(
                "which no provider of the file names; add it to `operator.provider_secrets` in the file to allow it"
                    .into(),
            );
        };
        let Some(to) = to else {
            return Some("which needs a `base_url` that says where it is sent".into());
        };
        let there: Vec<_> = known.iter().filter(|usage| usage.to == to).collect();
        if there.is_empty() {
            let known: BTreeSet<_> = known.iter().map(|usage| usage.to.as_str()).collect();
            let known: Vec<_> = known.into_iter().collect();
            return Some(format!(
                "which the file’s providers send to {} and nowhere else; add it to `operator.provider_secrets` in the \
                 file to allow any `base_url`",
                known.join(" and ")
            ));
        }
        if there.iter().any(|usage| usage.identity == identity) {
            return None;
        }
        let known: Vec<_> = there.iter().map(|usage| usage.identity.as_str()).collect();
        Some(format!(
            "which the file’s providers use {} and in no other way; add it to `operator.provider_secrets` in the file \
             to allow other settings",
            known.join(" or ")
        ))
    }

    fn is_allowed_anywhere(&self, name: &str) -> bool {
        // `..` could lead out of an allowed folder.
        if name.split('/').any(|step| step == "..") {
            return self.anywhere.contains(name);
        }
        let mut allowed = self.anywhere.iter();
        allowed.any(|allowed| match allowed.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == allowed,
        })
    }
}

/// Settings of a provider that name a variable or a file with a secret.
pub(super) const SECRETS: [&str; 10] = [
    "api_key_env",
    "api_key_file",
    "credentials_file",
    "client_secret_env",
    "client_secret_file",
    "federated_token_file",
    "secret_access_key_env",
    "secret_access_key_file",
    "session_token_env",
    "session_token_file",
];

/// Settings that choose what an identity obtains: for whom, for what and where.
const IDENTITY: [&str; 6] = [
    "auth",
    "scope",
    "tenant",
    "client_id",
    "region",
    "access_key_id",
];

fn setting<'a>(provider: &'a Node, key: &str) -> Option<&'a Value> {
    match &provider.value {
        Value::Table(settings) => settings.get(key).map(|node| &node.value),
        _ => None,
    }
}

/// The secrets that a provider names, with the keys that name them.
fn named(provider: &Node) -> Vec<(&'static str, String)> {
    let mut names = Vec::new();
    for key in SECRETS {
        match setting(provider, key) {
            Some(Value::List(items)) => {
                let items = items.iter().filter_map(|item| as_text(&item.value));
                names.extend(items.map(|name| (key, name)));
            }
            Some(value) => names.extend(as_text(value).map(|name| (key, name))),
            None => {}
        }
    }
    // Without a file or a secret, `auth` uses what the machine is: its metadata service gives out tokens.
    let auth = setting(provider, "auth").and_then(as_text);
    names.extend(auth.filter(|_| names.is_empty()).map(|auth| ("auth", auth)));
    names
}

/// Where a provider sends its secrets: scheme, host and port of its API and, if it has one of its own, of its sign-in
/// service. `None` if there is no URL that can be read.
fn destination(provider: &Node) -> Option<String> {
    let url = match setting(provider, "base_url") {
        Some(url) => as_text(url)?,
        // Signed with the secret, which stays here, and sent to the region's own host.
        None if setting(provider, "auth").and_then(as_text).as_deref() == Some("aws") => {
            "https://bedrock-runtime.amazonaws.com".to_owned()
        }
        None => known_url(&as_text(setting(provider, "kind")?)?)?.to_owned(),
    };
    let api = origin_of(&url)?;
    match setting(provider, "authority") {
        Some(authority) => Some(format!("{api} with {}", origin_of(&as_text(authority)?)?)),
        None => Some(api),
    }
}

/// How a provider uses its secrets: `as a key`, or `with auth = "azure", tenant = "contoso.example"`.
fn identity(provider: &Node) -> String {
    if setting(provider, "auth").is_none() {
        return "as a key".into();
    }
    let settings = IDENTITY.iter().filter_map(|key| {
        let value = setting(provider, key).and_then(as_text)?;
        Some(format!("{key} = {value:?}"))
    });
    format!("with {}", settings.collect::<Vec<_>>().join(", "))
}

fn origin_of(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let scheme = url.scheme_str()?.to_ascii_lowercase();
    let host = url.host()?.to_ascii_lowercase();
    let usual = if scheme == "https" { 443 } else { 80 };
    Some(match url.port_u16() {
        Some(port) if port != usual => format!("{scheme}://{host}:{port}"),
        _ => format!("{scheme}://{host}"),
    })
}

/// What is wrong with the secrets and the URLs of changed providers.
pub(super) fn mistakes(base: &Base, changes: &Changes) -> Vec<Mistake> {
    let secrets = ProviderSecrets::of(base);
    let mut mistakes = Vec::new();
    for (name, change) in &changes.providers {
        let text = change.set.as_deref().unwrap_or_default();
        let Ok(provider) = checked_toml::parse(text) else {
            continue; // reported where changes are made, by the same parser
        };
        let mut report = |message: String| {
            let origin = Origin::Change(format!("provider `{name}`"));
            mistakes.push(Mistake { origin, message });
        };
        let (to, identity) = (destination(&provider), identity(&provider));
        for (key, secret) in named(&provider) {
            if let Some(reason) = secrets.refusal(&secret, to.as_deref(), &identity) {
                report(format!("`{key}` names {secret}, {reason}"));
            }
        }
        let url = setting(&provider, "base_url").and_then(as_text);
        if url.is_some_and(|url| url.contains('@')) {
            report(
                "`base_url` has a user or a password in it; use `api_key_env` or `api_key_file`"
                    .into(),
            );
        }
    }
    mistakes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::keys::Secret, config::changes::Change};

    fn to(provider: &str) -> Option<String> {
        destination(&checked_toml::parse(provider).unwrap())
    }

    #[test]
    fn an_identity_without_a_secret_is_one_itself() {
        for (provider, expected) in [
            ("api_key_env = [\"A\", \"B\"]", vec!["A", "B"]),
            ("auth = \"google\"", vec!["google"]),
            (
                "auth = \"google\"\ncredentials_file = \"g.json\"",
                vec!["g.json"],
            ),
            ("auth = \"azure\"\nclient_id = \"a\"", vec!["azure"]),
            ("auth = \"azure\"\nclient_secret_env = \"S\"", vec!["S"]),
            ("auth = \"azure\"\nfederated_token_file = \"t\"", vec!["t"]),
        ] {
            let names = named(&checked_toml::parse(provider).unwrap());
            let names: Vec<_> = names.iter().map(|(_, name)| name.as_str()).collect();
            assert_eq!(names, expected, "{provider}");
        }
    }

    /// What is wrong with this change of a provider, beside a file.
    fn refused(file: &str, provider: &str) -> String {
        let base = Base::of_text("test.toml", file, &Secret::new("token"));
        let change = Change {
            set: Some(provider.to_owned()),
            replaces: None,
        };
        let mut changes = Changes::default();
        changes.providers.insert("changed".to_owned(), change);
        let found = mistakes(&base, &changes).into_iter();
        let messages: Vec<_> = found.map(|mistake| mistake.message).collect();
        messages.join("\n")
    }

    #[test]
    fn an_identity_obtains_what_it_obtains_in_the_file() {
        const URL: &str =
            "kind = \"openai\"\nbase_url = \"https://a.openai.azure.com/openai/v1\"\n";
        const AWS: &str = "kind = \"anthropic\"\nauth = \"aws\"\n";
        let managed = format!("{URL}auth = \"azure\"\n");
        let application = format!(
            "{managed}tenant = \"t.example\"\nclient_id = \"app\"\nclient_secret_env = \"S\"\n"
        );
        let keys = format!(
            "{AWS}region = \"eu-west-1\"\naccess_key_id = \"AKID\"\nsecret_access_key_env = \"K\"\n"
        );
        let file = format!(
            "[providers.managed]\n{managed}[providers.application]\n{application}[providers.keys]\n{keys}\
             [providers.role]\n{AWS}region = \"eu-west-1\"\n"
        );
        let role = format!("{AWS}region = \"eu-west-1\"");
        for provider in [
            &managed,
            &application,
            &keys,
            &role,
            &format!("{managed}reuse_connections = false"),
        ] {
            assert_eq!(refused(&file, provider), "", "{provider}");
        }
        let scope = "scope = \"https://management.azure.com/.default\"\n";
        for (provider, expected) in [
            (
                format!("{managed}{scope}"),
                "`auth` names azure, which the file’s providers use with auth = \"azure\" and in no other way",
            ),
            (
                format!("{managed}client_id = \"other\""),
                "use with auth = \"azure\" and in no other way",
            ),
            (
                format!("{application}{scope}"),
                "use with auth = \"azure\", tenant = \"t.example\", client_id = \"app\" and in no other way",
            ),
            (application.replace("t.example", "other"), "names S, which"),
            (
                application.replace("\"app\"", "\"other\""),
                "names S, which",
            ),
            (keys.replace("AKID", "OTHER"), "names K, which"),
            (keys.replace("eu-west-1", "us-east-1"), "names K, which"),
            (role.replace("eu-west-1", "us-east-1"), "names aws, which"),
            // It would be sent as it is.
            (
                format!("{URL}api_key_env = \"S\""),
                "names S, which the file’s providers use with auth",
            ),
        ] {
            let why = refused(&file, &provider);
            assert!(why.contains(expected), "{provider}: {why}");
        }
        let allowed = format!("operator.provider_secrets = [\"azure\"]\n{file}");
        assert_eq!(refused(&allowed, &format!("{managed}{scope}")), "");
    }

    #[test]
    fn a_destination_is_scheme_host_and_port() {
        for (provider, expected) in [
            (
                "base_url = \"https://API.example.com/v1\"",
                "https://api.example.com",
            ),
            (
                "base_url = \"https://api.example.com:443/v2\"",
                "https://api.example.com",
            ),
            (
                "base_url = \"http://api.example.com:443/v1\"",
                "http://api.example.com:443",
            ),
            (
                "base_url = \"https://api.example.com.evil/v1\"",
                "https://api.example.com.evil",
            ),
            (
                "base_url = \"https://u:p@api.example.com/v1\"",
                "https://api.example.com",
            ),
            ("kind = \"anthropic\"", "https://api.anthropic.com"),
            (
                "base_url = \"https://a.openai.azure.com/openai/v1\"\nauthority = \"https://login.example.com/x\"",
                "https://a.openai.azure.com with https://login.example.com",
            ),
            (
                "kind = \"gemini\"\nbase_url = \"http://[::1]:9/v1\"",
                "http://[::1]:9",
            ),
        ] {
            assert_eq!(to(provider).as_deref(), Some(expected), "{provider}");
        }
        for provider in [
            "kind = \"openai\"",
            "base_url = 5",
            "base_url = \"/v1\"",
            "kind = \"anthropic\"\nbase_url = 5",
            "kind = \"anthropic\"\nauthority = 5",
        ] {
            assert_eq!(to(provider), None, "{provider}");
        }
    }
}
