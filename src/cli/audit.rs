//! `tollgate audit`: does everything add up?

use std::path::Path;

use axum::http::Method;
use clap::Args;
use serde_json::Value;

use super::operator_commands::Target;
use crate::{
    api::operator::AuditObject,
    db::postgres::Address,
    ledger::{self, Audit},
};

#[derive(Args)]
pub struct Options {
    /// Look through this database (a file, or `postgres://…`) instead of asking a running gateway
    #[arg(long, value_name = "FILE|URL")]
    database: Option<String>,
    #[command(flatten)]
    target: Target,
}

pub async fn run(options: &Options) -> Result<(), String> {
    let audit = if let Some(database) = &options.database {
        let audit = look_through(database).await?;
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

async fn look_through(database: &str) -> Result<Audit, String> {
    if !database.starts_with("postgres") {
        return ledger::audit_file(Path::new(database));
    }
    let address = Address::parse(database).map_err(|mistake| format!("the URL {mistake}"))?;
    let looked = ledger::audit_database(&address).await;
    looked.map_err(|error| format!("{address} cannot be audited: {error}"))
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
    let strays = audit["stray_holds"].as_array().into_iter().flatten();
    let strays = strays.map(|stray| {
        let word = |key: &str| stray[key].as_str().unwrap_or_default().to_owned();
        let (account, call) = (word("account_id"), word("call"));
        format!("\n{account}: the hold of {call} had no running call, and was released")
    });
    format!("{looked}\n{verdict}{}", strays.collect::<String>())
}
