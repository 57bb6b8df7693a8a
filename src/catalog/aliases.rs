//! Aliases: other names under which models can be called, e.g. those that coding agents ask for.

use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

use super::Model;

/// Longest name that a pattern matches, in bytes. Responses repeat the name, a stream in every chunk.
const MAX_NAME_BYTES: usize = 256;

/// The aliases of a catalog.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    exact: BTreeMap<String, Arc<Model>>,
    /// Patterns without their `*`, the longest first.
    prefixes: Vec<(String, Arc<Model>)>,
}

impl Aliases {
    /// Each name is exact, or a prefix followed by `*`.
    pub(crate) fn new(aliases: impl IntoIterator<Item = (String, Arc<Model>)>) -> Self {
        let mut all = Self::default();
        for (name, model) in aliases {
            match name.strip_suffix('*') {
                Some(prefix) => all.prefixes.push((prefix.to_owned(), model)),
                None => drop(all.exact.insert(name, model)),
            }
        }
        all.prefixes
            .sort_by_key(|(prefix, _)| Reverse(prefix.len()));
        all
    }

    /// The model with this alias. An exact alias is longer than any prefix of it, so the longest match wins.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<Model>> {
        if let Some(model) = self.exact.get(name) {
            return Some(model);
        }
        let mut prefixes = self.prefixes.iter();
        let found = prefixes.find(|(prefix, _)| name.starts_with(prefix))?;
        (name.len() <= MAX_NAME_BYTES).then_some(&found.1)
    }

    /// The aliases that are no patterns, in the order of their names.
    pub(super) fn exact(&self) -> impl Iterator<Item = (&str, &Arc<Model>)> {
        let exact = self.exact.iter();
        exact.map(|(name, model)| (name.as_str(), model))
    }

    /// All aliases as they are written in the configuration: the exact ones, then the patterns.
    pub(super) fn as_written(&self) -> impl Iterator<Item = (String, &Arc<Model>)> {
        let exact = self.exact().map(|(name, model)| (name.to_owned(), model));
        let patterns = self.prefixes.iter();
        exact.chain(patterns.map(|(prefix, model)| (format!("{prefix}*"), model)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    fn aliases(written: &[(&str, &str)]) -> Aliases {
        let catalog = Catalog::built_in();
        let model = |id: &str| catalog.find(id).unwrap().clone();
        let written = written.iter();
        Aliases::new(written.map(|(name, id)| ((*name).to_owned(), model(id))))
    }

    fn found<'a>(aliases: &'a Aliases, name: &str) -> Option<&'a str> {
        aliases.find(name).map(|model| model.id.as_str())
    }

    #[test]
    fn the_longest_match_wins() {
        let aliases = aliases(&[
            ("claude-*", "svc-pro"),
            ("claude-sonnet-*", "svc-standard"),
            ("claude-sonnet-5", "svc-max-coding"),
        ]);
        for (name, expected) in [
            ("claude-sonnet-5", Some("svc-max-coding")),
            ("claude-sonnet-5-5", Some("svc-standard")),
            ("claude-sonnet-", Some("svc-standard")),
            ("claude-sonnet", Some("svc-pro")),
            ("claude-", Some("svc-pro")),
            ("claude", None),
            ("Claude-sonnet-5", None),
            ("claude-*", Some("svc-pro")),
            ("", None),
        ] {
            assert_eq!(found(&aliases, name), expected, "{name}");
        }
    }

    #[test]
    fn a_pattern_matches_no_name_of_any_length() {
        let aliases = aliases(&[("gpt-*", "svc-pro")]);
        let name = |bytes: usize| format!("gpt-{}", "x".repeat(bytes - 4));
        assert_eq!(found(&aliases, &name(MAX_NAME_BYTES)), Some("svc-pro"));
        assert_eq!(found(&aliases, &name(MAX_NAME_BYTES + 1)), None);
    }

    #[test]
    fn they_are_listed_as_they_were_written() {
        let aliases = aliases(&[("o*", "svc-pro"), ("gpt-*", "svc-pro"), ("o3", "svc-basic")]);
        let written: Vec<_> = aliases.as_written().map(|(name, _)| name).collect();
        assert_eq!(written, ["o3", "gpt-*", "o*"]);
        let exact: Vec<_> = aliases.exact().map(|(name, _)| name).collect();
        assert_eq!(exact, ["o3"]);
    }
}
