//! The document's tree → [`Config`], section by section.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use super::{
    Choice, Config, Deployment, Durability, Log, LogFormat, MaxTokensField, Operator, Patience,
    Provider, ProviderKind, Quirks, RemoteProvider, Routing, Server, Store, Timeouts, TlsFiles,
    quirks::FIELDS,
};
use crate::{
    auth::Secret,
    catalog::Catalog,
    checked_toml::{self, Mistake, Node, Section, Value, as_text},
    limits::Ceilings,
    money::NanoUsd,
};

type Environment = BTreeMap<String, String>;

pub fn config(document: Node, environment: &Environment) -> Result<Config, Vec<Mistake>> {
    checked_toml::read(document, |root| {
        let server = server(root.section("server"));
        let operator = operator(root.section("operator"), environment);
        let store = store(root.section("store"));
        let limits = limits(root.section("limits"));
        let routing = routing(root.section("routing"));
        let max_overdraft = max_overdraft(root.section("credit"));
        let log = log(root.section("log"));
        let providers: BTreeMap<_, _> = root
            .named_sections("providers")
            .into_iter()
            .map(|(name, section)| (name, provider(section, environment)))
            .collect();
        if providers.is_empty() {
            root.mistake(
                "providers",
                "is missing; expected at least one `[providers.NAME]`",
            );
        }
        let (catalog, catalog_file) = catalog(root.section("catalog"));
        let deployments: Vec<_> = root
            .list_of_sections("deployments")
            .into_iter()
            .map(|section| deployment(section, &providers, &catalog))
            .collect();
        if deployments.is_empty() {
            root.mistake(
                "deployments",
                "is missing; expected at least one `[[deployments]]`",
            );
        }
        Config {
            server,
            operator,
            store,
            limits,
            max_overdraft,
            providers,
            deployments,
            routing,
            catalog,
            catalog_file,
            log,
        }
    })
}

fn server(mut section: Section) -> Server {
    let listen = address(&mut section, "127.0.0.1:8080");
    let has_tls = section.contains("tls");
    let mut tls = section.section("tls");
    let mut file = |key: &str| {
        has_tls.then(|| tls.required(key, "the path of a readable PEM file", readable_file))?
    };
    let files = file("cert")
        .zip(file("key"))
        .map(|(cert, key)| TlsFiles { cert, key });
    tls.finish();
    let server = Server {
        listen,
        tls: files,
        public_url: section.optional(
            "public_url",
            "a URL, e.g. `https://llm.example.com`",
            http_url,
        ),
        max_body_bytes: section
            .optional(
                "max_body_bytes",
                "a number of bytes from 1024 to 1073741824",
                |value| {
                    let bytes = checked_toml::as_integer(value)?;
                    (1_024..=1 << 30).contains(&bytes).then_some(bytes)
                },
            )
            .unwrap_or(32 << 20),
        shutdown_grace: seconds(&mut section, "shutdown_grace_seconds", 0..=3_600)
            .unwrap_or(Duration::from_secs(30)),
        patience: patience(&mut section),
    };
    section.finish();
    server
}

fn patience(section: &mut Section) -> Patience {
    let default = Patience::default();
    Patience {
        head: seconds(section, "head_seconds", 1..=3_600).unwrap_or(default.head),
        stall: seconds(section, "stall_seconds", 1..=3_600).unwrap_or(default.stall),
    }
}

fn operator(mut section: Section, environment: &Environment) -> Operator {
    let listen = address(&mut section, "127.0.0.1:9090");
    let token = secret(
        &mut section,
        "token",
        Some("TOLLGATE_OPERATOR_TOKEN"),
        environment,
    );
    if token
        .as_ref()
        .is_some_and(|token| token.reveal().len() < 16)
    {
        section.mistake(
            "token_env",
            "names a token of fewer than 16 characters; use a longer one",
        );
    }
    section.finish();
    // Without a token the mistake above stops the start; this one lets no one in either way.
    Operator {
        listen,
        token: token.unwrap_or_else(Secret::generate),
    }
}

