//! The texts that `tollgate init` writes: the configuration, and what to do next.

use std::path::Path;

use super::Setup;
use crate::{
    catalog::list_prices::{LIST_PRICES, ListedModel},
    cli::margin,
};

/// US dollars per million tokens of input and output, for models on a server of one's own.
pub(super) const OWN_PRICES: [&str; 2] = ["0.10", "0.40"];

impl Setup {
    /// The model in the vendors' price lists.
    pub(super) fn listed(&self, model: &str) -> Option<&'static ListedModel> {
        let (vendor, id) = self.vendor_of(model)?;
        LIST_PRICES.find(vendor, id)
    }

    /// The models without a list price.
    pub(super) fn unlisted(&self) -> Vec<&str> {
        let models = self.models.iter().map(String::as_str);
        models.filter(|id| self.listed(id).is_none()).collect()
    }

    /// Input and output. Without a wish, a server of one's own has a price to begin with.
    pub(super) fn price_of_unlisted(&self) -> [&str; 2] {
        let [input, output] = &self.prices;
        let [cheap, dear] = OWN_PRICES;
        [
            input.as_deref().unwrap_or(cheap),
            output.as_deref().unwrap_or(dear),
        ]
    }
}

/// Where a configuration has its secrets.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Secrets {
    Files,
    /// In variables: to check it before there are files.
    Variables,
}

/// The variable of the provider's key, for [`Secrets::Variables`].
pub(super) const KEY_VARIABLE: &str = "PROVIDER_KEY";

pub(super) fn config(setup: &Setup, secrets: Secrets) -> String {
    let mut parts = vec![head(setup, secrets), provider(setup, secrets)];
    parts.extend(setup.models.iter().map(|id| model(setup, id)));
    parts.join("\n")
}

fn head(setup: &Setup, secrets: Secrets) -> String {
    let token = match secrets {
        Secrets::Files => "token_file = \"operator.token\"\n",
        Secrets::Variables => "",
    };
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
         {token}\
         \n\
         [store]\n\
         url = \"sqlite:data/tollgate.db\"\n",
        setup.listen
    )
}

fn provider(setup: &Setup, secrets: Secrets) -> String {
    let preset = setup.preset;
    let mut lines = vec![
        format!("[providers.{}]", table_key(preset.name)),
        format!("kind = {:?}", preset.kind),
    ];
    if let Some(url) = &setup.base_url {
        lines.push(format!("base_url = {url:?}"));
    }
    if setup.has_key() {
        lines.push(match secrets {
            Secrets::Files => format!("api_key_file = \"{}.key\"", preset.name),
            Secrets::Variables => format!("api_key_env = {KEY_VARIABLE:?}"),
        });
    }
    if let Some(header) = preset.key_header {
        lines.push(format!("key_header = {header:?}"));
    }
    lines.join("\n") + "\n"
}

fn model(setup: &Setup, id: &str) -> String {
    let preset = setup.preset.name;
    let Some(listed) = setup.listed(id) else {
        let [input, output] = setup.price_of_unlisted();
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
