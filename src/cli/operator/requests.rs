//! `tollgate request` and `tollgate route`: one request that was made, and one that could be.

use axum::http::Method;
use clap::Args;
use serde_json::json;

use super::{Target, segment, table};

#[derive(Args)]
pub(crate) struct RequestOptions {
    #[command(flatten)]
    target: Target,
    /// The X-Request-ID of its response, or its ID in the usage rows
    id: String,
}

#[derive(Args)]
pub(crate) struct RouteOptions {
    #[command(flatten)]
    target: Target,
    /// The user's message
    prompt: String,
    /// The ID of the hybrid
    #[arg(long, default_value = "svc-hybrid-tiered")]
    model: String,
    /// Route for this account (its ID or email), with its plan and conversations [default: a plan with every model]
    #[arg(long)]
    account: Option<String>,
}

impl RequestOptions {
    pub(crate) async fn run(self) -> Result<(), String> {
        let path = format!("/operator/requests/{}", segment(&self.id));
        self.target.send(Method::GET, &path, None).await
    }
}

impl RouteOptions {
    pub(crate) async fn run(self) -> Result<(), String> {
        let target = &self.target;
        let message = json!({ "role": "user", "content": self.prompt });
        let body = json!({ "model": self.model, "messages": [message] });
        let mut path = "/operator/routing/explain".to_owned();
        if let Some(account) = &self.account {
            path.push_str("?account=");
            path.push_str(&segment(&target.account_id(account).await?));
        }
        let decision = target.call(Method::POST, &path, Some(&body)).await?;
        let text = || {
            // As separate tables: the targets with the reasons against them, and the contributions to the scores.
            let mut fields = decision.clone();
            let tables = ["candidates", "contributions"].map(|name| {
                let rows = fields
                    .as_object_mut()
                    .and_then(|all| all.shift_remove(name));
                table::render(&json!({ "data": rows }))
            });
            format!("{}\n\n{}", table::render(&fields), tables.join("\n\n"))
        };
        target.output.print(text, &decision)
    }
}
