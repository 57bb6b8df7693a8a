//! The `[providers]`, `[[deployments]]` and `[routing]` sections.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use super::{
    Choice, CustomWeights, Deployment, Dialect, Identity, MaxTokensField, Provider, ProviderKind,
    Quirks, RemoteProvider, Reuse, Routing, Timeouts,
    files::secret_of_file,
    identity::identity,
    quirks::FIELDS,
    values::{Environment, http_url, is_safe_url, seconds, secret},
};
use crate::{
    base::{
        checked_toml::{self, Section, Value, as_text},
        keys::Secret,
    },
    catalog::{Catalog, Prices},
    routing::Scorer,
};

const ANTHROPIC_URL: &str = "https://api.anthropic.com/v1";
/// Betas that Bedrock documents. It refuses a call with any other one, and clients ask for those of Anthropic's own API.
const BEDROCK_BETAS: [&str; 11] = [
    "computer-use-2024-10-22",
    "computer-use-2025-01-24",
    "token-efficient-tools-2025-02-19",
    "interleaved-thinking-2025-05-14",
    "output-128k-2025-02-19",
    "dev-full-thinking-2025-05-14",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "effort-2025-11-24",
    "tool-search-tool-2025-10-19",
    "tool-examples-2025-10-29",
];
/// Betas that Vertex AI has. It refuses a call with any other one too.
const VERTEX_BETAS: [&str; 8] = [
    "computer-use-2025-01-24",
    "computer-use-2025-11-24",
    "interleaved-thinking-2025-05-14",
    "context-1m-2025-08-07",
    "context-management-2025-06-27",
    "tool-search-tool-2025-10-19",
    "web-search-2025-03-05",
    "compact-2026-01-12",
];
const GEMINI_URL: &str = "https://generativelanguage.googleapis.com/v1beta";

/// The URL of a kind of provider without `base_url`: the vendors' own APIs have a known address, while a compatible server
/// can be anywhere.
pub(super) fn known_url(kind: &str) -> Option<&'static str> {
    match kind {
        "anthropic" => Some(ANTHROPIC_URL),
        "gemini" => Some(GEMINI_URL),
        _ => None,
    }
}

pub(crate) fn provider(mut section: Section, environment: &Environment) -> Provider {
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
    let auth = section.text_of("auth").map(str::to_owned);
    let identity = identity(&mut section, environment);
    let known_url = match auth.as_deref() {
        // A Bedrock API key is no key of Anthropic's.
        None if section.text_of("dialect") == Some("bedrock") => None,
        None => own_url(kind).map(str::to_owned),
        // Without its region there is a mistake already.
        Some("aws") => {
            let url = identity.as_ref().and_then(|it| aws_url(it, kind));
            Some(url.unwrap_or_default())
        }
        // Other clouds have their own address, in which projects and regions are.
        Some(_) => None,
    };
    let base_url = base_url(&mut section, known_url);
    // Requests to AWS are signed, and show nothing that could be used again.
    let has_token = matches!(auth.as_deref(), Some("google" | "azure"));
    if has_token && base_url.as_deref().is_some_and(|url| !is_safe_url(url)) {
        let message = "does not go with `auth`: tokens would be sent without encryption; expected https without a \
                       user, or an address of this machine";
        section.mistake("base_url", message);
    }
    let dialect = match kind {
        ProviderKind::Anthropic => dialect(&mut section, base_url.as_deref(), identity.as_ref()),
        _ => Dialect::default(),
    };
    if kind == ProviderKind::Gemini && auth.as_deref() == Some("aws") {
        let message =
            "is \"aws\", which has no models of kind `gemini`; expected `google`, or a key";
        section.mistake("auth", message);
    }
    let betas = match dialect {
        Dialect::Bedrock => betas(&mut section, &BEDROCK_BETAS),
        Dialect::Vertex => betas(&mut section, &VERTEX_BETAS),
        Dialect::Anthropic => Vec::new(),
    };
    let api_keys = api_keys(&mut section, environment);
    let timeouts = timeouts(&mut section, Timeouts::default());
    let reuse = match section.flag("reuse_connections") {
        Some(false) => Reuse::Never,
        Some(true) | None => Reuse::Pooled,
    };
    let quirks = match kind {
        ProviderKind::OpenAi => quirks(&mut section, base_url.as_deref().unwrap_or_default()),
        _ => Quirks::default(),
    };
    section.finish();
    Provider::Remote(Box::new(RemoteProvider {
        kind,
        dialect,
        betas,
        base_url: base_url.unwrap_or_default(),
        api_keys,
        identity,
        quirks,
        timeouts,
        reuse,
    }))
}

