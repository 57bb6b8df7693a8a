//! Requests for tokens of Entra ID: with the secret of an application, with a token of another issuer, or from the
//! metadata service of the machine.

use std::{fs::File, io::Read as _, path::Path};

use super::{http::encoded, token::TokenRequest};
use crate::config::{Azure, AzureGrant};

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
/// Most bytes of a file with a token.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

pub(crate) fn request(azure: &Azure) -> Result<TokenRequest, String> {
    match &azure.grant {
        AzureGrant::Secret {
            token_url,
            client_id,
            client_secret,
        } => Ok(posted(
            token_url,
            &azure.scope,
            client_id,
            vec![("client_secret", client_secret.reveal().to_owned())],
        )),
        AzureGrant::Federated {
            token_url,
            client_id,
            token_file,
        } => {
            // Read every time, because its issuer replaces it.
            let assertion = token_in(token_file)?;
            let proof = vec![
                ("client_assertion_type", ASSERTION_TYPE.to_owned()),
                ("client_assertion", assertion),
            ];
            Ok(posted(token_url, &azure.scope, client_id, proof))
        }
        AzureGrant::Managed {
            url,
            client_id,
            secret_header,
        } => {
            let scope = &azure.scope;
            let resource = scope.strip_suffix("/.default").unwrap_or(scope).to_owned();
            let (version, header) = match secret_header {
                Some(secret) => ("2019-08-01", ("x-identity-header", secret.reveal())),
                None => ("2018-02-01", ("metadata", "true")),
            };
            let mut query = vec![("api-version", version.to_owned()), ("resource", resource)];
            query.extend(client_id.clone().map(|id| ("client_id", id)));
            Ok(TokenRequest {
                url: format!("{url}?{}", encoded(&query)),
                headers: vec![(header.0, header.1.to_owned())],
                form: None,
            })
        }
    }
}

fn posted(
    token_url: &str,
    scope: &str,
    client_id: &str,
    proof: Vec<(&'static str, String)>,
) -> TokenRequest {
    let mut form = vec![
        ("grant_type", "client_credentials".to_owned()),
        ("client_id", client_id.to_owned()),
        ("scope", scope.to_owned()),
    ];
    form.extend(proof);
    TokenRequest {
        url: token_url.to_owned(),
        headers: Vec::new(),
        form: Some(form),
    }
}

/// The token in a file.
pub(super) fn token_in(path: &Path) -> Result<String, String> {
    let failed = |why: &str| format!("{} {why}", path.display());
    let cannot = |error: std::io::Error| failed(&format!("cannot be read: {error}"));
    // Opening a pipe would wait for its other end.
    if !path.metadata().map_err(cannot)?.is_file() {
        return Err(failed("is no regular file"));
    }
    let mut text = String::new();
    let file = File::open(path).map_err(cannot)?;
    let read = file.take(MAX_TOKEN_BYTES).read_to_string(&mut text);
    read.map_err(cannot)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(failed("is empty"));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::keys::Secret;

    const SCOPE: &str = "https://cognitiveservices.azure.com/.default";

    fn of(grant: AzureGrant) -> TokenRequest {
        let scope = SCOPE.to_owned();
        request(&Azure { scope, grant }).unwrap()
    }

    fn managed(client_id: Option<&str>, secret_header: Option<Secret>) -> TokenRequest {
        of(AzureGrant::Managed {
            url: "http://169.254.169.254/metadata/identity/oauth2/token".into(),
            client_id: client_id.map(str::to_owned),
            secret_header,
        })
    }

    #[test]
    fn an_application_sends_its_secret() {
        let request = of(AzureGrant::Secret {
            token_url: "https://login.microsoftonline.com/t/oauth2/v2.0/token".into(),
            client_id: "app".into(),
            client_secret: Secret::new("s&cret"),
        });
        assert_eq!(
            request.url,
            "https://login.microsoftonline.com/t/oauth2/v2.0/token"
        );
        assert!(request.headers.is_empty());
        assert_eq!(
            encoded(&request.form.unwrap()),
            "grant_type=client%5Fcredentials&client_id=app&scope=https%3A%2F%2Fcognitiveservices%2Eazure%2Ecom%2F\
             %2Edefault&client_secret=s%26cret"
        );
    }

    #[test]
    fn a_workload_sends_the_token_that_its_file_has_now() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let grant = || AzureGrant::Federated {
            token_url: "https://login.example.com".into(),
            client_id: "app".into(),
            token_file: file.path().into(),
        };
        for token in ["eyJ.first", "eyJ.second"] {
            std::fs::write(file.path(), format!("{token}\n")).unwrap();
            let form = of(grant()).form.unwrap();
            assert!(form.contains(&("client_assertion", token.to_owned())));
            assert!(form.contains(&("client_assertion_type", ASSERTION_TYPE.to_owned())));
            assert!(!form.iter().any(|(name, _)| *name == "client_secret"));
        }
        std::fs::write(file.path(), " ").unwrap();
        let scope = SCOPE.to_owned();
        let refused = request(&Azure {
            scope,
            grant: grant(),
        });
        assert!(refused.err().unwrap().ends_with("is empty"));
    }

    #[test]
    fn a_machine_is_asked_for_its_resource() {
        let request = managed(None, None);
        assert_eq!(
            request.url,
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018%2D02%2D01&resource=\
             https%3A%2F%2Fcognitiveservices%2Eazure%2Ecom"
        );
        assert_eq!(request.headers, [("metadata", "true".to_owned())]);
        assert!(request.form.is_none());
        let request = managed(Some("mine"), Some(Secret::new("abc")));
        assert!(request.url.contains("2019%2D08%2D01"), "{}", request.url);
        assert!(request.url.ends_with("&client_id=mine"), "{}", request.url);
        assert_eq!(request.headers, [("x-identity-header", "abc".to_owned())]);
    }
}
