//! `tollgate limit`.

use axum::http::Method;
use clap::Subcommand;
use serde_json::{Value, json};

use super::Target;

const PATH: &str = "/operator/limits";

#[derive(Subcommand)]
pub(crate) enum LimitCommand {
    /// Set ceilings; without --account or --model they apply to all accounts or models
    Set {
        /// The account's ID or email
        #[arg(long)]
        account: Option<String>,
        /// The model's ID
        #[arg(long)]
        model: Option<String>,
        /// Requests per minute
        #[arg(long)]
        rpm: Option<u32>,
        /// Tokens per minute
        #[arg(long)]
        tpm: Option<u32>,
    },
    /// Remove the ceilings of this account and model
    Clear {
        /// The account's ID or email
        #[arg(long)]
        account: Option<String>,
        /// The model's ID
        #[arg(long)]
        model: Option<String>,
    },
    /// List all ceilings that are set
    List,
}

impl LimitCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        match self {
            Self::Set {
                account,
                model,
                rpm,
                tpm,
            } => {
                let mut body = place(target, account, model).await?;
                for (name, value) in [("rpm", rpm), ("tpm", tpm)] {
                    if let Some(value) = value {
                        body[name] = value.into();
                    }
                }
                target.send(Method::PUT, PATH, Some(body)).await
            }
            Self::Clear { account, model } => {
                let mut body = place(target, account, model).await?;
                body["rpm"] = Value::Null;
                body["tpm"] = Value::Null;
                target.send(Method::PUT, PATH, Some(body)).await
            }
            Self::List => target.send(Method::GET, PATH, None).await,
        }
    }
}

async fn place(
    target: &Target,
    account: Option<String>,
    model: Option<String>,
) -> Result<Value, String> {
    let account = match account {
        Some(given) => Some(target.account_id(&given).await?),
        None => None,
    };
    Ok(json!({ "account": account, "model": model }))
}
