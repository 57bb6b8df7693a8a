//! `auth` of a provider: whose tokens authorise its requests.

use tempfile::TempDir;
use tollgate::config::{Azure, AzureGrant, Dialect, Google, Identity, Provider, RemoteProvider};

use crate::configuration::{self, parse};

fn text(provider: &str) -> String {
    format!("[providers.p]\n{provider}\n[[deployments]]\nmodel = \"*\"\nprovider = \"p\"\n")
}

fn read(provider: &str, variables: &[(&str, &str)]) -> RemoteProvider {
    let mut config = parse(&text(provider), variables);
    match config.providers.remove("p") {
        Some(Provider::Remote(provider)) => *provider,
        _ => panic!("there is a provider"),
    }
}

fn identity(provider: &str, variables: &[(&str, &str)]) -> Identity {
    read(provider, variables).identity.unwrap()
}

const NONE: &[(&str, &str)] = &[];
const VERTEX: &str =
    "base_url = \"https://europe-west4-aiplatform.googleapis.com/v1/projects/p/locations/l\"";
const AZURE: &str =
    "kind = \"openai\"\nbase_url = \"https://a.openai.azure.com/openai/v1\"\nauth = \"azure\"";
const LOGIN: &str = "https://login.microsoftonline.com/t.example/oauth2/v2.0/token";

#[test]
fn a_machine_is_known_by_its_metadata_server() {
    let google = format!("kind = \"gemini\"\n{VERTEX}\nauth = \"google\"");
    for (variables, expected) in [
        (NONE, "metadata.google.internal"),
        (&[("GCE_METADATA_HOST", " 127.0.0.1:9 ")], "127.0.0.1:9"),
    ] {
        let host = expected.to_owned();
        let expected = Identity::Google(Google::Metadata { host });
        assert_eq!(identity(&google, variables), expected);
    }
    let managed = |url: &str, header: Option<&str>| AzureGrant::Managed {
        url: url.into(),
        client_id: None,
        secret_header: header.map(tollgate::base::keys::Secret::new),
    };
    for (variables, grant) in [
        (
            NONE,
            managed(
                "http://169.254.169.254/metadata/identity/oauth2/token",
                None,
            ),
        ),
        (
            &[("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9/")],
            managed("http://127.0.0.1:9/metadata/identity/oauth2/token", None),
        ),
        (
            &[
                ("IDENTITY_ENDPOINT", "http://127.0.0.1:8/msi/token"),
                ("IDENTITY_HEADER", "secret"),
            ],
            managed("http://127.0.0.1:8/msi/token", Some("secret")),
        ),
    ] {
        let scope = "https://cognitiveservices.azure.com/.default".into();
        let expected = Identity::Azure(Azure { scope, grant });
        assert_eq!(identity(AZURE, variables), expected);
    }
}

#[test]
fn kubernetes_sets_all_of_a_workload_identity() {
    let variables = [
        ("AZURE_FEDERATED_TOKEN_FILE", "/var/run/secrets/token"),
        ("AZURE_TENANT_ID", "t.example"),
        ("AZURE_CLIENT_ID", "app"),
        ("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com/"),
    ];
    let federated = |client_id: &str| {
        Identity::Azure(Azure {
            scope: "https://ai.azure.com/.default".into(),
            grant: AzureGrant::Federated {
                token_url: LOGIN.into(),
                client_id: client_id.into(),
                token_file: "/var/run/secrets/token".into(),
            },
        })
    };
    let with_scope = format!("{AZURE}\nscope = \"https://ai.azure.com/.default\"");
    assert_eq!(identity(&with_scope, &variables), federated("app"));
    let other = format!("{with_scope}\nclient_id = \"other\"");
    assert_eq!(identity(&other, &variables), federated("other"));
}

#[test]
fn nothing_secret_is_printed() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("google.json");
    let text = r#"{"type":"authorized_user","client_id":"me","client_secret":"hush","refresh_token":"hush"}"#;
    std::fs::write(&file, text).unwrap();
    let google =
        format!("kind = \"gemini\"\n{VERTEX}\nauth = \"google\"\ncredentials_file = {file:?}");
    let azure =
        format!("{AZURE}\ntenant = \"t.example\"\nclient_id = \"app\"\nclient_secret_env = \"S\"");
    for provider in [google, azure] {
        let printed = format!("{:?}", identity(&provider, &[("S", "hush")]));
        assert!(
            !printed.contains("hush") && printed.contains("Secret(..)"),
            "{printed}"
        );
    }
}