fn store(mut section: Section) -> Store {
    let path = section.optional(
        "url",
        "`sqlite:` and a path, e.g. `sqlite:data/tollgate.db`",
        |value| {
            let path = as_text(value)?.strip_prefix("sqlite:")?.to_owned();
            (!path.is_empty()).then_some(PathBuf::from(path))
        },
    );
    let durability = section.optional("durability", "`power` or `process`", |value| match as_text(
        value,
    )?
    .as_str()
    {
        "power" => Some(Durability::Power),
        "process" => Some(Durability::Process),
        _ => None,
    });
    section.finish();
    Store {
        path: path.unwrap_or_else(|| "data/tollgate.db".into()),
        durability: durability.unwrap_or(Durability::Power),
    }
}

fn limits(mut section: Section) -> Ceilings {
    section.optional("url", "`memory:`", |value| {
        (as_text(value)? == "memory:").then_some(())
    });
    let mut ceiling = |key: &str, default| {
        let expected = "a number of at least 1; 0 would refuse every request";
        let read = |value: &Value| checked_toml::as_integer(value).filter(|ceiling| *ceiling > 0);
        section.optional(key, expected, read).unwrap_or(default)
    };
    let limits = Ceilings {
        requests: ceiling("rpm", 60),
        tokens: ceiling("tpm", 100_000),
    };
    section.finish();
    limits
}

/// Five dollars, unless it is said otherwise.
fn max_overdraft(mut section: Section) -> NanoUsd {
    let expected = "US dollars as a decimal string, e.g. `\"5.00\"`; `\"0\"` for none";
    let amount = section.optional("max_overdraft", expected, |value| {
        NanoUsd::parse(&as_text(value)?)
    });
    section.finish();
    amount.unwrap_or(NanoUsd::new(5_000_000_000))
}

fn log(mut section: Section) -> Log {
    let default = Log::default();
    let format = section.optional("format", "`json` or `pretty`", |value| {
        match as_text(value)?.as_str() {
            "json" => Some(LogFormat::Json),
            "pretty" => Some(LogFormat::Pretty),
            _ => None,
        }
    });
    let level = section.optional(
        "level",
        "e.g. `info` or `tollgate=debug,hyper=warn`",
        |value| {
            let level = as_text(value)?;
            level
                .parse::<tracing_subscriber::filter::Targets>()
                .ok()
                .map(|_| level)
        },
    );
    section.finish();
    Log {
        format: format.unwrap_or(default.format),
        level: level.unwrap_or(default.level),
    }
}

fn provider(mut section: Section, environment: &Environment) -> Provider {
    let expected = "`openai`, `anthropic`, `gemini` or `simulator`";
    let kind = section.required("kind", expected, |value| match as_text(value)?.as_str() {
        "openai" => Some(Some(ProviderKind::OpenAi)),
        "anthropic" => Some(Some(ProviderKind::Anthropic)),
        "gemini" => Some(Some(ProviderKind::Gemini)),
        "simulator" => Some(None),
        _ => None,
    });
    let Some(kind) = kind.unwrap_or(Some(ProviderKind::OpenAi)) else {
        section.finish();
        return Provider::Simulator;
    };
    let expected = "a URL up to and including its version, e.g. `http://127.0.0.1:9000/v1`";
    // Vendors have one address, and it is known; compatible servers are anywhere.
    let base_url = match kind {
        ProviderKind::OpenAi => section.required("base_url", expected, http_url),
        ProviderKind::Anthropic => {
            let given = section.optional("base_url", expected, http_url);
            Some(given.unwrap_or_else(|| "https://api.anthropic.com/v1".into()))
        }
        ProviderKind::Gemini => {
            let given = section.optional("base_url", expected, http_url);
            Some(given.unwrap_or_else(|| "https://generativelanguage.googleapis.com/v1beta".into()))
        }
    };
    let api_keys = api_keys(&mut section, environment);
    let read = timeouts(&mut section, Timeouts::default());
    let quirks = match kind {
        ProviderKind::OpenAi => quirks(&mut section, base_url.as_deref().unwrap_or_default()),
        _ => Quirks::default(),
    };
    section.finish();
    Provider::Remote(Box::new(RemoteProvider {
        kind,
        base_url: base_url.unwrap_or_default(),
        api_keys,
        quirks,
        timeouts: read,
    }))
}

/// Those that are given, and the others as they are.
fn timeouts(section: &mut Section, default: Timeouts) -> Timeouts {
    let mut given = section.section("timeouts");
    let mut limit =
        |key: &str, default: Duration| seconds(&mut given, key, 1..=86_400).unwrap_or(default);
    let timeouts = Timeouts {
        connect: limit("connect_seconds", default.connect),
        first_byte: limit("first_byte_seconds", default.first_byte),
        idle: limit("idle_seconds", default.idle),
        total: limit("total_seconds", default.total),
    };
    given.finish();
    timeouts
}

