//! `auth = "azure"`: an application with a secret, a workload identity, or the managed identity of the machine.

use std::path::PathBuf;

use crate::{
    base::{
        checked_toml::{Section, as_text},
        keys::Secret,
    },
    config::values::{Environment, is_safe_url, secret},
};

/// The scope of Azure OpenAI and of the other models of Azure AI.
const SCOPE: &str = "https://cognitiveservices.azure.com/.default";
const AUTHORITY: &str = "https://login.microsoftonline.com";
/// The metadata service of Azure's machines, which is reached from them alone.
const METADATA: &str = "http://169.254.169.254";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Azure {
    pub scope: String,
    pub grant: AzureGrant,
}

/// How tokens of Entra ID are obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AzureGrant {
    /// With the secret of an application.
    Secret {
        token_url: String,
        client_id: String,
        client_secret: Secret,
    },
    /// With a token of another issuer, such as Kubernetes, which renews it in a file.
    Federated {
        token_url: String,
        client_id: String,
        token_file: PathBuf,
    },
    /// From the metadata service of the machine. `client_id` chooses one of several identities.
    Managed {
        url: String,
        client_id: Option<String>,
        /// The header that App Service and Container Apps demand; `None` on other machines.
        secret_header: Option<Secret>,
    },
}

impl Azure {
    pub(super) fn names(&self) -> Vec<&str> {
        match &self.grant {
            AzureGrant::Secret { client_id, .. } | AzureGrant::Federated { client_id, .. } => {
                vec![client_id]
            }
            AzureGrant::Managed { client_id, .. } => client_id.as_deref().into_iter().collect(),
        }
    }
}

pub(super) fn read(section: &mut Section, environment: &Environment) -> Option<Azure> {
    let variable = |name: &str| {
        let value = environment.get(name).map(|value| value.trim().to_owned());
        value.filter(|value| !value.is_empty())
    };
    let expected = "a scope, e.g. `https://ai.azure.com/.default`";
    let scope = section.optional("scope", expected, |value| {
        as_text(value).filter(|scope| scope.len() > "/.default".len())
    });
    let expected = "the URL of a sign-in service, e.g. `https://login.microsoftonline.us`";
    let authority = section.optional("authority", expected, |value| {
        as_text(value).filter(|url| is_safe_url(url))
    });
    let expected = "the ID or the domain of a tenant, e.g. `contoso.onmicrosoft.com`";
    let tenant = section.optional("tenant", expected, |value| {
        as_text(value).filter(|tenant| is_tenant(tenant))
    });
    let client_id = section.text("client_id", "the ID of an application");
    let has_secret = ["", "_env", "_file"].map(|end| format!("client_secret{end}"));
    let has_secret = has_secret.iter().any(|key| section.contains(key));
    let client_secret = secret(section, "client_secret", None, environment);
    let token_file = section.text("federated_token_file", "the path of a file with a token");

    let authority = authority.or_else(|| variable("AZURE_AUTHORITY_HOST"));
    let authority = authority.unwrap_or_else(|| AUTHORITY.to_owned());
    let token_url = |tenant: &str| {
        let authority = authority.trim_end_matches('/');
        format!("{authority}/{tenant}/oauth2/v2.0/token")
    };
    let grant = if has_secret {
        if token_file.is_some() {
            section.mistake(
                "federated_token_file",
                "does not belong beside a `client_secret`; remove one of them",
            );
        }
        for (key, is_missing) in [
            ("tenant", tenant.is_none()),
            ("client_id", client_id.is_none()),
        ] {
            if is_missing {
                section.mistake(key, "is missing; an application with a secret needs it");
            }
        }
        AzureGrant::Secret {
            token_url: token_url(&tenant?),
            client_id: client_id?,
            client_secret: client_secret?,
        }
    } else if let Some(token_file) = token_file.or_else(|| variable("AZURE_FEDERATED_TOKEN_FILE")) {
        // Kubernetes sets these variables together.
        let tenant = tenant.or_else(|| variable("AZURE_TENANT_ID"));
        let client_id = client_id.or_else(|| variable("AZURE_CLIENT_ID"));
        let (Some(tenant), Some(client_id)) = (tenant, client_id) else {
            section.mistake(
                "federated_token_file",
                "needs `tenant` and `client_id`, or the variables AZURE_TENANT_ID and AZURE_CLIENT_ID",
            );
            return None;
        };
        AzureGrant::Federated {
            token_url: token_url(&tenant),
            client_id,
            token_file: token_file.into(),
        }
    } else {
        if tenant.is_some() {
            section.mistake(
                "tenant",
                "needs `client_secret_file`, `client_secret_env` or `federated_token_file` beside it; remove it to \
                 use the managed identity of this machine",
            );
        }
        managed(client_id, variable)
    };
    if let AzureGrant::Secret { token_url, .. } | AzureGrant::Federated { token_url, .. } = &grant
        && !is_safe_url(token_url)
    {
        let message = "comes from AZURE_AUTHORITY_HOST, which is not safe for a secret; expected https, or an address \
                       of this machine";
        section.mistake("authority", message);
    }
    let scope = scope.unwrap_or_else(|| SCOPE.to_owned());
    Some(Azure { scope, grant })
}

/// App Service and Container Apps announce their own metadata service in two variables.
fn managed(client_id: Option<String>, variable: impl Fn(&str) -> Option<String>) -> AzureGrant {
    let own = variable("IDENTITY_ENDPOINT").zip(variable("IDENTITY_HEADER"));
    let (url, secret_header) = if let Some((url, header)) = own {
        (url, Some(Secret::new(header)))
    } else {
        let host = variable("AZURE_POD_IDENTITY_AUTHORITY_HOST");
        let host = host.unwrap_or_else(|| METADATA.to_owned());
        let host = host.trim_end_matches('/');
        (format!("{host}/metadata/identity/oauth2/token"), None)
    };
    AzureGrant::Managed {
        url,
        client_id,
        secret_header,
    }
}

fn is_tenant(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    !text.is_empty() && text.bytes().all(is_plain)
}
