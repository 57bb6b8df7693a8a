//! The names of providers in traces and metrics, by the conventions for generative AI.

use crate::config;

/// The well-known name of the provider, or else its name in the configuration.
pub(super) fn vendor<'a>(name: &'a str, provider: &config::Provider) -> &'a str {
    let config::Provider::Remote(provider) = provider else {
        return name;
    };
    let url: Option<axum::http::Uri> = provider.base_url.parse().ok();
    let known = url.as_ref().and_then(|url| well_known(url.host()?));
    known.unwrap_or(name)
}

fn well_known(host: &str) -> Option<&'static str> {
    const HOSTS: [(&str, &str); 11] = [
        ("api.openai.com", "openai"),
        ("api.anthropic.com", "anthropic"),
        ("generativelanguage.googleapis.com", "gcp.gemini"),
        ("api.mistral.ai", "mistral_ai"),
        ("api.groq.com", "groq"),
        ("api.deepseek.com", "deepseek"),
        ("api.x.ai", "x_ai"),
        ("api.cohere.com", "cohere"),
        ("api.perplexity.ai", "perplexity"),
        ("api.moonshot.ai", "moonshot_ai"),
        ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ];
    let known = HOSTS.iter().find(|(known, _)| *known == host);
    if let Some((_, name)) = known {
        return Some(name);
    }
    if host.ends_with(".openai.azure.com") || host.ends_with(".services.ai.azure.com") {
        return Some("azure.ai.openai");
    }
    if host.ends_with("-aiplatform.googleapis.com") {
        return Some("gcp.vertex_ai");
    }
    let is_aws = host.starts_with("bedrock-runtime.") && host.contains(".amazonaws.com");
    is_aws.then_some("aws.bedrock")
}

#[cfg(test)]
mod tests {
    use super::well_known;

    #[test]
    fn vendors_are_known_by_their_hosts() {
        for (host, vendor) in [
            ("api.openai.com", Some("openai")),
            ("mine.openai.azure.com", Some("azure.ai.openai")),
            (
                "europe-west4-aiplatform.googleapis.com",
                Some("gcp.vertex_ai"),
            ),
            (
                "bedrock-runtime.eu-central-1.amazonaws.com",
                Some("aws.bedrock"),
            ),
            ("openai.com.example.com", None),
            ("localhost", None),
        ] {
            assert_eq!(well_known(host), vendor, "{host}");
        }
    }
}
