//! `tollgate audit`: does everything add up?

use std::path::PathBuf;

use axum::http::Method;
use clap::Args;
use serde_json::Value;

use super::operator_commands::Target;
use crate::{ledger, operator::AuditObject};

#[derive(Args)]
pub struct Options {
    /// Look through this database file instead of asking a running gateway
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

pub async fn run(options: &Options) -> Result<(), String> {
    let audit = if let Some(file) = &options.database {
        let audit = ledger::audit_file(file)?;
        serde_json::to_value(AuditObject::from(audit)).map_err(|error| error.to_string())?
    } else {
        let asked = options.target.ask(Method::POST, "/operator/audit", None);
        asked.await?
    };
    if options.target.wants_json() {
        println!("{audit}");
    } else {
        println!("{}", told(&audit));
    }
    match audit["ok"] {
        Value::Bool(true) => Ok(()),
        _ => Err("the books do not add up".into()),
    }
}

fn told(audit: &Value) -> String {
    let found = audit["violations"].as_array();
    let lines = found.into_iter().flatten().map(|found| {
        let word = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", word("account_id"), word("what"))
    });
    let looked = format!(
        "{} accounts, {} entries, {} of them charges, in {} ms",
        audit["accounts"], audit["entries"], audit["charges"], audit["duration_ms"]
    );
    let verdict = match audit["ok"] {
        Value::Bool(true) => "Everything adds up.".to_owned(),
        _ => lines.collect::<Vec<_>>().join("\n"),
    };
    format!("{looked}\n{verdict}")
}
