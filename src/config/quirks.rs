//! In what servers that speak OpenAI's language differ from each other: data, and no code.

use axum::http::Uri;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// The header for the key, where it is not `Authorization: Bearer`.
    pub key_header: Option<String>,
    /// What every URL ends with, e.g. `api-version=2026-01-01`.
    pub query: Option<String>,
    /// What it calls the output budget.
    pub max_tokens_field: MaxTokensField,
    /// Fields of the request that it does not take.
    pub omit: Vec<String>,
    /// Fields of the request that it has another name for.
    pub rename: Vec<(String, String)>,
    /// Whether it streams, and counts what it streams; if not, whole answers are streamed for it.
    pub streams: bool,
    /// Whether it can be offered the gateway's own tools: servers without tools refuse any.
    pub builtin_tools: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTokensField {
    MaxTokens,
    MaxCompletionTokens,
}

/// Fields that can be left out or called otherwise. The rest makes a request what it is.
pub const FIELDS: [&str; 17] = [
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "seed",
    "stop",
    "stream_options",
    "temperature",
    "thinking",
    "top_k",
    "top_logprobs",
    "top_p",
    "user",
];

impl Default for Quirks {
    fn default() -> Self {
        Self {
            key_header: None,
            query: None,
            max_tokens_field: MaxTokensField::MaxTokens,
            omit: Vec::new(),
            rename: Vec::new(),
            streams: true,
            builtin_tools: true,
        }
    }
}

/// A vendor's own service, which wants other words than the many servers that took after it.
struct Vendor {
    /// A host, or with a dot in front what a host may end with.
    hosts: &'static [&'static str],
    max_tokens_field: MaxTokensField,
    omit: &'static [&'static str],
    rename: &'static [(&'static str, &'static str)],
}

const VENDORS: [Vendor; 2] = [
    // OpenAI and Azure refuse what they do not know; newer models refuse `max_tokens` too.
    Vendor {
        hosts: &[
            "api.openai.com",
            ".api.openai.com",
            ".openai.azure.com",
            ".services.ai.azure.com",
            ".cognitiveservices.azure.com",
        ],
        max_tokens_field: MaxTokensField::MaxCompletionTokens,
        omit: &["top_k", "thinking"],
        rename: &[],
    },
    // Mistral refuses what it does not know, and reports usage at the end of a stream unasked.
    Vendor {
        hosts: &["api.mistral.ai"],
        max_tokens_field: MaxTokensField::MaxTokens,
        omit: &[
            "top_k",
            "logit_bias",
            "logprobs",
            "top_logprobs",
            "thinking",
            "user",
            "stream_options",
        ],
        rename: &[("seed", "random_seed")],
    },
];

impl Quirks {
    /// What is known of the server at this address; it goes by the host, which only the vendor
    /// itself has.
    pub fn known_of(base_url: &str) -> Self {
        let uri: Option<Uri> = base_url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let host = host.to_ascii_lowercase();
        let is = |name: &&str| host == *name || name.starts_with('.') && host.ends_with(*name);
        let mut vendors = VENDORS.iter();
        let Some(vendor) = vendors.find(|vendor| vendor.hosts.iter().any(is)) else {
            return Self::default();
        };
        let owned = |name: &&str| (*name).to_owned();
        Self {
            max_tokens_field: vendor.max_tokens_field,
            omit: vendor.omit.iter().map(owned).collect(),
            rename: vendor
                .rename
                .iter()
                .map(|(from, to)| (owned(from), owned(to)))
                .collect(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vendor_is_known_by_its_host() {
        for (url, omits, renames) in [
            ("https://api.openai.com/v1", true, false),
            ("https://EU.api.OpenAI.com/v1", true, false),
            ("https://acme.openai.azure.com/openai/v1", true, false),
            ("https://acme.services.ai.azure.com/openai/v1", true, false),
            ("https://api.mistral.ai/v1", true, true),
            ("https://api.groq.com/openai/v1", false, false),
            ("https://notapi.openai.com.example/v1", false, false),
            ("https://example.com/api.openai.com/v1", false, false),
            ("http://127.0.0.1:9000/v1", false, false),
        ] {
            let quirks = Quirks::known_of(url);
            let found = (!quirks.omit.is_empty(), !quirks.rename.is_empty());
            assert_eq!(found, (omits, renames), "{url}");
        }
        for vendor in &VENDORS {
            let renamed = vendor.rename.iter().map(|(from, _)| from);
            for field in vendor.omit.iter().chain(renamed) {
                assert!(FIELDS.contains(field), "{field}");
            }
        }
    }
}
