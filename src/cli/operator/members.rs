//! `tollgate member`.

use axum::http::Method;
use clap::Subcommand;
use serde_json::json;

use super::{Target, segment};

#[derive(Subcommand)]
pub(crate) enum MemberCommand {
    /// List an account's members with their roles
    List {
        /// The account's ID or email
        account: String,
    },
    /// Change a member's role, with immediate effect
    Change {
        /// The member's ID, from the list
        member: String,
        /// owner, billing, developer or viewer
        role: String,
    },
    /// Remove a member: ends their sessions and deletes the keys that they made
    Remove {
        /// The member's ID, from the list
        member: String,
    },
    /// Turn off the two-factor authentication of a member who has lost it
    ResetTwoFactor {
        /// The member's ID, from the list
        member: String,
    },
}

impl MemberCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        let one = |id: &str| format!("/operator/members/{}", segment(id));
        let (method, path, body) = match self {
            Self::List { account } => {
                let path = target.account_path(&account).await? + "/members";
                (Method::GET, path, None)
            }
            Self::Change { member, role } => {
                let body = json!({ "role": role });
                (Method::PATCH, one(&member), Some(body))
            }
            Self::Remove { member } => (Method::DELETE, one(&member), None),
            Self::ResetTwoFactor { member } => {
                let path = format!("/operator/people/{}/second-factor", segment(&member));
                (Method::DELETE, path, None)
            }
        };
        target.send(method, &path, body).await
    }
}