/// The URL of a vendor's own API; a compatible server can be anywhere.
fn own_url(kind: ProviderKind) -> Option<&'static str> {
    match kind {
        ProviderKind::OpenAi => None,
        ProviderKind::Anthropic => Some(ANTHROPIC_URL),
        ProviderKind::Gemini => Some(GEMINI_URL),
    }
}

/// The URL of Bedrock in the region of an identity.
fn aws_url(identity: &Identity, kind: ProviderKind) -> Option<String> {
    let Identity::Aws(aws) = identity else {
        return None;
    };
    let url = aws.bedrock_url();
    Some(match kind {
        ProviderKind::OpenAi => format!("{url}/openai/v1"),
        ProviderKind::Anthropic | ProviderKind::Gemini => url,
    })
}

fn base_url(section: &mut Section, known: Option<String>) -> Option<String> {
    let expected = "a URL up to and including its version, e.g. `http://127.0.0.1:9000/v1`";
    match known {
        Some(known) => {
            let given = section.optional("base_url", expected, http_url);
            Some(given.unwrap_or(known))
        }
        None => section.required("base_url", expected, http_url),
    }
}

/// The beta features that a cloud gets: those that are set, or those that it is known to have.
fn betas(section: &mut Section, known: &[&str]) -> Vec<String> {
    let expected = "a list of beta features, e.g. `[\"context-1m-2025-08-07\"]`";
    let set = section.texts("betas", expected);
    set.unwrap_or_else(|| known.iter().map(|beta| (*beta).to_owned()).collect())
}

/// Whose form of the Messages API it is: that of the cloud whose host or identity it has, unless the section says
/// otherwise, as for a proxy.
fn dialect(section: &mut Section, base_url: Option<&str>, identity: Option<&Identity>) -> Dialect {
    let expected = "`anthropic`, `vertex` or `bedrock`";
    let given = section.optional("dialect", expected, |value| {
        match as_text(value)?.as_str() {
            "anthropic" => Some(Dialect::Anthropic),
            "vertex" => Some(Dialect::Vertex),
            "bedrock" => Some(Dialect::Bedrock),
            _ => None,
        }
    });
    let uri: Option<axum::http::Uri> = base_url.and_then(|url| url.parse().ok());
    let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or_default();
    let is_google = matches!(identity, Some(Identity::Google(_)));
    let is_vertex = is_google
        || host
            .to_ascii_lowercase()
            .ends_with("aiplatform.googleapis.com");
    // Bedrock's other endpoint has Anthropic's form.
    let is_bedrock = matches!(identity, Some(Identity::Aws(aws)) if !aws.is_mantle());
    let dialect = given.unwrap_or(if is_vertex {
        Dialect::Vertex
    } else if is_bedrock {
        Dialect::Bedrock
    } else {
        Dialect::Anthropic
    });
    match (dialect, identity) {
        (Dialect::Vertex, Some(Identity::Aws(_))) if given.is_some() => section.mistake(
            "dialect",
            "is \"vertex\", but `auth` is \"aws\"; expected `bedrock` or `anthropic`",
        ),
        (Dialect::Vertex, Some(Identity::Aws(_))) => section.mistake(
            "auth",
            "is \"aws\", but `base_url` leads to Vertex AI; expected `google`",
        ),
        (Dialect::Bedrock, Some(Identity::Google(_))) => section.mistake(
            "dialect",
            "is \"bedrock\", but `auth` is \"google\"; expected `vertex` or `anthropic`",
        ),
        _ => {}
    }
    dialect
}

/// Reads `timeouts`; those that are not set come from `default`.
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

/// Quirks of the vendor at this URL, overridden by those that the section sets.
fn quirks(section: &mut Section, base_url: &str) -> Quirks {
    let known = Quirks::for_base_url(base_url);
    let expected = "the name of a header, e.g. `api-key`";
    let key_header = section.optional("key_header", expected, |value| {
        let name = as_text(value)?.to_ascii_lowercase();
        axum::http::HeaderName::try_from(&name).ok().map(|_| name)
    });
    let query = section.text(
        "query",
        "the query of every URL, e.g. `api-version=2026-01-01`",
    );
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
                // `model` and `messages` are always sent, so renaming to one of them would send it twice.
                let to = as_text(&to.value)?;
                Some((from, to)).filter(|(_, to)| to != "model" && to != "messages")
            });
            names.collect::<Option<Vec<_>>>()
        }
        _ => None,
    });
    let streams = section.flag("streams");
    let builtin_tools = section.flag("builtin_tools");
    Quirks {
        key_header,
        query,
        max_tokens_field: field.unwrap_or(known.max_tokens_field),
        omit: omit.unwrap_or(known.omit),
        rename: rename.unwrap_or(known.rename),
        streams: streams.unwrap_or(known.streams),
        builtin_tools: builtin_tools.unwrap_or(known.builtin_tools),
    }
}

