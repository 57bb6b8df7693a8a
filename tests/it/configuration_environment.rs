//! Environment variables of the configuration: overrides, and every secret.

use std::time::Duration;

use tempfile::TempDir;
use tollgate::{base::durability::Durability, config::LogFormat};

use crate::configuration::{FULL, SMALL, openai, parse, refused};

#[test]
fn a_secret_in_the_file_is_refused_and_not_repeated() {
    let canary = "sk-do-not-print-me-0123456789";
    for (written, key) in [
        ("token_env = \"OPERATOR_TOKEN\"", "token"),
        ("api_key_env = \"LOCAL_API_KEY\"", "api_key"),
    ] {
        let message = refused(
            &FULL.replace(written, &format!("{key} = \"{canary}\"")),
            &[],
        );
        assert!(message.contains(&format!(".{key}`")), "{message}");
        assert!(
            message.contains("_env") && message.contains("_file"),
            "{message}"
        );
        assert!(
            !message.contains(canary),
            "a secret is not for the log: {message}"
        );
    }
    let message = refused(FULL, &[("TOLLGATE__PROVIDERS__LOCAL__API_KEY", canary)]);
    assert!(
        message.contains("TOLLGATE__PROVIDERS__LOCAL__API_KEY"),
        "{message}"
    );
    assert!(!message.contains(canary), "{message}");
}

#[test]
fn a_secret_comes_from_a_variable_or_a_file() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "2f86c0d19be47a53f18d6c02e9b4753a\n").unwrap();
    let from_file = format!("token_file = {:?}", file.to_str().unwrap());
    let config = parse(
        &FULL.replace("token_env = \"OPERATOR_TOKEN\"", &from_file),
        &[],
    );
    assert!(
        config
            .operator
            .token
            .matches("2f86c0d19be47a53f18d6c02e9b4753a"),
        "without its line end"
    );

    let message = refused(&FULL.replace("LOCAL_API_KEY", "NOT_THERE"), &[]);
    assert!(
        message.contains("`providers.local.api_key_env`"),
        "{message}"
    );
    assert!(message.contains("NOT_THERE, which is not set"), "{message}");
    let message = refused(FULL, &[("LOCAL_API_KEY", "  ")]);
    assert!(
        message.contains("`providers.local.api_key_env` leads to an empty secret"),
        "{message}"
    );
    let message = refused(
        &FULL.replace(
            "token_env = \"OPERATOR_TOKEN\"",
            "token_file = \"/no/such\"",
        ),
        &[],
    );
    assert!(
        message.contains("`operator.token_file` is \"/no/such\"; expected the path"),
        "{message}"
    );
}

/// With the token every account can be changed. The message says how to make one, and does not contain it.
#[test]
fn an_operator_token_that_can_be_guessed_is_refused() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    let how = "expected a random one, e.g. of `openssl rand -hex 32`";
    for token in [
        "canary",
        "canary-changeme-changeme-changeme",
        "canarycanarycanarycanarycanarycanary",
        "0123456789canary0123456789canary",
        "the operator token is a canary",
    ] {
        let message = refused(FULL, &[("OPERATOR_TOKEN", token)]);
        let words = format!("`operator.token_env` names a token that can be guessed; {how}");
        assert!(message.contains(&words), "{message}");
        assert!(!message.contains("canary"), "{message}");
        std::fs::write(&file, token).unwrap();
        let from_file = format!("token_file = {:?}", file.to_str().unwrap());
        let text = FULL.replace("token_env = \"OPERATOR_TOKEN\"", &from_file);
        let message = refused(&text, &[]);
        let words = format!("`operator.token_file` names a token that can be guessed; {how}");
        assert!(message.contains(&words), "{message}");
    }
}

#[test]
fn the_environment_overrides_the_file() {
    let config = parse(
        FULL,
        &[
            ("TOLLGATE__SERVER__LISTEN", "0.0.0.0:443"),
            ("TOLLGATE__SERVER__MAX_BODY_BYTES", "2048"),
            ("TOLLGATE__LIMITS__RPM", "7"),
            ("TOLLGATE__STORE__DURABILITY", "process"),
            (
                "TOLLGATE__PROVIDERS__LOCAL__BASE_URL",
                "https://api.example.com/v1",
            ),
            ("TOLLGATE__PROVIDERS__LOCAL__TIMEOUTS__IDLE_SECONDS", "9"),
            ("TOLLGATE__DEPLOYMENTS__1__WEIGHT", "5"),
            ("TOLLGATE__DEPLOYMENTS__0__UPSTREAM_MODEL", "other"),
            ("TOLLGATE__OPERATOR__TOKEN_ENV", "TOLLGATE_OPERATOR_TOKEN"),
        ],
    );
    assert_eq!(config.server.listen, "0.0.0.0:443".parse().unwrap());
    assert_eq!(config.server.max_body_bytes, 2048);
    assert_eq!(config.limits.requests, 7);
    assert_eq!(config.limits.tokens, 100_000, "the rest stays");
    assert_eq!(config.store.durability, Durability::Process);
    let local = openai(&config, "local");
    assert_eq!(local.base_url, "https://api.example.com/v1");
    assert_eq!(local.timeouts.idle, Duration::from_secs(9));
    assert_eq!(local.timeouts.connect, Duration::from_secs(1));
    assert_eq!(config.deployments[1].weight, 5);
    assert_eq!(config.deployments[0].weight, 1);
    assert_eq!(
        config.deployments[0].upstream_model.as_deref(),
        Some("other")
    );
    assert!(
        config
            .operator
            .token
            .matches("e5302bd97f1c48a6b94d06e3c871fa52")
    );
    let config = parse(
        SMALL,
        &[
            ("TOLLGATE__LIMITS__TPM", "12"),
            ("TOLLGATE__LOG__FORMAT", "pretty"),
        ],
    );
    assert_eq!(
        config.limits.tokens, 12,
        "a section need not be in the file"
    );
    assert_eq!(config.log.format, LogFormat::Pretty);
}

#[test]
fn a_mistake_in_a_variable_is_reported_under_its_name() {
    for (name, value, expected) in [
        (
            "TOLLGATE__LIMITS__RPM",
            "many",
            "`limits.rpm` is \"many\"; expected a number",
        ),
        (
            "TOLLGATE__LIMITS__RPMM",
            "5",
            "`limits.rpmm` is not a setting; did you mean `rpm`?",
        ),
        ("TOLLGATE__NOWHERE__AT", "5", "`nowhere` is not a setting"),
        (
            "TOLLGATE__SERVER",
            "5",
            "`server` is \"5\"; expected a table",
        ),
        (
            "TOLLGATE__LIMITS__RPM__DEEP",
            "5",
            "`limits.rpm` is a table; expected a number",
        ),
        (
            "TOLLGATE__DEPLOYMENTS__1__MODEL",
            "nope",
            "`deployments[1].model` is \"nope\"",
        ),
        ("TOLLGATE__DEPLOYMENTS__7__WEIGHT", "5", "`deployments[7]`"),
        (
            "TOLLGATE__DEPLOYMENTS__FIRST__WEIGHT",
            "5",
            "`deployments[FIRST]`",
        ),
    ] {
        let message = refused(FULL, &[(name, value)]);
        assert!(message.contains(expected), "{name}: {message}");
        let origin = format!("environment variable {name}: ");
        assert!(message.contains(&origin), "{name}: {message}");
    }
    parse(FULL, &[("TOLLGATE_UNRELATED", "5"), ("TOLLGATE", "5")]);
}
