//! How OpenAI-compatible servers differ from each other, as data: the settings of a provider and the known vendors.

use axum::http::Uri;

/// Deviations of one OpenAI-compatible server from the common API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Header that carries the API key; `None` means `Authorization: Bearer`.
    pub key_header: Option<String>,
    /// Query string of every URL, e.g. `api-version=2026-01-01`.
    pub query: Option<String>,
    /// Name of the field for the output budget.
    pub max_tokens_field: MaxTokensField,
    /// Request fields that the server refuses; they are not sent.
    pub omit: Vec<String>,
    /// Request fields that are sent under another name: `(from, to)`.
    pub rename: Vec<(String, String)>,
    /// Whether the server streams and reports usage in streams. If not, the gateway requests whole responses and
    /// streams them to callers itself.
    pub streams: bool,
    /// Whether built-in tools may be offered; servers without tool support refuse requests that carry tools.
    pub builtin_tools: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxTokensField {
    MaxTokens,
    MaxCompletionTokens,
}

/// Request fields that may be omitted or renamed. The others (model, messages, tools, …) define the request.
pub(crate) const FIELDS: [&str; 17] = [
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

/// A vendor's own service that differs from the common API of compatible servers.
struct Vendor {
    /// Hosts; an entry that starts with a dot matches every host that ends with it.
    hosts: &'static [&'static str],
    max_tokens_field: MaxTokensField,
    omit: &'static [&'static str],
    rename: &'static [(&'static str, &'static str)],
}

const VENDORS: [Vendor; 2] = [
    // OpenAI and Azure refuse unknown fields; their newer models also refuse `max_tokens`.
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
    // Mistral refuses unknown fields, and reports usage at the end of a stream without `stream_options`.
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
    /// Quirks of the vendor's service at this URL, or the defaults for any other server. Vendors are recognised by
    /// their host, under which no other server can be reached.
    pub(crate) fn for_base_url(base_url: &str) -> Self {
        let uri: Option<Uri> = base_url.parse().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let host = host.to_ascii_lowercase();
        let matches = |name: &&str| host == *name || name.starts_with('.') && host.ends_with(*name);
        let mut vendors = VENDORS.iter();
        let Some(vendor) = vendors.find(|vendor| vendor.hosts.iter().any(matches)) else {
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
    fn a_vendor_is_recognised_by_its_host() {
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
            let quirks = Quirks::for_base_url(url);
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