pub(crate) fn routing(mut section: Section) -> (Routing, Option<CustomWeights>) {
    let default = Routing::default();
    let attempts = section.optional("attempts", "a number from 1 to 10", |value| {
        checked_toml::as_integer(value).filter(|attempts| (1..=10).contains(attempts))
    });
    let timeout = seconds(&mut section, "patience_seconds", 1..=3_600);
    let choice = section.optional("choose_by", "`weight` or `latency`", |value| match as_text(
        value,
    )?
    .as_str()
    {
        "weight" => Some(Choice::Weight),
        "latency" => Some(Choice::Latency),
        _ => None,
    });
    let weights = weights(&mut section);
    section.finish();
    let routing = Routing {
        attempts: attempts.unwrap_or(default.attempts),
        timeout: timeout.unwrap_or(default.timeout),
        choice: choice.unwrap_or(default.choice),
    };
    (routing, weights)
}

fn weights(section: &mut Section) -> Option<CustomWeights> {
    let expected = "the path of a file of router weights";
    let file = PathBuf::from(section.text("weights", expected)?);
    let read = std::fs::read(&file).map_err(|error| format!("it cannot be read: {error}"));
    match read.and_then(|file| Scorer::read(&file)) {
        Ok(scorer) => Some(CustomWeights {
            file,
            scorer: Arc::new(scorer),
        }),
        Err(reason) => {
            let file = file.display();
            section.mistake("weights", &format!("names {file}: {reason}"));
            None
        }
    }
}

pub(crate) fn deployment(
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
    let priority = section.integer("priority", "a number from 0; the lowest is tried first");
    let inherited = match provider.as_ref().and_then(|name| providers.get(name)) {
        Some(Provider::Remote(remote)) => remote.timeouts,
        _ => Timeouts::default(),
    };
    let own = section.contains("timeouts");
    let timeouts = own.then(|| timeouts(&mut section, inherited));
    let cost = cost(&mut section);
    section.finish();
    Deployment {
        model: model.unwrap_or_default(),
        provider: provider.unwrap_or_default(),
        upstream_model,
        weight: weight.unwrap_or(1),
        priority: priority.unwrap_or(0),
        timeouts,
        cost,
    }
}

/// The operator's own cost. Input and output prices are required, so that a forgotten one is not taken for free.
fn cost(section: &mut Section) -> Option<Arc<Prices>> {
    if !section.contains("cost") {
        return None;
    }
    let mut written = section.section("cost");
    for key in ["input", "output"] {
        if !written.contains(key) {
            written.mistake(key, "is missing; expected a price, e.g. \"2.00\"");
        }
    }
    let cost = Prices::read(&mut written, &Prices::default());
    written.finish();
    Some(Arc::new(cost))
}

/// The API keys of a provider: none, one, or several if `api_key_env` is a list of variables or `api_key_file` one of
/// files.
fn api_keys(section: &mut Section, environment: &Environment) -> Vec<Secret> {
    let [from_env, from_files] = ["api_key_env", "api_key_file"].map(|key| section.is_list(key));
    if !from_env && !from_files {
        return secret(section, "api_key", None, environment)
            .into_iter()
            .collect();
    }
    section.refuse("api_key", "does not belong here: use `api_key_env`");
    let mut keys = Vec::new();
    if from_env {
        let expected = "the names of environment variables";
        let names = section.texts("api_key_env", expected).unwrap_or_default();
        for variable in names {
            match environment.get(&variable).map(|key| key.trim()) {
                Some(key) if !key.is_empty() => keys.push(Secret::new(key)),
                _ => {
                    let hint = "which is not set; export it, or leave it out";
                    let message = format!("names the variable {variable}, {hint}");
                    section.mistake("api_key_env", &message);
                }
            }
        }
    }
    if from_files {
        let expected = "the paths of files";
        let files = section.texts("api_key_file", expected).unwrap_or_default();
        for file in files {
            match secret_of_file(&Value::Text(file.clone())) {
                Some(key) if !key.is_empty() => keys.push(Secret::new(key)),
                _ => {
                    let hint =
                        "which has no key in it or cannot be read; correct it, or leave it out";
                    section.mistake("api_key_file", &format!("names {file}, {hint}"));
                }
            }
        }
    }
    keys
}