#[test]
fn the_messages_api_of_a_cloud_is_known_by_its_host_or_identity() {
    let proxy = "base_url = \"http://127.0.0.1:9/v1\"";
    for (settings, expected) in [
        (String::new(), Dialect::Anthropic),
        (VERTEX.to_owned(), Dialect::Vertex),
        (proxy.to_owned(), Dialect::Anthropic),
        (format!("{proxy}\nauth = \"google\""), Dialect::Vertex),
        (format!("{proxy}\nauth = \"azure\""), Dialect::Anthropic),
        (format!("{proxy}\ndialect = \"vertex\""), Dialect::Vertex),
        (
            format!("{VERTEX}\ndialect = \"anthropic\""),
            Dialect::Anthropic,
        ),
    ] {
        let provider = read(&format!("kind = \"anthropic\"\n{settings}"), &[]);
        assert_eq!(provider.dialect, expected, "{settings}");
    }
}

/// The mistakes of one provider.
fn refused(provider: &str) -> String {
    configuration::refused(&text(provider), &[("S", "hush")])
}

#[test]
fn mistakes_say_what_to_do() {
    let why = refused("kind = \"gemini\"\nauth = \"token\"");
    assert!(
        why.contains("`providers.p.auth` is \"token\"; expected `google`"),
        "{why}"
    );
    for (settings, expected) in [
        (
            "api_key_env = \"S\"\nkey_header = \"api-key\"",
            &[
                "line 5: `providers.p.api_key_env` does not belong beside `auth`: requests carry a token instead of a \
                 key; remove one of them",
                "line 6: `providers.p.key_header` does not belong beside `auth`: requests carry a token instead of a \
                 key; remove one of them",
            ][..],
        ),
        (
            "tenant = \"a/b\"\nauthority = \"http://example.com\"",
            &[
                "line 6: `providers.p.authority` is \"http://example.com\"; expected the URL of a sign-in service, \
                 e.g. `https://login.microsoftonline.us`",
                "line 5: `providers.p.tenant` is \"a/b\"; expected the ID or the domain of a tenant, e.g. \
                 `contoso.onmicrosoft.com`",
            ],
        ),
        (
            "tenant = \"t.example\"",
            &[
                "line 1: `providers.p.tenant` needs `client_secret_file`, `client_secret_env` or \
               `federated_token_file` beside it; remove it to use the managed identity of this machine",
            ],
        ),
        (
            "client_secret_env = \"S\"",
            &[
                "line 1: `providers.p.tenant` is missing; an application with a secret needs it",
                "line 1: `providers.p.client_id` is missing; an application with a secret needs it",
            ],
        ),
        (
            "client_secret = \"hush\"\ntenant = \"t.example\"\nclient_id = \"app\"",
            &[
                "line 5: `providers.p.client_secret` does not belong here: use `client_secret_env` or \
               `client_secret_file`",
            ],
        ),
        (
            "federated_token_file = \"t\"",
            &[
                "line 1: `providers.p.federated_token_file` needs `tenant` and `client_id`, or the variables \
               AZURE_TENANT_ID and AZURE_CLIENT_ID",
            ],
        ),
    ] {
        let why = refused(&format!("{AZURE}\n{settings}"));
        let found: Vec<_> = why.lines().skip(1).map(|line| &line[2..]).collect();
        assert_eq!(found, expected, "{settings}");
    }
    let why = refused("kind = \"anthropic\"\nauth = \"google\"");
    assert!(why.contains("`providers.p.base_url` is missing"), "{why}");
    let why = refused("kind = \"anthropic\"\ndialect = \"vertx\"");
    assert!(
        why.contains("`providers.p.dialect` is \"vertx\"; expected `anthropic`"),
        "{why}"
    );
}

#[test]
fn an_identity_of_another_cloud_is_a_mistake() {
    let aws = "auth = \"aws\"\nregion = \"eu-west-1\"";
    let proxy = "base_url = \"http://127.0.0.1:9/v1\"";
    for (settings, expected) in [
        (
            format!("kind = \"gemini\"\n{aws}"),
            "`providers.p.auth` is \"aws\", which has no models of kind `gemini`",
        ),
        (
            format!("kind = \"anthropic\"\n{aws}\ndialect = \"vertex\""),
            "`providers.p.dialect` is \"vertex\", but `auth` is \"aws\"; expected `bedrock`",
        ),
        (
            format!("kind = \"anthropic\"\n{aws}\n{VERTEX}"),
            "`providers.p.auth` is \"aws\", but `base_url` leads to Vertex AI; expected `google`",
        ),
        (
            format!("kind = \"anthropic\"\n{proxy}\nauth = \"google\"\ndialect = \"bedrock\""),
            "`providers.p.dialect` is \"bedrock\", but `auth` is \"google\"; expected `vertex`",
        ),
    ] {
        let why = refused(&settings);
        assert!(why.contains(expected), "{settings}: {why}");
        assert_eq!(why.lines().count(), 2, "{why}");
    }
    for dialect in ["bedrock", "anthropic"] {
        let settings = format!("kind = \"anthropic\"\n{aws}\ndialect = \"{dialect}\"");
        read(&settings, &[]);
    }
}

