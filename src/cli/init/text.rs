//! The texts that `tollgate init` writes: the configuration, and what to do next.

use std::path::Path;

use super::Setup;
use crate::{
    catalog::list_prices::{LIST_PRICES, ListedModel},
    cli::margin,
};

impl Setup {
    /// The model in the vendors' price lists.
    pub(super) fn listed(&self, model: &str) -> Option<&'static ListedModel> {
        let (vendor, id) = self.vendor_of(model)?;
        LIST_PRICES.find(vendor, id)
    }
}

pub(super) fn config(setup: &Setup) -> String {
    let mut parts = vec![head(setup), provider(setup)];
    parts.extend(setup.models.iter().map(|id| model(setup, id)));
    parts.join("\n")
}

fn head(setup: &Setup) -> String {
    format!(
        "# `tollgate check --config tollgate.toml` checks this file; docs/CONFIGURATION.md has every setting.\n\
         # Relative paths are relative to this file.\n\
         \n\
         [server]\n\
         listen = {:?}\n\
         # For HTTPS: tls = {{ cert = \"cert.pem\", key = \"key.pem\" }}\n\
         \n\
         [operator]\n\
         listen = \"127.0.0.1:9090\"\n\
         token_file = \"operator.token\"\n\
         \n\
         [store]\n\
         url = \"sqlite:data/tollgate.db\"\n",
        setup.listen
    )
}

fn provider(setup: &Setup) -> String {
    let preset = setup.preset;
    let mut lines = vec![
        format!("[providers.{}]", table_key(preset.name)),
        format!("kind = {:?}", preset.kind),
    ];
    if let Some(url) = &setup.base_url {
        lines.push(format!("base_url = {url:?}"));
    }
    if setup.has_key() {
        lines.push(format!("api_key_file = \"{}.key\"", preset.name));
    }
    if let Some(header) = preset.key_header {
        lines.push(format!("key_header = {header:?}"));
    }
    lines.join("\n") + "\n"
}

fn model(setup: &Setup, id: &str) -> String {
    let preset = setup.preset.name;
    let Some(listed) = setup.listed(id) else {
        let [input, output] = &setup.prices;
        return format!(
            "[[models]]\n\
             id = {id:?}\n\
             provider = {preset:?}\n\
             input = {input:?}     # US dollars per million tokens: set your price\n\
             output = {output:?}\n"
        );
    };
    margin::model(preset, id, id, listed, &setup.margin)
}

/// The name as a part of a table's name, in quotes if it needs them.
fn table_key(name: &str) -> String {
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_plain {
        name.to_owned()
    } else {
        format!("{name:?}")
    }
}

pub(super) fn next_steps(setup: &Setup, file: &Path, token: &Path, key: Option<&Path>) -> String {
    let (file, token) = (file.display(), token.display());
    let key = match (key, &setup.key) {
        (Some(path), None) => format!(
            "Write the key of {} to {}.\n\n",
            setup.preset.title,
            path.display()
        ),
        (Some(path), Some(key)) if key.is_empty() => {
            format!(
                "Write the key of {} to {}.\n\n",
                setup.preset.title,
                path.display()
            )
        }
        _ => String::new(),
    };
    let models = setup.models.join(", ");
    format!(
        "{file} serves {models}.\n\n{key}\
         Start it:\n\n  \
           tollgate check --config {file}\n  \
           tollgate serve --config {file}\n\n\
         Then make an account with credit and a key, in another terminal:\n\n  \
           export TOLLGATE_OPERATOR_TOKEN_FILE={token}\n  \
           tollgate account create --email you@example.com\n  \
           tollgate credit grant you@example.com 10.00\n  \
           tollgate key create you@example.com --name first"
    )
}
