//! `tollgate model`.

use axum::http::Method;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{Target, segment, suggestion::Suggestion};

#[derive(Subcommand)]
pub(crate) enum ModelCommand {
    /// List every model with its state
    List,
    /// Take a model out of service: not listed, and 404 when called
    Disable {
        /// The model's ID
        model: String,
    },
    /// Put a model back in service
    Enable {
        /// The model's ID
        model: String,
    },
    /// Hide a model from lists; it stays callable
    Unlist {
        /// The model's ID
        model: String,
    },
    /// Print models as TOML for the configuration, at the vendors' list prices plus a margin; calls no gateway
    Suggest(Suggestion),
    /// List a hidden model again
    Relist {
        /// The model's ID
        model: String,
    },
}

impl ModelCommand {
    pub(crate) async fn run(self, target: &Target) -> Result<(), String> {
        let set = async |id: &str, body: Value| {
            let path = format!("/operator/models/{}", segment(id));
            target.send(Method::PUT, &path, Some(body)).await
        };
        match self {
            Self::Suggest(suggestion) => suggestion.print(target.output),
            Self::List => target.send(Method::GET, "/operator/models", None).await,
            Self::Disable { model } => set(&model, json!({ "enabled": false })).await,
            Self::Enable { model } => set(&model, json!({ "enabled": true })).await,
            Self::Unlist { model } => set(&model, json!({ "unlisted": true })).await,
            Self::Relist { model } => set(&model, json!({ "unlisted": false })).await,
        }
    }
}
