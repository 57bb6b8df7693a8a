//! Commands that call the operator API of a running gateway.

use std::path::PathBuf;

use axum::http::Method;
use clap::Args;
use serde_json::Value;

mod accounts;
pub(crate) mod audit;
mod budgets;
mod client;
mod credit;
mod keys;
mod limits;
mod members;
mod models;
mod projects;
mod requests;
mod secret;
mod suggestion;
pub(crate) mod table;

pub(crate) use accounts::AccountCommand;
pub(crate) use budgets::BudgetCommand;
pub(crate) use credit::CreditCommand;
pub(crate) use keys::KeyCommand;
pub(crate) use limits::LimitCommand;
pub(crate) use members::MemberCommand;
pub(crate) use models::ModelCommand;
pub(crate) use projects::ProjectCommand;
pub(crate) use requests::{RequestOptions, RouteOptions};
pub(crate) use secret::SecretCommand;

use super::output::OutputOption;

/// Which gateway a command calls, and how its response is printed.
#[derive(Args)]
pub(crate) struct Target {
    /// The URL of the operator API of a running gateway
    #[arg(
        long,
        env = "TOLLGATE_OPERATOR_URL",
        default_value = "http://127.0.0.1:9090",
        global = true
    )]
    operator_url: String,
    /// The file with the operator token [default: the token is in `TOLLGATE_OPERATOR_TOKEN`]
    #[arg(
        long,
        value_name = "FILE",
        env = "TOLLGATE_OPERATOR_TOKEN_FILE",
        global = true
    )]
    operator_token_file: Option<PathBuf>,
    #[command(flatten)]
    pub output: OutputOption,
}

impl Target {
    /// Sends one request to the operator API.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let token = self.token()?;
        client::call(&self.operator_url, &token, method, path, body).await
    }

    fn token(&self) -> Result<String, String> {
        let Some(file) = &self.operator_token_file else {
            return std::env::var("TOLLGATE_OPERATOR_TOKEN").map_err(|_| {
                "name the file with the operator token with --operator-token-file, or set TOLLGATE_OPERATOR_TOKEN. \
                 With `tollgate dev`: set -a; . data/dev.env; set +a"
                    .to_owned()
            });
        };
        let token = std::fs::read_to_string(file)
            .map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
        Ok(token.trim().to_owned())
    }

    /// Sends one request and prints the response.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<(), String> {
        let changes = method != Method::GET;
        let response = self.call(method, path, body.as_ref()).await?;
        let printed = self.print(&response);
        printed.map_err(|error| {
            if changes {
                format!("it was done, but {error}")
            } else {
                error
            }
        })
    }

    pub(crate) fn print(&self, response: &Value) -> Result<(), String> {
        self.output.print(|| table::render(response), response)
    }

    /// The text that [`Self::print`] prints.
    fn rendered(&self, response: &Value) -> String {
        if self.output.json {
            response.to_string()
        } else {
            table::render(response)
        }
    }

    /// The ID of an account that is given by its ID or its email.
    pub(crate) async fn account_id(&self, given: &str) -> Result<String, String> {
        if !given.contains('@') {
            return Ok(given.to_owned());
        }
        let path = format!("/operator/accounts?email={}", segment(given));
        let found = self.call(Method::GET, &path, None).await?;
        let found = found["data"].as_array().into_iter().flatten();
        let ids: Vec<_> = found.filter_map(|account| account["id"].as_str()).collect();
        match ids.as_slice() {
            [id] => Ok((*id).to_owned()),
            [] => Err(format!("no account has the email {given}")),
            several => Err(format!(
                "{} accounts have the email {given}; give the ID of one: {}",
                several.len(),
                several.join(", ")
            )),
        }
    }

    /// The path of an account that is given by its ID or its email.
    async fn account_path(&self, given: &str) -> Result<String, String> {
        let id = self.account_id(given).await?;
        Ok(format!("/operator/accounts/{}", segment(&id)))
    }
}

/// Escapes an ID, which may be any text, as one segment of a path.
pub(super) fn segment(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    id.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
