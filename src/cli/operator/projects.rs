//! `tollgate project`.

use axum::http::Method;
use clap::Subcommand;
use serde_json::json;

use super::{Target, segment};

#[derive(Subcommand)]
pub(crate) enum ProjectCommand {
    /// Create a project, which keys can belong to
    Create {
        /// The account's ID or email
        account: String,
        /// What people call it
        name: String,
    },
    /// List an account's projects, archived ones too
    List {
        /// The account's ID or email
        account: String,
    },
    /// Rename a project
    Rename {
        /// The project's ID
        project: String,
        /// Its new name
        name: String,
    },
    /// Archive a project without keys; its usage stays its own
    Archive {
        /// The project's ID
        project: String,
    },
}

impl ProjectCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        let one = |id: &str| format!("/operator/projects/{}", segment(id));
        let named = |name: String| Some(json!({ "name": name }));
        let (method, path, body) = match self {
            Self::Create { account, name } => {
                let path = target.account_path(&account).await? + "/projects";
                (Method::POST, path, named(name))
            }
            Self::List { account } => {
                let path = target.account_path(&account).await? + "/projects";
                (Method::GET, path, None)
            }
            Self::Rename { project, name } => (Method::PATCH, one(&project), named(name)),
            Self::Archive { project } => (Method::DELETE, one(&project), None),
        };
        target.send(method, &path, body).await
    }
}
