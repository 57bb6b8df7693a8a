//! `GET /openapi.json`: both APIs described for programs (OpenAPI 3.1).
//!
//! The descriptions are written as fragments, one JSON file for each subject: those in `public/` and `operator/` belong to
//! one API, those in `shared/` to both. The integration tests compare every response of a gateway with them.

use std::sync::LazyLock;

use axum::response::Response;
use serde_json::Value;

use super::json_response;

mod assembly;
#[cfg(test)]
mod tests;

pub use assembly::assemble;

/// Which API is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Public,
    Operator,
}

macro_rules! files {
    ($folder:literal: $($name:literal),+ $(,)?) => {
        &[$((
            concat!($folder, "/", $name, ".json"),
            include_str!(concat!($folder, "/", $name, ".json")),
        )),+]
    };
}

/// Fragments by their file.
type Files = &'static [(&'static str, &'static str)];

const PUBLIC: Files = files!("public":
    "head",
    "chat",
    "errors",
    "headers",
    "health",
    "key",
    "messages",
    "messages_request",
    "models",
    "parameters",
    "responses",
    "responses_events",
    "responses_items",
    "responses_request",
);

const OPERATOR: Files = files!("operator":
    "head",
    "accounts",
    "alerts",
    "analytics",
    "audit",
    "budgets",
    "configuration",
    "grants",
    "keys",
    "limits",
    "members",
    "metrics",
    "models",
    "people",
    "projects",
    "requests",
    "routing",
    "secret",
    "sessions",
    "usage",
);

const SHARED: Files = files!("shared": "openapi", "values", "errors", "anthropic_errors");

impl Api {
    /// The files that its description is made of; the first is the head.
    fn files(self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let own = match self {
            Self::Public => PUBLIC,
            Self::Operator => OPERATOR,
        };
        own.iter().chain(SHARED)
    }

    /// The description. It is assembled each time, because gateways need it once, for its text.
    pub fn document(self) -> Value {
        let files = self.files().map(|(name, text)| (*name, *text));
        assemble(files).expect("a unit test assembles both")
    }

    /// The description as it is sent.
    fn text(self) -> &'static str {
        static PUBLIC: LazyLock<String> = LazyLock::new(|| Api::Public.document().to_string());
        static OPERATOR: LazyLock<String> = LazyLock::new(|| Api::Operator.document().to_string());
        match self {
            Self::Public => &PUBLIC,
            Self::Operator => &OPERATOR,
        }
    }
}

/// Describes the public API.
pub(crate) async fn show_public() -> Response {
    json_response(Api::Public.text())
}

/// Describes the operator API.
pub(crate) async fn show_operator() -> Response {
    json_response(Api::Operator.text())
}
