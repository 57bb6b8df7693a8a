//! `tollgate config`: what operators changed in the configuration, through the operator API of a running gateway or
//! directly in the store of one that does not start.

use std::path::PathBuf;

use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    operator::Target,
    output,
    store_option::{NamedStore, StoreOption},
};
use crate::{
    backoffice::{Action, Backoffice, NewConfigVersion},
    base::{keys::random_id, timestamp},
    config::changes::Changes,
    gateway::actions::rolled_back,
};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show what differs from the file, and which version each gateway uses
    Show {
        /// Show this version instead of the one in use
        #[arg(long, value_name = "VERSION")]
        version: Option<i64>,
    },
    /// List the versions, newest first, at most 100 at a time
    History {
        /// Only versions older than this one
        #[arg(long, value_name = "VERSION")]
        before: Option<i64>,
    },
    /// Replace all changes by those of a JSON file, in the form of `changes` of `config show --json`
    Apply {
        /// The file (JSON)
        file: PathBuf,
        /// The version that they were based on: a newer one refuses them
        #[arg(long, value_name = "VERSION")]
        based_on: i64,
        /// Why, for the history
        #[arg(long, default_value = "")]
        note: String,
        /// Only check them
        #[arg(long)]
        preview: bool,
    },
    /// Go back to an earlier version, as a new one
    Rollback(Box<Rollback>),
}

#[derive(Args)]
pub(crate) struct Rollback {
    /// The version; 0 is the file without changes
    #[arg(long, value_name = "VERSION")]
    to: i64,
    /// Change the store directly, because the gateway does not start
    #[command(flatten)]
    store: OptionalStore,
}

#[derive(Args)]
#[group(multiple = false)]
struct OptionalStore {
    /// Work on the store of this configuration file, because its gateway does not start
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Work on this store (a file, or `postgres://…`), because its gateway does not start
    #[arg(long, value_name = "FILE|URL")]
    database: Option<String>,
}

pub(crate) async fn config(target: &Target, command: ConfigCommand) -> Result<(), String> {
    match command {
        ConfigCommand::Show { version: None } => show(target).await,
        ConfigCommand::Show {
            version: Some(number),
        } => {
            let path = format!("/operator/config/versions/{number}");
            target.send(Method::GET, &path, None).await
        }
        ConfigCommand::History { before } => {
            let query = before.map(|before| format!("?before={before}"));
            let path = format!("/operator/config/versions{}", query.unwrap_or_default());
            target.send(Method::GET, &path, None).await
        }
        ConfigCommand::Apply {
            file,
            based_on,
            note,
            preview,
        } => {
            let shown = file.display();
            let text = std::fs::read_to_string(&file);
            let text = text.map_err(|error| format!("{shown} cannot be read: {error}"))?;
            let changes: Value = serde_json::from_str(&text)
                .map_err(|error| format!("{shown} is not JSON: {error}"))?;
            let body = json!({ "changes": changes, "based_on": based_on, "note": note, "preview": preview });
            target
                .send(Method::PUT, "/operator/config", Some(body))
                .await
        }
        ConfigCommand::Rollback(rollback) => {
            if let Some(store) = rollback.store.find()? {
                let number = roll_back(&store, rollback.to).await?;
                let text = || format!("Version {number} is {} again.", rolled_back(rollback.to));
                return target.output.print(text, &json!({ "version": number }));
            }
            let body = json!({ "to": rollback.to });
            let path = "/operator/config/rollback";
            target.send(Method::POST, path, Some(body)).await
        }
    }
}

impl OptionalStore {
    fn find(self) -> Result<Option<NamedStore>, String> {
        if self.config.is_none() && self.database.is_none() {
            return Ok(None);
        }
        StoreOption::named(self.config, self.database)
            .find()
            .map(Some)
    }
}

/// As text: the version, the gateways, and each entry that differs.
async fn show(target: &Target) -> Result<(), String> {
    let shown = target.call(Method::GET, "/operator/config", None).await?;
    target.output.print(|| as_text(&shown), &shown)
}

fn as_text(shown: &Value) -> String {
    let mut lines = vec![format!("version {}", shown["version"])];
    for gateway in shown["gateways"].as_array().into_iter().flatten() {
        let text = |key: &str| gateway[key].as_str().unwrap_or_default().to_owned();
        let problem = match text("problem") {
            problem if problem.is_empty() => String::new(),
            problem => format!(": {problem}"),
        };
        lines.push(format!(
            "{} uses version {}{problem}",
            text("gateway"),
            gateway["version"]
        ));
    }
    for entry in shown["entries"].as_array().into_iter().flatten() {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        lines.push(format!(
            "\n{} {} ({})",
            text("kind"),
            text("name"),
            text("source")
        ));
        if entry["outdated"] == true {
            lines.push("  the file's entry has changed since".to_owned());
        }
        for (sign, key) in [('-', "before"), ('+', "after")] {
            for line in text(key).lines() {
                lines.push(format!("  {sign} {line}"));
            }
        }
    }
    lines.join("\n")
}

/// Adds a version with the content of an earlier one, in the store of a gateway that does not start.
async fn roll_back(store: &NamedStore, to: i64) -> Result<i64, String> {
    let backoffice = match store {
        NamedStore::File { database, .. } => Backoffice::beside(database),
        NamedStore::Postgres(address) => Backoffice::shared((**address).clone()),
    };
    let failed = |error: crate::backoffice::BackofficeError| error.to_string();
    let newest = backoffice.config_newer_than(0).await.map_err(failed)?;
    let Some((newest, current)) = newest else {
        return Err("nothing was changed in the console; the file alone is used".into());
    };
    let content = match to {
        0 => Changes::default().to_json(),
        to => {
            let found = backoffice.config_version(to).await.map_err(failed)?;
            found.ok_or_else(|| format!("there is no version {to}"))?.1
        }
    };
    let what = rolled_back(to);
    if says_the_same(&content, &current) {
        return Err(format!(
            "version {newest}, the newest, already says what {what} says; nothing was changed"
        ));
    }
    let (actor, at_ms) = ("command line", timestamp::now_ms());
    let version = NewConfigVersion {
        id: &random_id("config_"),
        at_ms,
        actor,
        note: &format!("Rolled back to {what}"),
        content: &content,
        based_on: newest,
    };
    let added = backoffice
        .add_config_version(version)
        .await
        .map_err(failed)?;
    let number = added.ok_or("the configuration was changed meanwhile; try again")?;
    let after = json!({ "version": number, "note": format!("Rolled back to {what}") });
    let action = Action {
        at_ms,
        actor: actor.into(),
        what: "config.change".into(),
        subject: "configuration".into(),
        before: Some(json!({ "version": newest }).to_string()),
        after: Some(after.to_string()),
    };
    // As with every operator action, the change stays.
    if let Err(error) = backoffice.record_once(&random_id("action_"), &action).await {
        output::tell(&format!(
            "tollgate: the rollback was performed, but recording it failed: {error}: config.change by {actor} at {}, \
             version {newest} to {after}",
            timestamp::shown_ms(at_ms)
        ));
    }
    Ok(number)
}

fn says_the_same(one: &str, other: &str) -> bool {
    match (Changes::parse(one), Changes::parse(other)) {
        (Ok(one), Ok(other)) => one.say_the_same_as(&other),
        _ => one == other,
    }
}
