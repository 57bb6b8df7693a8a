//! The configuration: what differs from the file, earlier versions, and which version each gateway uses.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse as _, Response},
};
use serde::{Deserialize, Serialize};

use super::{accounts::List, body::JsonBody, error::OperatorError, path::Path, query::ReadQuery};
use crate::{
    api::Json,
    backoffice::{ConfigVersion, GatewayReport},
    base::timestamp,
    config::changes::{Changes, Entry, Kind},
    gateway::{
        Gateway,
        actions::{NewVersion, OperatorActions},
        configuration::check,
    },
};

const MAX_VERSIONS: usize = 100;
/// Seconds after which a gateway that has not reported is taken to be gone.
pub(crate) const GONE_SECONDS: i64 = 90;

#[derive(Serialize)]
struct ConfigurationObject {
    object: &'static str,
    /// The version that this gateway uses; 0 is the file alone.
    version: i64,
    /// Why it does not use the newest version.
    problem: Option<String>,
    changes: Changes,
    entries: Vec<EntryObject>,
    gateways: Vec<GatewayObject>,
}

/// An entry that differs from the file.
#[derive(Serialize)]
struct EntryObject {
    kind: &'static str,
    name: String,
    source: &'static str,
    /// Whether the file has changed the entry since.
    outdated: bool,
    before: Option<String>,
    after: Option<String>,
}

#[derive(Serialize)]
struct GatewayObject {
    gateway: String,
    version: i64,
    problem: Option<String>,
    seen_at: String,
}

#[derive(Serialize)]
struct VersionObject {
    object: &'static str,
    version: i64,
    at: String,
    by: String,
    note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

#[derive(Serialize)]
struct PreviewObject {
    object: &'static str,
    ok: bool,
    mistakes: Vec<String>,
}

impl From<Entry> for EntryObject {
    fn from(entry: Entry) -> Self {
        Self {
            kind: entry.kind.as_str(),
            source: entry.source().as_str(),
            outdated: entry.is_outdated(),
            before: entry.original_text(),
            after: entry.current_text(),
            name: entry.name,
        }
    }
}

impl From<GatewayReport> for GatewayObject {
    fn from(report: GatewayReport) -> Self {
        Self {
            gateway: report.gateway,
            version: report.number,
            problem: report.problem,
            seen_at: timestamp::shown(report.seen_at),
        }
    }
}

impl From<ConfigVersion> for VersionObject {
    fn from(version: ConfigVersion) -> Self {
        Self {
            object: "configuration.version",
            version: version.number,
            at: timestamp::shown_ms(version.at_ms),
            by: version.actor,
            note: version.note,
            changes: None,
        }
    }
}

pub(crate) async fn show(State(gateway): State<Arc<Gateway>>) -> Result<Response, OperatorError> {
    gateway.follow_configuration().await?;
    let since = timestamp::now() - GONE_SECONDS;
    let reports = gateway.backoffice.config_reports(since).await?;
    Ok(Json(configuration(&gateway, reports)).into_response())
}

fn configuration(gateway: &Gateway, reports: Vec<GatewayReport>) -> ConfigurationObject {
    let routes = gateway.routes();
    let changes = (*routes.revision.changes).clone();
    let entries = Kind::ALL
        .into_iter()
        .flat_map(|kind| routes.base.entries(kind, &changes));
    let entries = entries.filter(|entry| entry.change.is_some());
    let entries = entries.map(EntryObject::from).collect();
    ConfigurationObject {
        object: "configuration",
        version: routes.revision.number,
        problem: gateway
            .configuration
            .problem()
            .map(|problem| (*problem).clone()),
        entries,
        changes,
        gateways: reports.into_iter().map(GatewayObject::from).collect(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConfiguration {
    changes: Changes,
    based_on: i64,
    #[serde(default)]
    note: String,
    /// Only check the changes.
    #[serde(default)]
    preview: bool,
}

pub(crate) async fn change(
    State(gateway): State<Arc<Gateway>>,
    JsonBody(new): JsonBody<NewConfiguration>,
) -> Result<Response, OperatorError> {
    if new.preview {
        let checked = check(&gateway, new.changes).await;
        let mistakes = checked.err().unwrap_or_default();
        let preview = PreviewObject {
            object: "configuration.preview",
            ok: mistakes.is_empty(),
            mistakes,
        };
        return Ok(Json(preview).into_response());
    }
    let version = NewVersion {
        changes: new.changes,
        based_on: new.based_on,
        note: new.note,
    };
    let actions = OperatorActions::by_token(&gateway);
    actions.change_configuration(version).await?;
    Ok(Json(configuration(&gateway, Vec::new())).into_response())
}

#[derive(Deserialize)]
pub(crate) struct VersionsQuery {
    before: Option<i64>,
}

pub(crate) async fn versions(
    State(gateway): State<Arc<Gateway>>,
    ReadQuery(query): ReadQuery<VersionsQuery>,
) -> Result<Response, OperatorError> {
    let versions = gateway
        .backoffice
        .config_versions(query.before, MAX_VERSIONS)
        .await?;
    let versions = versions.into_iter().map(VersionObject::from);
    Ok(Json(List::new(versions.collect())).into_response())
}

pub(crate) async fn version(
    State(gateway): State<Arc<Gateway>>,
    Path(number): Path<i64>,
) -> Result<Response, OperatorError> {
    let found = gateway.backoffice.config_version(number).await?;
    let (version, content) = found.ok_or(OperatorError::NoSuchVersion(number))?;
    let changes =
        Changes::parse(&content).map_err(|reason| OperatorError::Configuration(vec![reason]))?;
    let object = VersionObject {
        changes: Some(changes),
        ..version.into()
    };
    Ok(Json(object).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rollback {
    /// 0 is the file alone. There is no default: a request that is sent twice would go back and forth.
    to: i64,
    based_on: Option<i64>,
}

pub(crate) async fn roll_back(
    State(gateway): State<Arc<Gateway>>,
    JsonBody(rollback): JsonBody<Rollback>,
) -> Result<Response, OperatorError> {
    let newest = gateway.backoffice.config_versions(None, 1).await?;
    let newest = newest.first().map_or(0, |newest| newest.number);
    let based_on = rollback.based_on.unwrap_or(newest);
    let actions = OperatorActions::by_token(&gateway);
    let to = rollback.to;
    actions.roll_back_configuration(to, based_on).await?;
    Ok(Json(configuration(&gateway, Vec::new())).into_response())
}
