//! `auth = "google"`: a file with credentials, or the service account of the machine.

use serde::Deserialize;

use crate::{
    base::{checked_toml::Section, keys::Secret},
    config::{
        files::secret_of_file,
        values::{Environment, is_safe_url},
    },
};

const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
/// The metadata server of Google's machines, which is reached from them alone.
const METADATA_HOST: &str = "metadata.google.internal";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Google {
    /// A key of a service account, which signs requests for tokens.
    ServiceAccount {
        email: String,
        private_key: Secret,
        key_id: Option<String>,
        project: Option<String>,
        token_url: String,
    },
    /// What `gcloud auth application-default login` leaves for a person.
    User {
        client_id: String,
        client_secret: Secret,
        refresh_token: Secret,
        token_url: String,
    },
    /// The service account of the machine, from the metadata server.
    Metadata { host: String },
}

impl Google {
    pub(super) fn names(&self) -> Vec<&str> {
        match self {
            Self::ServiceAccount { email, project, .. } => {
                let project = project.as_deref();
                std::iter::once(email.as_str()).chain(project).collect()
            }
            Self::User { client_id, .. } => vec![client_id],
            Self::Metadata { .. } => Vec::new(),
        }
    }
}

/// A file with credentials, as Google writes it.
#[derive(Deserialize)]
struct Written {
    #[serde(rename = "type")]
    kind: Option<String>,
    client_email: Option<String>,
    private_key: Option<String>,
    private_key_id: Option<String>,
    project_id: Option<String>,
    token_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
    refresh_token: Option<String>,
}

pub(super) fn read(section: &mut Section, environment: &Environment) -> Option<Google> {
    const FILE: &str = "credentials_file";
    if !section.contains(FILE) {
        let host = environment.get("GCE_METADATA_HOST");
        let host = host.map(|host| host.trim()).filter(|host| !host.is_empty());
        let host = host.unwrap_or(METADATA_HOST).to_owned();
        return Some(Google::Metadata { host });
    }
    let text = section.optional(FILE, "the path of a readable file", secret_of_file)?;
    credentials(&text)
        .inspect_err(|why| section.mistake(FILE, &format!("names a file that {why}")))
        .ok()
}

/// Reads the text of a file. What is wrong with it does not quote it.
fn credentials(text: &str) -> Result<Google, String> {
    let written: Written = serde_json::from_str(text).map_err(|_| {
        "is not the JSON of credentials; expected a key of a service account, as Google's console creates it"
            .to_owned()
    })?;
    let lacks = |name: &str| format!("has no `{name}`; create a new key and use its file as it is");
    let token_url = written.token_uri.unwrap_or_else(|| TOKEN_URL.to_owned());
    if !is_safe_url(&token_url) {
        return Err("has a `token_uri` that does not begin with https://".into());
    }
    match written.kind.as_deref() {
        Some("service_account") => Ok(Google::ServiceAccount {
            email: written.client_email.ok_or_else(|| lacks("client_email"))?,
            private_key: Secret::new(written.private_key.ok_or_else(|| lacks("private_key"))?),
            key_id: written.private_key_id,
            project: written.project_id.filter(|project| !project.is_empty()),
            token_url,
        }),
        Some("authorized_user") => Ok(Google::User {
            client_id: written.client_id.ok_or_else(|| lacks("client_id"))?,
            client_secret: Secret::new(
                written
                    .client_secret
                    .ok_or_else(|| lacks("client_secret"))?,
            ),
            refresh_token: Secret::new(
                written
                    .refresh_token
                    .ok_or_else(|| lacks("refresh_token"))?,
            ),
            token_url,
        }),
        _ => Err(
            "is neither a key of a service account (`\"type\": \"service_account\"`) nor the credentials of a person \
             (`\"authorized_user\"`); leave `credentials_file` out to use the service account of this machine"
                .into(),
        ),
    }
}
