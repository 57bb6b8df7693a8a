//! Relative paths in a configuration file, which are relative to that file.
//!
//! A path in a variable of the environment is relative to the folder in which the process was started.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::base::checked_toml::{Mistake, Node, Origin, Value};

const SQLITE: &str = "sqlite:";
/// How the URL of a store begins, and its parameter that names a file of authorities.
const ROOTS: [(&str, &str); 2] = [("postgres", "sslrootcert"), ("redis", "ca")];

/// A file whose content is read with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedFile {
    /// The setting that names it, such as `operator.token_file`.
    pub setting: String,
    pub path: PathBuf,
}

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
        if path.last().is_some_and(|key| key == "url")
            && let Cow::Owned(resolved) = with_roots_beside(text, folder)
        {
            *text = resolved;
            return;
        }
        // `memory:`, or a server.
        if path == ["limits", "url"] {
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

/// The files that settings of the document name, except those whose content is read whenever it is used.
pub(crate) fn named_files(document: &Node, folder: &Path) -> Vec<NamedFile> {
    let mut document = document.clone();
    // What is wrong with a path has been reported.
    let _ = resolve(&mut document, folder);
    let mut files = Vec::new();
    each_path(&mut document, &mut Vec::new(), &mut |path, node| {
        let is_file = |key: &String| key.ends_with("_file") && key != "federated_token_file";
        if let Value::Text(file) = &node.value
            && path.last().is_some_and(is_file)
        {
            files.push(NamedFile {
                setting: path.join("."),
                path: PathBuf::from(file),
            });
        }
    });
    files
}

/// The URL of a store with the file of its authorities made one from `folder`, if it is a relative path.
pub(super) fn with_roots_beside<'a>(url: &'a str, folder: &Path) -> Cow<'a, str> {
    let known = ROOTS.iter().find(|(scheme, _)| url.starts_with(scheme));
    let (Some((_, name)), Some((address, query))) = (known, url.split_once('?')) else {
        return url.into();
    };
    if folder.as_os_str().is_empty() {
        return url.into();
    }
    let resolved = |parameter: &str| {
        let value = parameter.strip_prefix(name)?.strip_prefix('=')?;
        let path = percent_decode_str(value).decode_utf8().ok()?;
        // `system` means the authorities of the system.
        if path.is_empty() || path == "system" || Path::new(&*path).is_absolute() {
            return None;
        }
        let path = folder.join(&*path).display().to_string();
        Some(format!(
            "{name}={}",
            utf8_percent_encode(&path, NON_ALPHANUMERIC)
        ))
    };
    if !query
        .split('&')
        .any(|parameter| resolved(parameter).is_some())
    {
        return url.into();
    }
    let parameters = query.split('&');
    let parameters = parameters.map(|one| resolved(one).unwrap_or_else(|| one.to_owned()));
    let parameters: Vec<_> = parameters.collect();
    format!("{address}?{}", parameters.join("&")).into()
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
        | ["store", "url" | "spool"]
        | ["limits", "url"] => true,
        [_, .., key] => key.ends_with("_file"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::checked_toml;

    /// Every setting that is a path, with its value.
    fn document_text(document: &mut Node) -> Vec<String> {
        let mut found = Vec::new();
        each_path(document, &mut Vec::new(), &mut |path, node| {
            found.push(format!("{}={}", path.join("."), node.value.shown()));
        });
        found.sort();
        found
    }

    #[test]
    fn paths_are_relative_to_the_file_and_nothing_else_is_changed() {
        let text = r#"
            server.tls = { cert = "cert.pem", key = "/etc/key.pem" }
            operator.token_file = "token"
            store = { url = "sqlite:data/t.db", spool = "spool" }
            limits.url = "memory:"
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
        let found = document_text(&mut document);
        let expected = [
            r#"catalog.file="/etc/tollgate/models.toml""#,
            r#"limits.url="memory:""#,
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
    fn authorities_in_a_url_are_beside_the_file_too() {
        let folder = Path::new("/etc/tollgate");
        for (written, expected) in [
            (
                "postgres://u:p@h/db?sslmode=verify-full&sslrootcert=ca.pem",
                "postgres://u:p@h/db?sslmode=verify-full&sslrootcert=%2Fetc%2Ftollgate%2Fca%2Epem",
            ),
            (
                "postgresql://h/db?sslrootcert=my%20ca&application_name=x",
                "postgresql://h/db?sslrootcert=%2Fetc%2Ftollgate%2Fmy%20ca&application_name=x",
            ),
            ("postgres://h/db?sslrootcert=/ca.pem", ""),
            ("postgres://h/db?sslrootcert=%2Fca.pem", ""),
            ("postgres://h/db?sslrootcert=system", ""),
            ("postgres://h/db?sslrootcert=", ""),
            ("postgres://h/db", ""),
            ("redis://h/db?sslrootcert=ca.pem", ""),
            (
                "rediss://h/0?ca=ca.pem",
                "rediss://h/0?ca=%2Fetc%2Ftollgate%2Fca%2Epem",
            ),
            ("rediss://h/0?ca=/ca.pem", ""),
            ("memory:", ""),
        ] {
            let section = if written.starts_with("postgres") {
                "store"
            } else {
                "limits"
            };
            let mut document =
                checked_toml::parse(&format!("{section}.url = \"{written}\"")).unwrap();
            assert!(resolve(&mut document, folder).is_empty());
            let expected = if expected.is_empty() {
                written
            } else {
                expected
            };
            let shown = document_text(&mut document);
            assert_eq!(shown, [format!("{section}.url=\"{expected}\"")]);
        }
    }

    #[test]
    fn files_are_named_with_their_settings() {
        let text = r#"
            operator.token_file = "token"
            catalog.file = "models.toml"
            [providers.one]
            api_key_file = ["one.key", "/two.key"]
            federated_token_file = "read-when-used"
        "#;
        let mut document = checked_toml::parse(text).unwrap();
        let environment = [("TOLLGATE__ALERTS__WEBHOOK_SECRET_FILE", "hook")];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let environment = environment.into_iter().collect();
        super::super::environment::override_values(&mut document, &environment);
        let files = named_files(&document, Path::new("/etc/tollgate"));
        let mut files: Vec<_> = files
            .iter()
            .map(|file| format!("{}={}", file.setting, file.path.display()))
            .collect();
        files.sort();
        let expected = [
            // A variable's path is relative to the process.
            "alerts.webhook_secret_file=hook",
            "operator.token_file=/etc/tollgate/token",
            "providers.one.api_key_file=/etc/tollgate/one.key",
            "providers.one.api_key_file=/two.key",
        ];
        assert_eq!(files, expected);
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
