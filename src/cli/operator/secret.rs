//! `tollgate secret`.

use axum::http::Method;
use clap::Subcommand;

use super::Target;

#[derive(Subcommand)]
pub(crate) enum SecretCommand {
    /// Replace the secret by a new random one: sessions of the operator token end, and known browsers become unknown
    Rotate,
}

impl SecretCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        let path = match self {
            Self::Rotate => "/operator/secret/rotate",
        };
        target.send(Method::POST, path, None).await
    }
}
