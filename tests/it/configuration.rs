//! Reading the configuration file, and the reported mistakes.

use std::{collections::BTreeMap, path::Path, time::Duration};

use tollgate::{
    base::durability::Durability,
    config::{Config, LogFormat, Provider, RemoteProvider, StoreLocation},
};

/// The example configuration of the documentation.
pub const FULL: &str = r#"[server]
listen = "127.0.0.1:8080"
public_url = "https://llm.example.com/"
max_body_bytes = 16_777_216
shutdown_grace_seconds = 20
head_seconds = 5
stall_seconds = 45
[operator]
listen = "127.0.0.1:9090"
token_env = "OPERATOR_TOKEN"
[store]
url = "sqlite:data/tollgate.db"
durability = "power"
[limits]
url = "memory:"
rpm = 60
tpm = 100000
[log]
format = "pretty"
level = "tollgate=debug,hyper=warn"
[providers.local]
kind = "openai"
base_url = "http://127.0.0.1:9000/v1"
api_key_env = "LOCAL_API_KEY"
timeouts = { connect_seconds = 1, first_byte_seconds = 2, idle_seconds = 3 }
[providers.play]
kind = "simulator"
[[deployments]]
model = "*"
provider = "local"
upstream_model = "smollm2"
[[deployments]]
model = "svc-pro"
provider = "play"
weight = 3
priority = 1
[catalog]
"#;

/// The smallest configuration: everything else has a default.
pub const SMALL: &str = r#"[providers.play]
kind = "simulator"
[[deployments]]
model = "*"
provider = "play"
"#;

fn environment(more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let always = [
        ("OPERATOR_TOKEN", "7c1f9a04e6b25d83d0487ae1936bf25c"),
        (
            "TOLLGATE_OPERATOR_TOKEN",
            "e5302bd97f1c48a6b94d06e3c871fa52",
        ),
        ("LOCAL_API_KEY", "sk-local"),
    ];
    let all = always.iter().chain(more);
    all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[track_caller]
pub fn parse(text: &str, variables: &[(&str, &str)]) -> Config {
    Config::parse("tollgate.toml", text, &environment(variables))
        .unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
pub fn refused(text: &str, variables: &[(&str, &str)]) -> String {
    let error = Config::parse("tollgate.toml", text, &environment(variables));
    error.expect_err("a mistake to be found").to_string()
}

pub fn openai<'a>(config: &'a Config, name: &str) -> &'a RemoteProvider {
    match &config.providers[name] {
        Provider::Remote(provider) => provider,
        Provider::Simulator => panic!("`{name}` is a simulator"),
    }
}

#[test]
fn a_full_file() {
    let config = parse(FULL, &[]);
    assert_eq!(config.server.listen, "127.0.0.1:8080".parse().unwrap());
    let public_url = config.server.public_url.as_deref();
    assert_eq!(public_url, Some("https://llm.example.com"));
    assert_eq!(config.server.max_body_bytes, 16 << 20);
    assert_eq!(config.server.shutdown_grace, Duration::from_secs(20));
    assert_eq!(config.server.client_timeouts.head, Duration::from_secs(5));
    assert_eq!(config.server.client_timeouts.stall, Duration::from_secs(45));
    assert!(config.server.tls.is_none());
    assert_eq!(config.operator.listen, "127.0.0.1:9090".parse().unwrap());
    assert!(
        config
            .operator
            .token
            .matches("7c1f9a04e6b25d83d0487ae1936bf25c")
    );
    assert!(
        matches!(&config.store.location, StoreLocation::File(path) if path.ends_with("data/tollgate.db"))
    );
    assert_eq!(config.store.durability, Durability::Power);
    assert_eq!(config.limits.requests, 60);
    assert_eq!(config.limits.tokens, 100_000);
    assert_eq!((config.max_abandoned, config.max_keys), (100, 100));
    let refused = config.refusals;
    assert_eq!((refused.per_account, refused.per_address), (600, 1_200));
    assert_eq!(config.log.format, LogFormat::Pretty);
    assert_eq!(config.log.level, "tollgate=debug,hyper=warn");
    let local = openai(&config, "local");
    assert_eq!(local.base_url, "http://127.0.0.1:9000/v1");
    assert!(local.api_keys[0].matches("sk-local"));
    let timeouts = [
        local.timeouts.connect,
        local.timeouts.first_byte,
        local.timeouts.idle,
    ];
    assert_eq!(timeouts, [1, 2, 3].map(Duration::from_secs));
    let [all, pro] = config.deployments.as_slice() else {
        panic!("two deployments")
    };
    assert_eq!(
        (all.model.as_str(), all.upstream_model.as_deref()),
        ("*", Some("smollm2"))
    );
    assert_eq!((all.weight, all.priority), (1, 0));
    assert_eq!(
        (pro.model.as_str(), pro.provider.as_str()),
        ("svc-pro", "play")
    );
    assert_eq!((pro.weight, pro.priority), (3, 1));
    assert_eq!(config.catalog.models().count(), 17);
}

