//! `tollgate audit`: recomputes every balance, in a running gateway or directly in a database.

use std::path::Path;

use axum::http::Method;
use clap::Args;
use serde_json::Value;

use super::Target;
use crate::{
    api::operator::AuditObject,
    db::postgres::Address,
    ledger::{self, Audit},
};

#[derive(Args)]
pub(crate) struct Options {
    /// Audit this database (a file, or `postgres://…`) directly instead of through a running gateway
    #[arg(long, value_name = "FILE|URL")]
    database: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(options: &Options) -> Result<(), String> {
    let audit = if let Some(database) = &options.database {
        let audit = audit_database(database).await?;
        serde_json::to_value(AuditObject::from(audit)).map_err(|error| error.to_string())?
    } else {
        let response = options.target.call(Method::POST, "/operator/audit", None);
        response.await?
    };
    options.target.output.print(|| as_text(&audit), &audit)?;
    match audit["ok"] {
        Value::Bool(true) => Ok(()),
        _ => Err("the ledger does not add up".into()),
    }
}

async fn audit_database(database: &str) -> Result<Audit, String> {
    if !database.starts_with("postgres") {
        return ledger::audit_file(Path::new(database));
    }
    let address = Address::parse(database).map_err(|mistake| format!("the URL {mistake}"))?;
    let audit = ledger::audit_database(&address).await;
    audit.map_err(|error| format!("{address} cannot be audited: {error}"))
}

/// The audit as text: counts, then violations and released holds, one per line.
fn as_text(audit: &Value) -> String {
    let violations = audit["violations"].as_array();
    let lines = violations.into_iter().flatten().map(|violation| {
        let field = |key: &str| violation[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", field("account_id"), field("what"))
    });
    let counts = format!(
        "{} accounts, {} entries, {} of them charges, in {} ms",
        audit["accounts"], audit["entries"], audit["charges"], audit["duration_ms"]
    );
    let verdict = match audit["ok"] {
        Value::Bool(true) => "Everything adds up.".to_owned(),
        _ => lines.collect::<Vec<_>>().join("\n"),
    };
    let strays = audit["stray_holds"].as_array().into_iter().flatten();
    let strays = strays.map(|stray| {
        let field = |key: &str| stray[key].as_str().unwrap_or_default().to_owned();
        let (account, call) = (field("account_id"), field("call"));
        format!("\n{account}: the hold of {call} had no running call, and was released")
    });
    format!("{counts}\n{verdict}{}", strays.collect::<String>())
}
