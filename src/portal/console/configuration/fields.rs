//! The settings of each kind of entry that have a field of their own in its form. The others are written as TOML.

use toml::Table;

use crate::{catalog::Tier, config::changes::Kind, gateway::Routes};

/// A field of a form.
pub(super) struct Field {
    /// The dotted key of the setting.
    pub key: &'static str,
    pub label: &'static str,
    /// Shown beside the label.
    pub hint: &'static str,
    pub input: Input,
}

pub(super) enum Input {
    Text,
    LongText,
    /// US dollars as a text.
    Price,
    Number,
    /// Names separated by commas: one text, or a list.
    Names,
    /// One of these values, with what is shown for each; the first is preselected.
    Choice(Vec<(String, String)>),
}

const fn field(key: &'static str, label: &'static str, hint: &'static str, input: Input) -> Field {
    Field {
        key,
        label,
        hint,
        input,
    }
}

/// The fields of an entry. Those of a hybrid have no prices, which are those of its targets.
pub(super) fn fields(kind: Kind, entry: &Table, routes: &Routes) -> Vec<Field> {
    match kind {
        Kind::Model => model_fields(entry.contains_key("targets")),
        Kind::Alias => vec![field(
            "model",
            "Model",
            "used for requests with this name",
            models(routes, false),
        )],
        Kind::Deployment => deployment_fields(routes),
        Kind::Provider => provider_fields(),
    }
}

fn model_fields(is_hybrid: bool) -> Vec<Field> {
    let tiers = [(String::new(), "Default".to_owned())]
        .into_iter()
        .chain(Tier::ALL.map(|tier| (tier.to_string(), tier.to_string())));
    let mut fields = vec![
        field("name", "Display name", "", Input::Text),
        field("description", "Description", "", Input::LongText),
        field(
            "min_tier",
            "Lowest tier",
            "plans from this tier on include it",
            Input::Choice(tiers.collect()),
        ),
    ];
    if !is_hybrid {
        let tokens = "per million tokens";
        fields.extend([
            field("input", "Input price", tokens, Input::Price),
            field("output", "Output price", tokens, Input::Price),
            field(
                "cached_input",
                "Cached input price",
                "per million tokens; empty: as input",
                Input::Price,
            ),
            field(
                "cache_write",
                "Cache write price",
                "per million tokens; empty: as input",
                Input::Price,
            ),
            field(
                "cache_write_1h",
                "Cache write price, one hour",
                "per million tokens; empty: as input",
                Input::Price,
            ),
            field(
                "request",
                "Fee for each response",
                "empty: none",
                Input::Price,
            ),
        ]);
    }
    let empty = "tokens; empty: the default";
    fields.extend([
        field("context_length", "Context length", empty, Input::Number),
        field("max_output", "Max output", empty, Input::Number),
        field(
            "min_output",
            "Minimum output budget",
            "tokens; empty: none",
            Input::Number,
        ),
    ]);
    fields
}

fn deployment_fields(routes: &Routes) -> Vec<Field> {
    let providers = routes
        .providers
        .iter()
        .map(|name| (name.clone(), name.clone()));
    vec![
        field("model", "Model", "", models(routes, true)),
        field(
            "provider",
            "Provider",
            "",
            Input::Choice(providers.collect()),
        ),
        field(
            "upstream_model",
            "Upstream model",
            "empty: the model’s ID",
            Input::Text,
        ),
        field(
            "weight",
            "Weight",
            "among deployments of equal priority, 1 to 1000; empty: 1",
            Input::Number,
        ),
        field(
            "priority",
            "Priority",
            "the lowest is used first; empty: 0",
            Input::Number,
        ),
        field(
            "cost.input",
            "Your cost of input",
            "per million tokens; empty: unknown",
            Input::Price,
        ),
        field(
            "cost.output",
            "Your cost of output",
            "per million tokens; empty: unknown",
            Input::Price,
        ),
        field(
            "cost.cached_input",
            "Your cost of cached input",
            "per million tokens; empty: as input",
            Input::Price,
        ),
    ]
}

fn provider_fields() -> Vec<Field> {
    let kinds = ["openai", "anthropic", "gemini", "simulator"]
        .map(|kind| (kind.to_owned(), kind.to_owned()));
    vec![
        field("kind", "Kind", "API protocol", Input::Choice(kinds.into())),
        field(
            "base_url",
            "Base URL",
            "up to and including its version, e.g. https://api.openai.com/v1",
            Input::Text,
        ),
        field(
            "api_key_env",
            "Environment variable of the API key",
            "only its name; several with commas",
            Input::Names,
        ),
        field(
            "api_key_file",
            "File of the API key",
            "only its path",
            Input::Text,
        ),
        field(
            "timeouts.connect_seconds",
            "Timeout to connect",
            "seconds; empty: 5",
            Input::Number,
        ),
        field(
            "timeouts.first_byte_seconds",
            "Timeout to the first byte",
            "seconds; empty: 300",
            Input::Number,
        ),
        field(
            "timeouts.idle_seconds",
            "Timeout between two reads",
            "seconds; empty: 120",
            Input::Number,
        ),
        field(
            "timeouts.total_seconds",
            "Timeout of a whole attempt",
            "seconds; empty: 3,600",
            Input::Number,
        ),
    ]
}

fn models(routes: &Routes, with_all: bool) -> Input {
    let all = with_all.then(|| {
        (
            "*".to_owned(),
            "* (models without a deployment of their own)".to_owned(),
        )
    });
    let models = routes
        .catalog
        .models()
        .filter(|model| !with_all || !model.is_hybrid());
    let models = models.map(|model| (model.id.clone(), model.id.clone()));
    Input::Choice(all.into_iter().chain(models).collect())
}
