//! Which secrets the providers of changes may use.
//!
//! A change names a variable or a file, and the host to which its content is sent. Operators of the console need not be
//! those who may read every secret of the machine, so only the secrets that the file's own providers name can be named,
//! and those that the file allows in `operator.provider_secrets`.

use std::collections::BTreeSet;

use toml::{Table, Value as Toml};

use super::{Base, Changes, Kind, entries::Provenance};
use crate::base::checked_toml::{Mistake, Origin, Value};

/// Names of variables and paths of files; one may end with `*`.
#[derive(Debug, Default)]
pub(crate) struct ProviderSecrets(BTreeSet<String>);

impl ProviderSecrets {
    fn of(base: &Base) -> Self {
        let mut allowed = BTreeSet::new();
        match base
            .at(&["operator", "provider_secrets"])
            .map(|node| &node.value)
        {
            Some(Value::List(items)) => {
                allowed.extend(items.iter().filter_map(|item| match &item.value {
                    Value::Text(text) => Some(text.clone()),
                    _ => None,
                }));
            }
            // From the environment: one text with commas.
            Some(Value::Text(text)) => {
                allowed.extend(text.split(',').map(|name| name.trim().to_owned()));
            }
            _ => {}
        }
        for entry in base.entries(Kind::Provider, &Changes::default()) {
            if let Some((Provenance::File, provider)) = &entry.original {
                allowed.extend(named(provider).into_iter().map(|(_, name)| name));
            }
        }
        Self(allowed)
    }

    fn allow(&self, name: &str) -> bool {
        // `..` could lead out of an allowed folder.
        if name.split('/').any(|step| step == "..") {
            return self.0.contains(name);
        }
        self.0
            .iter()
            .any(|allowed| match allowed.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == allowed,
            })
    }
}

/// The secrets that a provider names, with the keys that name them.
fn named(provider: &Table) -> Vec<(&'static str, String)> {
    let mut names = Vec::new();
    for key in ["api_key_env", "api_key_file"] {
        match provider.get(key) {
            Some(Toml::String(name)) => names.push((key, name.clone())),
            Some(Toml::Array(items)) => {
                let items = items.iter().filter_map(Toml::as_str);
                names.extend(items.map(|name| (key, name.to_owned())));
            }
            _ => {}
        }
    }
    names
}

/// What is wrong with the secrets and the URLs of changed providers.
pub(super) fn mistakes(base: &Base, changes: &Changes) -> Vec<Mistake> {
    let allowed = ProviderSecrets::of(base);
    let mut mistakes = Vec::new();
    for (name, change) in &changes.providers {
        let text = change.set.as_deref().unwrap_or_default();
        let entry: Table = text.parse().unwrap_or_default();
        let mut report = |message: String| {
            let origin = Origin::Change(format!("provider `{name}`"));
            mistakes.push(Mistake { origin, message });
        };
        for (key, secret) in named(&entry) {
            if !allowed.allow(&secret) {
                report(format!(
                    "`{key}` names {secret}, which no provider of the file names; add it to `operator.provider_secrets` \
                     in the file to allow it"
                ));
            }
        }
        let url = entry.get("base_url").and_then(Toml::as_str);
        if url.is_some_and(|url| url.contains('@')) {
            report(
                "`base_url` has a user or a password in it; use `api_key_env` or `api_key_file`"
                    .into(),
            );
        }
    }
    mistakes
}
