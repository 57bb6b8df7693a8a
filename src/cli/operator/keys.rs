//! `tollgate key`.

use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{Target, segment};
use crate::cli::output;

/// What binds a key beside its account; all of it is optional.
#[derive(Args)]
pub(crate) struct KeyTerms {
    /// The ID of the project that it belongs to; `default` is the default project
    #[arg(long)]
    project: Option<String>,
    /// When it expires, in ISO 8601, for example 2027-01-31T00:00:00Z
    #[arg(long)]
    expires_at: Option<String>,
    /// A model that it may call; can be given several times [default: all that the account may call]
    #[arg(long = "model", value_name = "MODEL")]
    models: Vec<String>,
    /// Requests per minute, with all models together, beside those of the account
    #[arg(long)]
    rpm: Option<u32>,
    /// Tokens per minute, with all models together, beside those of the account
    #[arg(long)]
    tpm: Option<u32>,
}

impl KeyTerms {
    /// A body with what was given, and `name` if there is one.
    fn body(self, name: Option<String>) -> Value {
        let mut body = json!({});
        let models = (!self.models.is_empty()).then_some(self.models);
        for (field, value) in [
            ("name", name.map(Value::from)),
            ("project", self.project.map(Value::from)),
            ("expires_at", self.expires_at.map(Value::from)),
            ("models", models.map(Value::from)),
            ("rpm", self.rpm.map(Value::from)),
            ("tpm", self.tpm.map(Value::from)),
        ] {
            if let Some(value) = value {
                body[field] = value;
            }
        }
        body
    }
}

#[derive(Subcommand)]
pub(crate) enum KeyCommand {
    /// Create a key; it is shown once
    Create {
        /// The account's ID or email
        account: String,
        /// What people call it
        #[arg(long, default_value = "")]
        name: String,
        #[command(flatten)]
        terms: KeyTerms,
        /// Print the key alone, for a script
        #[arg(long, conflicts_with = "json")]
        bare: bool,
    },
    /// List an account's keys, newest first, at most 100 at a time
    List {
        /// The account's ID or email
        account: String,
        /// Only keys older than this one: the last one of the list before
        #[arg(long, value_name = "KEY")]
        before: Option<String>,
        /// Only deleted keys
        #[arg(long)]
        deleted: bool,
    },
    /// Change a key, from the next request on
    Change {
        /// The key's ID, from the list
        key: String,
        /// Its new name
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        terms: KeyTerms,
        /// Remove what binds the key: expires-at, models, rpm or tpm
        #[arg(long, value_name = "TERM", value_parser = ["expires-at", "models", "rpm", "tpm"])]
        clear: Vec<String>,
    },
    /// Give a key a new secret, which is shown once; the present one stays valid for a while
    Rotate {
        /// The key's ID, from the list
        key: String,
        /// How many seconds the present secret stays valid, up to 30 days [default: 24 hours]
        #[arg(long, value_name = "SECONDS")]
        grace: Option<u32>,
    },
    /// Disable a key, from the next request on
    Disable {
        /// The key's ID, from the list
        key: String,
    },
    /// Enable a disabled key
    Enable {
        /// The key's ID, from the list
        key: String,
    },
    /// Delete a key permanently
    Delete {
        /// The key's ID, from the list
        key: String,
    },
}

const REMINDER: &str = "\nThis is the only time the key is shown. Store it now.";

impl KeyCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        match self {
            Self::Create {
                account,
                name,
                terms,
                bare,
            } => create(target, &account, &terms.body(Some(name)), bare).await,
            Self::Change {
                key,
                name,
                terms,
                clear,
            } => {
                let mut body = terms.body(name);
                for term in clear {
                    body[term.replace('-', "_")] = Value::Null;
                }
                target.send(Method::PATCH, &one(&key, ""), Some(body)).await
            }
            Self::List {
                account,
                before,
                deleted,
            } => list(target, &account, before.as_deref(), deleted).await,
            Self::Rotate { key, grace } => rotate(target, &key, grace).await,
            Self::Disable { key } => {
                target
                    .send(Method::POST, &one(&key, "/disable"), None)
                    .await
            }
            Self::Enable { key } => target.send(Method::POST, &one(&key, "/enable"), None).await,
            Self::Delete { key } => target.send(Method::DELETE, &one(&key, ""), None).await,
        }
    }
}

fn one(id: &str, action: &str) -> String {
    format!("/operator/keys/{}{action}", segment(id))
}

/// A key that cannot be printed is deleted again, so that there is none that its owner does not have.
async fn create(target: &Target, account: &str, body: &Value, bare: bool) -> Result<(), String> {
    let path = target.account_path(account).await? + "/keys";
    let created = target.call(Method::POST, &path, Some(body)).await?;
    let text = match created["key"].as_str() {
        Some(key) if bare => key.to_owned(),
        _ => target.rendered(&created),
    };
    if let Err(error) = output::print_secret(&text) {
        let id = created["id"].as_str().unwrap_or_default();
        let deleted = target.call(Method::DELETE, &one(id, ""), None).await;
        return Err(match deleted {
            Ok(_) => format!("{error}. The key was deleted again"),
            Err(reason) => format!("{error}. Delete the key {id}, which is lost: {reason}"),
        });
    }
    if bare {
        Ok(())
    } else {
        target.output.remark(REMINDER)
    }
}

/// A new secret that cannot be printed goes to standard error: a second rotation would end the one that programs use.
async fn rotate(target: &Target, key: &str, grace: Option<u32>) -> Result<(), String> {
    let body = json!({ "grace_seconds": grace });
    let path = one(key, "/rotate");
    let rotated = target.call(Method::POST, &path, Some(&body)).await?;
    let text = target.rendered(&rotated);
    if let Err(error) = output::print_secret(&text) {
        output::tell(&text);
        return Err(format!(
            "{error}. The new secret was written to standard error"
        ));
    }
    target.output.remark(REMINDER)
}

async fn list(
    target: &Target,
    account: &str,
    before: Option<&str>,
    deleted: bool,
) -> Result<(), String> {
    let before = before.map(|key| format!("before={}", segment(key)));
    let deleted = deleted.then(|| "deleted=true".to_owned());
    let query: Vec<_> = before.into_iter().chain(deleted).collect();
    let path = format!(
        "{}/keys?{}",
        target.account_path(account).await?,
        query.join("&")
    );
    let response = target.call(Method::GET, &path, None).await?;
    target.print(&response)?;
    let last = response["data"].as_array().and_then(|keys| keys.last());
    match last.and_then(|key| key["id"].as_str()) {
        Some(last) if response["has_more"] == true => {
            let older = format!("\nThere are older keys: add --before {last}");
            target.output.remark(&older)
        }
        _ => Ok(()),
    }
}
