//! Whose key pays for a call, and the terms of a key: what binds it beyond what binds its account.
//!
//! All of it is optional. A key without terms never expires, may call what its account may, and shares its limits.

use std::sync::Arc;

use super::{Edit, Key};

/// The project of keys that name none.
pub(crate) const DEFAULT_PROJECT: &str = "default";

/// The key that a call is charged to, with what it belonged to when the call was admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payer {
    pub key_id: String,
    /// `None` for the default project.
    pub project_id: Option<String>,
    /// The person who made the key; `None` for a service key.
    pub member_id: Option<String>,
}

impl Payer {
    /// A service key of the default project.
    pub fn service(key_id: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            key_id: key_id.into(),
            ..Self::default()
        })
    }

    /// The project, by the ID under which the API shows it.
    pub(crate) fn project(&self) -> &str {
        self.project_id.as_deref().unwrap_or(DEFAULT_PROJECT)
    }
}

/// What binds a key in addition to what binds its account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyTerms {
    /// The key is refused from this time on, in seconds since 1970.
    pub expires_at: Option<i64>,
    /// IDs of the catalog models that it may call.
    pub models: Option<Vec<String>>,
    /// Requests and tokens in a window of 60 seconds, with all models together.
    pub rpm: Option<u32>,
    pub tpm: Option<u32>,
}

impl KeyTerms {
    pub(crate) fn has_expired(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    pub(crate) fn allows(&self, model_id: &str) -> bool {
        let allowed = self.models.as_ref();
        allowed.is_none_or(|models| models.iter().any(|allowed| allowed == model_id))
    }

    /// The list of models as it is stored: JSON.
    pub(super) fn models_json(&self) -> Option<String> {
        let models = self.models.as_ref()?;
        Some(serde_json::to_string(models).expect("strings serialize"))
    }

    pub(super) fn read_models(
        json: Option<&str>,
    ) -> Result<Option<Vec<String>>, serde_json::Error> {
        json.map(serde_json::from_str).transpose()
    }
}

/// Changes of a live key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyChange {
    pub name: Option<String>,
    /// Cleared, it is the default project.
    pub project_id: Edit<String>,
    pub expires_at: Edit<i64>,
    pub models: Edit<Vec<String>>,
    pub rpm: Edit<u32>,
    pub tpm: Edit<u32>,
}

impl KeyChange {
    pub(super) fn applied_to(self, key: Key) -> Key {
        let terms = (*key.terms).clone();
        let payer = (*key.payer).clone();
        Key {
            name: self.name.unwrap_or(key.name),
            payer: Arc::new(Payer {
                project_id: self.project_id.applied_to(payer.project_id),
                ..payer
            }),
            terms: Arc::new(KeyTerms {
                expires_at: self.expires_at.applied_to(terms.expires_at),
                models: self.models.applied_to(terms.models),
                rpm: self.rpm.applied_to(terms.rpm),
                tpm: self.tpm.applied_to(terms.tpm),
            }),
            ..key
        }
    }
}
