//! Relative paths in a configuration file, which are relative to that file.
//!
//! A path in a variable of the environment is relative to the folder in which the process was started.

use std::path::Path;

use crate::base::checked_toml::{Mistake, Node, Origin, Value};

const SQLITE: &str = "sqlite:";

/// Makes every relative path of the document one from `folder`, which is the file's. A store that was there when paths
/// were relative to the process's folder, and is not beside the file, is a mistake: another one would be created.
pub(crate) fn resolve(document: &mut Node, folder: &Path) -> Vec<Mistake> {
    let mut mistakes = Vec::new();
    each_path(document, &mut Vec::new(), &mut |path, node| {
        let Value::Text(text) = &mut node.value else {
            return;
        };
        if matches!(node.origin, Origin::Variable(_)) {
            return;
        }
        let (scheme, written) = match text.strip_prefix(SQLITE) {
            Some(written) => (SQLITE, written),
            None => ("", text.as_str()),
        };
        // A URL of a server, or nothing, which is reported when it is read.
        if written.is_empty() || written.contains("://") || Path::new(written).is_absolute() {
            return;
        }
        let resolved = folder.join(written);
        if path[0] == "store" && !resolved.exists() && Path::new(written).exists() {
            mistakes.push(Mistake {
                origin: node.origin.clone(),
                message: format!(
                    "`{}` is relative to the file, so it means {}, which does not exist, while {written} exists in the \
                     folder of this process; write the whole path",
                    path.join("."),
                    resolved.display()
                ),
            });
        }
        *text = format!("{scheme}{}", resolved.display());
    });
    mistakes
}

/// Calls `each` with every setting that is a path, and its name in parts.
fn each_path(node: &mut Node, path: &mut Vec<String>, each: &mut impl FnMut(&[String], &mut Node)) {
    match &mut node.value {
        Value::Table(entries) => {
            for (key, inner) in entries {
                path.push(key.clone());
                if is_path(path) {
                    match &mut inner.value {
                        Value::List(items) => {
                            for item in items {
                                each(path, item);
                            }
                        }
                        _ => each(path, inner),
                    }
                }
                each_path(inner, path, each);
                path.pop();
            }
        }
        Value::List(items) => {
            for item in items {
                each_path(item, path, each);
            }
        }
        _ => {}
    }
}

fn is_path(path: &[String]) -> bool {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["server", "tls", "cert" | "key"]
        | ["catalog", "file"]
        | ["routing", "weights"]
        | ["store", "url" | "spool"] => true,
        [_, .., key] => key.ends_with("_file"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checked_toml;

    #[test]
    fn paths_are_relative_to_the_file_and_nothing_else_is_changed() {
        let text = r#"
            server.tls = { cert = "cert.pem", key = "/etc/key.pem" }
            operator.token_file = "token"
            store = { url = "sqlite:data/t.db", spool = "spool" }
            limits.store.url = "redis://example.com"
            catalog.file = "models.toml"
            [providers.one]
            kind = "openai"
            api_key_file = "../key"
            [providers.two]
            api_key_file = ["one.key", "/etc/two.key"]
            [[deployments]]
            model = "*"
        "#;
        let mut document = checked_toml::parse(text).unwrap();
        assert!(resolve(&mut document, Path::new("/etc/tollgate")).is_empty());
        let mut found = Vec::new();
        each_path(&mut document, &mut Vec::new(), &mut |path, node| {
            found.push(format!("{}={}", path.join("."), node.value.shown()));
        });
        found.sort();
        let expected = [
            r#"catalog.file="/etc/tollgate/models.toml""#,
            r#"operator.token_file="/etc/tollgate/token""#,
            r#"providers.one.api_key_file="/etc/tollgate/../key""#,
            r#"providers.two.api_key_file="/etc/tollgate/one.key""#,
            r#"providers.two.api_key_file="/etc/two.key""#,
            r#"server.tls.cert="/etc/tollgate/cert.pem""#,
            r#"server.tls.key="/etc/key.pem""#,
            r#"store.spool="/etc/tollgate/spool""#,
            r#"store.url="sqlite:/etc/tollgate/data/t.db""#,
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_store_in_the_folder_of_the_process_is_not_forgotten() {
        let elsewhere = tempfile::TempDir::new().unwrap();
        // The tests run in the folder of the crate.
        let mut document = checked_toml::parse("store.url = \"sqlite:Cargo.toml\"").unwrap();
        let mistakes = resolve(&mut document, elsewhere.path());
        assert!(
            mistakes[0].to_string().contains("write the whole path"),
            "{mistakes:?}"
        );
    }
}
