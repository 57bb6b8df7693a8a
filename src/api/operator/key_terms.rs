//! The terms of a key in requests and responses: its project, when it expires, its models and its own ceilings.
//!
//! In a change, a field that is absent stays as it is, and `null` removes it.

use serde::{Deserialize, Serialize};

use super::{body::set_or_clear, error::OperatorError};
use crate::{
    base::timestamp,
    gateway::Gateway,
    ledger::{DEFAULT_PROJECT, Edit, Key, KeyChange, KeyTerms, NewKey},
};

/// Most models in the list of a key.
const MAX_MODELS: usize = 100;

/// The fields of a request that creates a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Create {
    #[serde(default)]
    name: String,
    project: Option<String>,
    member: Option<String>,
    expires_at: Option<String>,
    models: Option<Vec<String>>,
    rpm: Option<u32>,
    tpm: Option<u32>,
}

/// The fields of a request that changes a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    name: Option<String>,
    #[serde(default, deserialize_with = "set_or_clear")]
    project: Edit<String>,
    #[serde(default, deserialize_with = "set_or_clear")]
    expires_at: Edit<String>,
    #[serde(default, deserialize_with = "set_or_clear")]
    models: Edit<Vec<String>>,
    #[serde(default, deserialize_with = "set_or_clear")]
    rpm: Edit<u32>,
    #[serde(default, deserialize_with = "set_or_clear")]
    tpm: Edit<u32>,
}

impl Create {
    pub(crate) fn checked(self, gateway: &Gateway) -> Result<NewKey, OperatorError> {
        Ok(NewKey {
            name: self.name,
            project_id: self.project.and_then(project),
            member_id: self.member,
            terms: KeyTerms {
                expires_at: self.expires_at.as_deref().map(expiry).transpose()?,
                models: self.models.map(|list| models(gateway, list)).transpose()?,
                rpm: self.rpm.map(|rpm| ceiling("rpm", rpm)).transpose()?,
                tpm: self.tpm.map(|tpm| ceiling("tpm", tpm)).transpose()?,
            },
        })
    }
}

impl Change {
    pub(crate) fn checked(self, gateway: &Gateway) -> Result<KeyChange, OperatorError> {
        let project_id = match self.project {
            Edit::Set(id) if id == DEFAULT_PROJECT => Edit::Clear,
            project => project,
        };
        Ok(KeyChange {
            name: self.name,
            project_id,
            expires_at: self.expires_at.try_map(|at| expiry(&at))?,
            models: self.models.try_map(|list| models(gateway, list))?,
            rpm: self.rpm.try_map(|rpm| ceiling("rpm", rpm))?,
            tpm: self.tpm.try_map(|tpm| ceiling("tpm", tpm))?,
        })
    }
}

/// `None` for the default project.
fn project(id: String) -> Option<String> {
    (id != DEFAULT_PROJECT).then_some(id)
}

fn expiry(text: &str) -> Result<i64, OperatorError> {
    timestamp::read(text).ok_or_else(|| {
        let message = "`expires_at` must be an ISO 8601 time, e.g. \"2027-01-31T00:00:00Z\".";
        OperatorError::invalid("expires_at", message)
    })
}

fn models(gateway: &Gateway, list: Vec<String>) -> Result<Vec<String>, OperatorError> {
    if list.is_empty() || list.len() > MAX_MODELS {
        let message = format!(
            "`models` must have 1 to {MAX_MODELS} IDs of models; `null` allows all that the account may call."
        );
        return Err(OperatorError::invalid("models", message));
    }
    let routes = gateway.routes();
    let unknown = list.iter().find(|id| routes.catalog.find(id).is_none());
    match unknown {
        None => Ok(list),
        Some(id) => {
            let message = format!("`models` has `{id}`, which is not a model of the catalog.");
            Err(OperatorError::invalid("models", message))
        }
    }
}

fn ceiling(name: &'static str, ceiling: u32) -> Result<u32, OperatorError> {
    if ceiling == 0 {
        let message = format!("`{name}` must be at least 1; 0 would refuse every request.");
        return Err(OperatorError::invalid(name, message));
    }
    Ok(ceiling)
}

/// The terms of a key in a response.
#[derive(Serialize)]
pub(crate) struct TermsObject<'a> {
    project: &'a str,
    member: Option<&'a str>,
    expires_at: Option<String>,
    models: Option<&'a [String]>,
    rpm: Option<u32>,
    tpm: Option<u32>,
}

impl<'a> TermsObject<'a> {
    pub(crate) fn of(key: &'a Key) -> Self {
        let (payer, terms) = (&key.payer, &key.terms);
        Self {
            project: payer.project(),
            member: payer.member_id.as_deref(),
            expires_at: terms.expires_at.map(timestamp::shown),
            models: terms.models.as_deref(),
            rpm: terms.rpm,
            tpm: terms.tpm,
        }
    }
}
