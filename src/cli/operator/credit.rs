//! `tollgate credit`.

use axum::http::Method;
use clap::Subcommand;
use serde_json::json;

use super::Target;

#[derive(Subcommand)]
pub(crate) enum CreditCommand {
    /// Grant credit in US dollars
    Grant {
        /// The account's ID or email
        account: String,
        /// US dollars, for example 10.00
        amount: String,
        /// When the credit expires, in ISO 8601, for example 2027-01-31T00:00:00Z
        #[arg(long)]
        expires_at: Option<String>,
        /// Why; the account's owner sees it
        #[arg(long)]
        reason: Option<String>,
        /// Your own reference, e.g. of a payment; a repeated reference does not grant credit again
        #[arg(long)]
        reference: Option<String>,
    },
    /// List the grants of an account
    List {
        /// The account's ID or email
        account: String,
    },
}

impl CreditCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        match self {
            Self::Grant {
                account,
                amount,
                expires_at,
                reason,
                reference,
            } => {
                let body = json!({
                    "amount": amount, "expires_at": expires_at, "reason": reason,
                    "reference": reference,
                });
                let path = target.account_path(&account).await? + "/grants";
                target.send(Method::POST, &path, Some(body)).await
            }
            Self::List { account } => {
                let path = target.account_path(&account).await? + "/grants";
                target.send(Method::GET, &path, None).await
            }
        }
    }
}