/// What is known of the server at this address, but for what the configuration says itself.
fn quirks(section: &mut Section, base_url: &str) -> Quirks {
    let known = Quirks::known_of(base_url);
    let expected = "the name of a header, e.g. `api-key`";
    let key_header = section.optional("key_header", expected, |value| {
        let name = as_text(value)?.to_ascii_lowercase();
        axum::http::HeaderName::try_from(&name).ok().map(|_| name)
    });
    let query = section.text("query", "what URLs end with, e.g. `api-version=2026-01-01`");
    let expected = "`max_tokens` or `max_completion_tokens`";
    let field = section.optional("max_tokens_field", expected, |value| {
        match as_text(value)?.as_str() {
            "max_tokens" => Some(MaxTokensField::MaxTokens),
            "max_completion_tokens" => Some(MaxTokensField::MaxCompletionTokens),
            _ => None,
        }
    });
    let is_field = |name: &String| FIELDS.contains(&name.as_str());
    let expected = format!("a list of {}", FIELDS.join(", "));
    let omit = section.optional("omit", &expected, |value| match value {
        Value::List(items) => {
            let names = items
                .iter()
                .map(|item| as_text(&item.value).filter(is_field));
            names.collect::<Option<Vec<_>>>()
        }
        _ => None,
    });
    let expected = "fields and their names there, e.g. `{ seed = \"random_seed\" }`";
    let rename = section.optional("rename", expected, |value| match value {
        Value::Table(names) => {
            let names = names.iter().map(|(from, to)| {
                let from = Some(from.clone()).filter(is_field)?;
                Some((from, as_text(&to.value)?))
            });
            names.collect::<Option<Vec<_>>>()
        }
        _ => None,
    });
    let streams = section.flag("streams");
    Quirks {
        key_header,
        query,
        max_tokens_field: field.unwrap_or(known.max_tokens_field),
        omit: omit.unwrap_or(known.omit),
        rename: rename.unwrap_or(known.rename),
        streams: streams.unwrap_or(known.streams),
    }
}

fn routing(mut section: Section) -> Routing {
    let default = Routing::default();
    let attempts = section.optional("attempts", "a number from 1 to 10", |value| {
        checked_toml::as_integer(value).filter(|attempts| (1..=10).contains(attempts))
    });
    let patience = seconds(&mut section, "patience_seconds", 1..=3_600);
    let choice = section.optional("choose_by", "`weight` or `latency`", |value| match as_text(
        value,
    )?
    .as_str()
    {
        "weight" => Some(Choice::Weight),
        "latency" => Some(Choice::Latency),
        _ => None,
    });
    section.finish();
    Routing {
        attempts: attempts.unwrap_or(default.attempts),
        patience: patience.unwrap_or(default.patience),
        choice: choice.unwrap_or(default.choice),
    }
}

fn deployment(
    mut section: Section,
    providers: &BTreeMap<String, Provider>,
    catalog: &Catalog,
) -> Deployment {
    let model = section.required(
        "model",
        "a model ID of the catalog, or `*` for all",
        |value| as_text(value).filter(|id| id == "*" || catalog.find(id).is_some()),
    );
    let names: Vec<_> = providers.keys().map(|name| format!("`{name}`")).collect();
    let expected = format!("the name of a provider above ({})", names.join(", "));
    let provider = section.required("provider", &expected, |value| {
        as_text(value).filter(|name| providers.contains_key(name))
    });
    let upstream_model = section.text("upstream_model", "the provider's name for the model");
    let weight = section.optional("weight", "a number from 1 to 1000", |value| {
        checked_toml::as_integer(value).filter(|weight| (1..=1_000).contains(weight))
    });
    let priority = section.integer("priority", "a number from 0; the lowest is asked first");
    let inherited = match provider.as_ref().and_then(|name| providers.get(name)) {
        Some(Provider::Remote(remote)) => remote.timeouts,
        _ => Timeouts::default(),
    };
    let own = section.contains("timeouts");
    let timeouts = own.then(|| timeouts(&mut section, inherited));
    section.finish();
    Deployment {
        model: model.unwrap_or_default(),
        provider: provider.unwrap_or_default(),
        upstream_model,
        weight: weight.unwrap_or(1),
        priority: priority.unwrap_or(0),
        timeouts,
    }
}

