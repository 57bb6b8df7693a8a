//! `auth` of a provider: an identity at a cloud, whose tokens authorise requests instead of an API key.

use super::values::Environment;
use crate::base::checked_toml::{Section, as_text};

mod aws;
mod azure;
mod google;

pub use aws::{Aws, AwsSource};
pub use azure::{Azure, AzureGrant};
pub use google::Google;

/// Who the gateway is at a cloud. Two providers with equal identities use the same tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    Google(Google),
    Azure(Azure),
    Aws(Aws),
}

impl Identity {
    /// What names the operator's account, so that it can be removed from messages for callers.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::Google(google) => google.names(),
            Self::Azure(azure) => azure.names(),
            Self::Aws(aws) => aws.names(),
        }
    }
}

/// Settings that belong to an API key.
const KEY_SETTINGS: [&str; 4] = ["api_key", "api_key_env", "api_key_file", "key_header"];

/// Reads `auth` and the settings that belong to it; `None` if the provider has keys, or if they cannot be used.
pub(super) fn identity(section: &mut Section, environment: &Environment) -> Option<Identity> {
    let auth = section.optional("auth", "`google`, `azure` or `aws`", |value| {
        as_text(value).filter(|auth| matches!(auth.as_str(), "google" | "azure" | "aws"))
    })?;
    for key in KEY_SETTINGS {
        section.refuse(
            key,
            "does not belong beside `auth`: requests carry a token instead of a key; remove one of them",
        );
    }
    match auth.as_str() {
        "google" => google::read(section, environment).map(Identity::Google),
        "aws" => aws::read(section, environment).map(Identity::Aws),
        _ => azure::read(section, environment).map(Identity::Azure),
    }
}
