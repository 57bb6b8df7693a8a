//! `tollgate account`.

use axum::http::Method;
use clap::Subcommand;
use serde_json::json;

use super::Target;
use crate::cli::output;

#[derive(Subcommand)]
pub(crate) enum AccountCommand {
    /// Create an account
    Create {
        /// The email of its owner
        #[arg(long)]
        email: String,
        /// personal or business
        #[arg(long, default_value = "personal")]
        track: String,
        /// free, basic, standard, pro or max; flex on the business track
        #[arg(long, default_value = "free")]
        tier: String,
        /// What people call it
        #[arg(long)]
        name: Option<String>,
    },
    /// List all accounts
    List,
    /// Show one account with its balance
    Show {
        /// The account's ID or email
        account: String,
    },
    /// Move an account to another tier or track
    Change {
        /// The account's ID or email
        account: String,
        /// free, basic, standard, pro or max; flex on the business track
        #[arg(long)]
        tier: Option<String>,
        /// personal or business
        #[arg(long)]
        track: Option<String>,
    },
    /// Close an account: requests with its keys get 402 `no_account`
    Close {
        /// The account's ID or email
        account: String,
    },
    /// Reopen a closed account
    Reopen {
        /// The account's ID or email
        account: String,
    },
    /// List the people who can sign in to an account
    People {
        /// The account's ID or email
        account: String,
    },
    /// Create an invitation link to an account for a person; it is shown once
    Invite {
        /// The account's ID or email
        account: String,
        /// The person's email
        email: String,
        /// What they may do in the account: owner, billing, developer or viewer
        #[arg(long, default_value = "owner", conflicts_with = "operator")]
        role: String,
        /// An owner who may also use the operator console
        #[arg(long)]
        operator: bool,
    },
}

impl AccountCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        let change = async |account: &str, body| {
            let path = target.account_path(account).await?;
            target.send(Method::PATCH, &path, Some(body)).await
        };
        match self {
            Self::Create {
                email,
                track,
                tier,
                name,
            } => {
                let body = json!({ "email": email, "track": track, "tier": tier, "name": name });
                let path = "/operator/accounts";
                target.send(Method::POST, path, Some(body)).await
            }
            Self::List => target.send(Method::GET, "/operator/accounts", None).await,
            Self::Show { account } => {
                let path = target.account_path(&account).await?;
                target.send(Method::GET, &path, None).await
            }
            Self::Change {
                account,
                tier,
                track,
            } => change(&account, json!({ "tier": tier, "track": track })).await,
            Self::Close { account } => change(&account, json!({ "closed": true })).await,
            Self::Reopen { account } => change(&account, json!({ "closed": false })).await,
            Self::People { account } => {
                let path = target.account_path(&account).await? + "/people";
                target.send(Method::GET, &path, None).await
            }
            Self::Invite {
                account,
                email,
                role,
                operator,
            } => {
                let role = if operator { "operator" } else { &*role };
                let path = target.account_path(&account).await? + "/invitations";
                invite(target, &path, &email, role).await
            }
        }
    }
}

async fn invite(target: &Target, path: &str, email: &str, role: &str) -> Result<(), String> {
    let body = json!({ "email": email, "role": role });
    let invited = target.call(Method::POST, path, Some(&body)).await?;
    let printed = output::print_secret(&target.rendered(&invited));
    printed.map_err(|error| format!("{error}. The link is lost; invite {email} again"))?;
    let reminder = "\nThis is the only time the link is shown. Anyone who has it can sign in.";
    target.output.remark(reminder)
}