/// Tokens and secrets are sent encrypted, or stay on the machine.
#[test]
fn tokens_are_not_sent_in_the_clear() {
    let url = |kind: &str, url: &str, auth: &str| {
        format!("kind = \"{kind}\"\nbase_url = \"{url}\"\nauth = \"{auth}\"")
    };
    for (kind, auth) in [
        ("gemini", "google"),
        ("anthropic", "google"),
        ("openai", "azure"),
    ] {
        for address in [
            "http://example.com/v1",
            "http://10.0.0.1:8080/v1",
            "http://127.0.0.1.example.com/v1",
            "https://user:hush@example.com/v1",
        ] {
            let why = refused(&url(kind, address, auth));
            assert!(
                why.contains("`providers.p.base_url` does not go with `auth`"),
                "{address}: {why}"
            );
            assert!(!why.contains("hush"), "{why}");
        }
        for address in [
            "https://example.com/v1",
            "http://127.0.0.1:9/v1",
            "http://[::1]:9/v1",
            "http://localhost:9/v1",
        ] {
            let provider = read(&url(kind, address, auth), &[]);
            assert_eq!(provider.base_url, address, "{kind}");
        }
    }
    // Keys are the choice of those who run a server of their own.
    let key = "kind = \"openai\"\nbase_url = \"http://10.0.0.1:8080/v1\"\napi_key_env = \"S\"";
    read(key, &[("S", "hush")]);
}

#[test]
fn a_sign_in_service_of_the_environment_is_checked() {
    let federated = [
        ("AZURE_FEDERATED_TOKEN_FILE", "/token"),
        ("AZURE_TENANT_ID", "t.example"),
        ("AZURE_CLIENT_ID", "app"),
    ];
    for (host, is_safe) in [
        ("http://example.com", false),
        ("login.microsoftonline.com", false),
        ("https://login.microsoftonline.us", true),
        ("http://127.0.0.1:9", true),
    ] {
        let variables = [&federated[..], &[("AZURE_AUTHORITY_HOST", host)]].concat();
        if is_safe {
            identity(AZURE, &variables);
        } else {
            let why = configuration::refused(&text(AZURE), &variables);
            assert!(
                why.contains("`providers.p.authority` comes from AZURE_AUTHORITY_HOST"),
                "{host}: {why}"
            );
        }
    }
    // A managed identity needs no sign-in service.
    identity(AZURE, &[("AZURE_AUTHORITY_HOST", "http://example.com")]);
}

#[test]
fn a_wrong_credentials_file_is_not_quoted() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("google.json");
    for (text, expected) in [
        ("hush", "is not the JSON of credentials"),
        (
            "{\"type\":\"external_account\",\"x\":\"hush\"}",
            "is neither a key of a service account",
        ),
        (
            "{\"type\":\"service_account\",\"private_key\":\"hush\"}",
            "has no `client_email`",
        ),
        (
            "{\"type\":\"service_account\",\"private_key\":\"hush\",\"client_email\":\"a@b\",\"token_uri\":\"http://example.com\"}",
            "has a `token_uri` that does not begin with https://",
        ),
        (
            "{\"type\":\"authorized_user\",\"client_id\":\"hush\"}",
            "has no `client_secret`",
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let why = refused(&format!(
            "kind = \"gemini\"\n{VERTEX}\nauth = \"google\"\ncredentials_file = {file:?}"
        ));
        assert!(why.contains(expected) && !why.contains("hush"), "{why}");
    }
    std::fs::remove_file(&file).unwrap();
    let why = refused(&format!(
        "kind = \"gemini\"\n{VERTEX}\nauth = \"google\"\ncredentials_file = {file:?}"
    ));
    assert!(
        why.contains("expected the path of a readable file"),
        "{why}"
    );
}