/// The built-in catalog, or a file on top of it, or (with `extends = false`) a file instead of it.
fn catalog(mut section: Section) -> (Catalog, Option<PathBuf>) {
    let built_in = Catalog::built_in();
    let file = section.optional("file", "the path of a readable file", readable_file);
    let extends = section.flag("extends").unwrap_or(true);
    let read = file.clone().map(|path| {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let read = if extends {
            built_in.extended_by(&text)
        } else {
            Catalog::parse(&text)
        };
        read.map_err(|mistakes| (path, mistakes))
    });
    let catalog = match read {
        None => built_in,
        Some(Ok(catalog)) => catalog,
        Some(Err((path, mistakes))) => {
            for mistake in mistakes {
                section.mistake("file", &format!("({}) {mistake}", path.display()));
            }
            built_in
        }
    };
    section.finish();
    (catalog, file)
}

/// The keys of a provider: none, one, or several under a list of variables.
fn api_keys(section: &mut Section, environment: &Environment) -> Vec<Secret> {
    if !section.is_list("api_key_env") {
        return secret(section, "api_key", None, environment)
            .into_iter()
            .collect();
    }
    section.refuse("api_key", "does not belong here: use `api_key_env`");
    let expected = "the names of environment variables";
    let names = section.texts("api_key_env", expected).unwrap_or_default();
    let read = names.iter().filter_map(|variable| {
        let key = environment.get(variable).map(|key| key.trim());
        if key.is_none_or(str::is_empty) {
            let hint = "which is not set; export it, or leave it out";
            section.mistake(
                "api_key_env",
                &format!("names the variable {variable}, {hint}"),
            );
        }
        key.filter(|key| !key.is_empty()).map(Secret::new)
    });
    read.collect()
}

/// A secret under `{key}_env` (the name of a variable) or `{key}_file` (a path).
fn secret(
    section: &mut Section,
    key: &str,
    default_variable: Option<&str>,
    environment: &Environment,
) -> Option<Secret> {
    let (env_key, file_key) = (format!("{key}_env"), format!("{key}_file"));
    let elsewhere = format!("does not belong here: use `{env_key}` or `{file_key}`");
    section.refuse(key, &elsewhere);
    let file = section.optional(&file_key, "the path of a readable file", readable_file);
    let named = section.text(&env_key, "the name of an environment variable");
    let text = match (file, named.as_deref().or(default_variable)) {
        (Some(path), _) => std::fs::read_to_string(path).ok()?,
        (None, Some(variable)) => {
            let Some(text) = environment.get(variable) else {
                let hint = "which is not set; export it, or name another variable";
                section.mistake(&env_key, &format!("names the variable {variable}, {hint}"));
                return None;
            };
            text.clone()
        }
        (None, None) => return None,
    };
    let text = text.trim();
    if text.is_empty() {
        section.mistake(&env_key, "leads to an empty secret");
        return None;
    }
    Some(Secret::new(text))
}

fn address(section: &mut Section, default: &str) -> SocketAddr {
    let expected = format!("an IP address and a port, e.g. `{default}`");
    let read = |value: &Value| as_text(value)?.parse().ok();
    let listen = section.optional("listen", &expected, read);
    listen.unwrap_or_else(|| default.parse().expect("a default written here"))
}

fn seconds(
    section: &mut Section,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
) -> Option<Duration> {
    let expected = format!(
        "a number of seconds from {} to {}",
        range.start(),
        range.end()
    );
    section.optional(key, &expected, |value| {
        let seconds: i64 = checked_toml::as_integer(value)?;
        let seconds = u64::try_from(seconds)
            .ok()
            .filter(|seconds| range.contains(seconds))?;
        Some(Duration::from_secs(seconds))
    })
}

fn http_url(value: &Value) -> Option<String> {
    let url = as_text(value)?;
    let uri: axum::http::Uri = url.parse().ok()?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    (known && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none())
        .then(|| url.trim_end_matches('/').to_owned())
}

fn readable_file(value: &Value) -> Option<PathBuf> {
    let path = PathBuf::from(as_text(value)?);
    std::fs::read(&path).ok().map(|_| path)
}