#[test]
fn a_small_file_leaves_the_rest_to_the_documented_defaults() {
    let config = parse(SMALL, &[]);
    assert_eq!(config.server.listen, "127.0.0.1:8080".parse().unwrap());
    assert_eq!(config.operator.listen, "127.0.0.1:9090".parse().unwrap());
    assert!(
        config
            .operator
            .token
            .matches("e5302bd97f1c48a6b94d06e3c871fa52"),
        "TOLLGATE_OPERATOR_TOKEN"
    );
    assert_eq!(config.server.client_timeouts.head, Duration::from_secs(10));
    assert_eq!(config.server.client_timeouts.stall, Duration::from_mins(1));
    assert_eq!(config.store.durability, Durability::Power);
    assert_eq!(config.store.spool, Path::new("data/spool"));
    assert_eq!(config.limits.requests, 60);
    assert_eq!(config.limits.tokens, 100_000);
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn the_bounds_of_an_overload_depend_on_the_stores() {
    let bounds = |more: &str| {
        let overload = parse(&format!("{more}\n{SMALL}"), &[]).overload;
        (overload.max_lag.as_millis(), overload.max_wait.as_millis())
    };
    let shared = "store.url = \"postgres://user@db/tollgate\"\nlimits.url = \"redis://redis/\"";
    assert_eq!(bounds(""), (6, 300));
    assert_eq!(bounds(shared), (150, 300));
    let set = "overload = { max_lag_ms = 30, max_wait_ms = 1000 }";
    assert_eq!(bounds(&format!("{shared}\n{set}")), (30, 1_000));
}

#[test]
fn the_memory_of_bodies_and_the_share_of_an_account() {
    let memory = |more: &str| {
        let config = parse(&format!("[server]\n{more}\n{SMALL}"), &[]);
        config.server.body_memory
    };
    let set = memory("body_memory_bytes = 1_000_000_000\nbody_memory_share_percent = 50");
    assert_eq!((set.limit, set.share), (1_000_000_000, 500_000_000));
    let one_body = memory("body_memory_bytes = 200_000_000");
    assert_eq!(one_body.share, 3 * (32 << 20), "the largest body fits");
    // By default it depends on the machine.
    let default = memory("");
    assert!(
        (128 << 20..=4 << 30).contains(&default.limit),
        "{default:?}"
    );
    let large = memory("max_body_bytes = 1_073_741_824");
    assert!(
        large.share >= 3 << 30 && large.limit >= large.share,
        "{large:?}"
    );
}

/// All mistakes in one report, each with its line, its key, the value and what is expected.
#[test]
fn five_mistakes_are_reported_as_five() {
    let text = FULL
        .replace("listen = \"127.0.0.1:8080\"", "listen = \"localhost\"")
        .replace("durability = \"power\"", "durability = \"eternal\"")
        .replace("rpm = 60", "rpm = 0")
        .replace(
            "kind = \"simulator\"",
            "kind = \"telepathy\"\nbase_url = \"http://x/v1\"",
        )
        .replace("provider = \"play\"", "provider = \"plya\"");
    insta::assert_snapshot!(refused(&text, &[]), @r#"
    tollgate.toml cannot be used: 5 mistakes
    - line 2: `server.listen` is "localhost"; expected an IP address and a port, e.g. `127.0.0.1:8080`
    - line 13: `store.durability` is "eternal"; expected `power` or `process`
    - line 16: `limits.rpm` is 0; expected a number from 1 to 4294967295; 0 would refuse every request
    - line 27: `providers.play.kind` is "telepathy"; expected `openai`, `anthropic`, `gemini` or `simulator`
    - line 35: `deployments[1].provider` is "plya"; expected the name of a provider above (`local`, `play`)
    "#);
}

#[test]
fn mistakes_of_every_kind_name_the_line_and_what_is_expected() {
    for (written, instead, expected) in [
        (
            "max_body_bytes = 16_777_216",
            "max_body_bytes = 5",
            "line 4: `server.max_body_bytes` is 5; expected a number of bytes from 1024 to 1073741824",
        ),
        (
            "max_body_bytes = 16_777_216",
            "max_body_bytes = 1.5",
            "line 4: `server.max_body_bytes` is 1.5; expected",
        ),
        (
            "max_body_bytes = 16_777_216",
            "max_body_bytes = 16_777_216\nbody_memory_bytes = 50_331_647",
            "line 5: `server.body_memory_bytes` is 50331647; expected a number of bytes from 50331648, 3 times",
        ),
        (
            "max_body_bytes = 16_777_216",
            "body_memory_share_percent = 101",
            "line 4: `server.body_memory_share_percent` is 101; expected a percentage from 1 to 100",
        ),
        (
            "public_url = \"https://llm.example.com/\"",
            "public_url = \"llm.example.com\"",
            "line 3: `server.public_url` is \"llm.example.com\"; expected a URL",
        ),
        (
            "shutdown_grace_seconds = 20",
            "shutdown_grace_seconds = -1",
            "line 5: `server.shutdown_grace_seconds` is -1; expected a number of seconds",
        ),
        (
            "head_seconds = 5",
            "head_seconds = 4_000",
            "line 6: `server.head_seconds` is 4000; expected a number of seconds from 1 to 3600",
        ),
        (
            "stall_seconds = 45",
            "stall_seconds = 0",
            "line 7: `server.stall_seconds` is 0; expected a number of seconds from 1 to 3600",
        ),
        (
            "tpm = 100000",
            "tpm = \"many\"",
            "line 17: `limits.tpm` is \"many\"; expected a number from 1 to 4294967295",
        ),
        (
            "tpm = 100000",
            "max_abandoned = 0",
            "line 17: `limits.max_abandoned` is 0; expected a number from 1 to 4294967295",
        ),
        (
            "tpm = 100000",
            "max_keys = 0",
            "line 17: `limits.max_keys` is 0; expected a number from 1 to 4294967295; 0 would allow no keys",
        ),
        (
            "tpm = 100000",
            "refused_per_account = -1",
            "line 17: `limits.refused_per_account` is -1; expected a number from 0 to 4294967295; 0 means no bound",
        ),
        (
            "url = \"sqlite:data/tollgate.db\"",
            "url = \"mysql://x\"",
            "line 11: `store.url` cannot be used: expected `sqlite:`",
        ),
        (
            "level = \"tollgate=debug,hyper=warn\"",
            "level = \"tollgate=loud\"",
            "line 20: `log.level` is",
        ),
        (
            "model = \"svc-pro\"",
            "model = \"svc-prof\"",
            "line 33: `deployments[1].model` is \"svc-prof\"; expected a model ID",
        ),
        (
            "weight = 3",
            "weight = 0",
            "line 35: `deployments[1].weight` is 0; expected a number from 1 to 1000",
        ),
        (
            "base_url = \"http://127.0.0.1:9000/v1\"",
            "",
            "line 21: `providers.local.base_url` is missing; expected a URL",
        ),
        (
            "api_key_env = \"LOCAL_API_KEY\"",
            "api_key_env = [\"LOCAL_API_KEY\", \"OTHER_KEY\"]",
            "`providers.local.api_key_env` names the variable OTHER_KEY, which is not set",
        ),
        (
            "api_key_env = \"LOCAL_API_KEY\"",
            "omit = [\"messages\"]",
            "`providers.local.omit` is a list; expected a list of frequency_penalty, ",
        ),
        (
            "api_key_env = \"LOCAL_API_KEY\"",
            "rename = { user = \"model\" }",
            "`providers.local.rename` is a table; expected fields and their names there",
        ),
        (
            "api_key_env = \"LOCAL_API_KEY\"",
            "max_tokens_field = \"tokens\"",
            "expected `max_tokens` or `max_completion_tokens`",
        ),
        (
            "api_key_env = \"LOCAL_API_KEY\"",
            "key_header = \"no header\"",
            "is \"no header\"; expected the name of a header",
        ),
        (
            "[catalog]",
            "[routing]\nattempts = 11",
            "`routing.attempts` is 11; expected a number from 1 to 10",
        ),
        (
            "[catalog]",
            "[routing]\nchoose_by = \"luck\"",
            "`routing.choose_by` is \"luck\"; expected `weight` or `latency`",
        ),
        (
            "[catalog]",
            "[credit]\nmax_overdraft = \"-5\"",
            "`credit.max_overdraft` is \"-5\"; expected US dollars",
        ),
        (
            "tpm = 100000",
            "tpm = 1000000000000",
            "`limits.tpm` is 1000000000000; expected a number from 1 to 4294967295",
        ),
        (
            "weight = 3",
            "cost = { input = \"1.00\" }",
            "`deployments[1].cost.output` is missing; expected a price",
        ),
        (
            "weight = 3",
            "timeouts = { total_seconds = 0 }",
            "`deployments[1].timeouts.total_seconds` is 0; expected a number of seconds",
        ),
        (
            "[[deployments]]\nmodel = \"*\"",
            "[deployments]\nmodel = \"*\"",
            "not TOML",
        ),
    ] {
        assert!(FULL.contains(written), "{written}");
        let message = refused(&FULL.replacen(written, instead, 1), &[]);
        assert!(message.contains(expected), "{instead}: {message}");
        assert!(
            message.starts_with("tollgate.toml cannot be used: "),
            "{message}"
        );
    }
    let message = refused(&format!("limits = 5\n{SMALL}"), &[]);
    assert!(
        message.contains("line 1: `limits` is 5; expected a table"),
        "{message}"
    );
}

#[test]
fn an_unknown_key_is_a_mistake_with_a_suggestion() {
    for (instead, expected) in [
        (
            "rmp = 60",
            "line 16: `limits.rmp` is not a setting; did you mean `rpm`?",
        ),
        (
            "burst = 60",
            "line 16: `limits.burst` is not a setting; expected one of `deadline_ms`, `max_abandoned`, `max_keys`, \
             `refused_per_account`, `refused_per_address`, `rpm`, `tpm`, `url`",
        ),
    ] {
        let message = refused(&FULL.replace("rpm = 60", instead), &[]);
        assert!(message.contains(expected), "{message}");
        assert!(message.contains(": 1 mistake\n"), "{message}");
    }
    let message = refused(&FULL.replace("[log]", "[logs]"), &[]);
    assert!(
        message.contains("`logs` is not a setting; did you mean `log`?"),
        "{message}"
    );
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    for (text, line) in [
        ("[server\nlisten = 1", "line 1: this is not TOML"),
        ("[server]\nlisten = ", "line 2: this is not TOML"),
        ("[limits]\nrpm = 60\nrpm = 70\n", "line 3: this is not TOML"),
    ] {
        let message = refused(text, &[]);
        assert!(message.contains(line), "{message}");
    }
}

#[test]
fn an_empty_file_lacks_providers_and_deployments() {
    insta::assert_snapshot!(refused("", &[]), @r"
    tollgate.toml cannot be used: 2 mistakes
    - `providers` is missing; expected at least one `[providers.NAME]`
    - `deployments` is missing; expected at least one `[[deployments]]`
    ");
}

#[test]
fn a_second_factor_is_required_of_a_known_group() {
    for group in ["none", "operators", "everyone"] {
        parse(
            &format!("{SMALL}[portal]\nrequire_second_factor = \"{group}\"\n"),
            &[],
        );
    }
    let message = refused("[portal]\nrequire_second_factor = true\n", &[]);
    assert!(
        message.contains("expected `none`, `operators` or `everyone`"),
        "{message}"
    );
}

#[test]
fn an_issuer_is_read_and_its_mistakes_are_reported() {
    let full = "[portal]\nconsole = false\n[portal.oidc]\nissuer = \"https://id.example.com/realm/\"\n\
                client_id = \"us\"\nclient_secret_env = \"LOCAL_API_KEY\"\nname = \"Example ID\"\n\
                allowed_domains = [\"Example.com\"]\nscopes = \"openid  email\"\n";
    let config = parse(&format!("{SMALL}{full}"), &[]);
    assert!(!config.portal.console);
    let oidc = config.portal.oidc.unwrap();
    assert_eq!(oidc.issuer, "https://id.example.com/realm/");
    assert_eq!(
        (oidc.client_id.as_str(), oidc.name.as_str()),
        ("us", "Example ID")
    );
    assert!(oidc.client_secret.unwrap().matches("sk-local"));
    assert_eq!(oidc.allowed_domains, ["example.com"]);
    assert_eq!(oidc.scopes, "openid email");

    let small = "[portal.oidc]\nissuer = \"http://localhost:8080\"\nclient_id = \"us\"\n";
    let oidc = parse(&format!("{SMALL}{small}"), &[]).portal.oidc.unwrap();
    assert_eq!(
        (oidc.name.as_str(), oidc.scopes.as_str()),
        ("localhost", "openid email profile")
    );
    assert!(oidc.client_secret.is_none() && oidc.allowed_domains.is_empty());
    assert!(parse(SMALL, &[]).portal.oidc.is_none());

    let wrong = "[portal.oidc]\nissuer = \"http://id.example.com\"\nclient_secret = \"hush\"\n\
                 name = \"\"\nallowed_domains = [\"@example.com\"]\nscopes = \"email\"\nscope = \"openid\"\n";
    insta::assert_snapshot!(refused(&format!("{SMALL}{wrong}"), &[]), @r#"
    tollgate.toml cannot be used: 7 mistakes
    - line 7: `portal.oidc.issuer` is "http://id.example.com"; expected the issuer's URL as it writes it itself, e.g. `https://accounts.google.com`; `http` is for this machine alone
    - line 6: `portal.oidc.client_id` is missing; expected the ID that the issuer has given to this gateway
    - line 8: `portal.oidc.client_secret` does not belong here: use `client_secret_env` or `client_secret_file`
    - line 9: `portal.oidc.name` is ""; expected what the issuer is called on the button, in up to 40 characters, e.g. `Google`
    - line 6: `portal.oidc.allowed_domains` has "@example.com" in it; expected a list of domains, e.g. `["example.com"]`
    - line 11: `portal.oidc.scopes` is "email"; expected scopes with spaces between them, `openid` among them, e.g. `openid email profile`
    - line 12: `portal.oidc.scope` is not a setting; did you mean `scopes`?
    "#);
}

#[test]
fn trusted_proxies_are_addresses_and_networks() {
    let server = "[server]\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n";
    let config = parse(&format!("{server}{SMALL}"), &[]);
    let proxies: Vec<_> = config
        .server
        .trusted_proxies
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(proxies, ["10.0.0.0/8", "::1/128"]);
    assert!(parse(SMALL, &[]).server.trusted_proxies.is_empty());
    for (wrong, told) in [
        ("[\"10.0.0.0/33\"]", "has \"10.0.0.0/33\" in it"),
        ("[\"::1\", \"proxy\"]", "has \"proxy\" in it"),
        ("[\"\"]", "has \"\" in it"),
        ("5", "is 5"),
    ] {
        let message = refused(
            &format!("[server]\ntrusted_proxies = {wrong}\n{SMALL}"),
            &[],
        );
        let expected = "expected a list of addresses or networks, e.g. `[\"10.0.0.0/8\", \"::1\"]`";
        assert!(
            message.contains(&format!("`server.trusted_proxies` {told}; {expected}")),
            "{message}"
        );
    }
}
