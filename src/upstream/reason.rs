//! Redacts a provider's error message so that it can be shown to a caller.
//!
//! Host, vendor and model names, keys, URLs and identifiers are removed. A message about the operator's own key or
//! region is not shown at all.

use serde_json::Value;

use crate::{
    base::keys::Secret,
    config::{Dialect, Identity, RemoteProvider},
    wire::error::CONTEXT_OVERFLOW,
};

/// A longer message is truncated to this many words.
const MAX_WORDS: usize = 60;
const REDACTED: &str = "[...]";
/// Names of AWS, redacted where requests go there, whatever the kind of the provider is.
const AWS_NAMES: [&str; 3] = ["amazon", "aws", "bedrock"];
/// Digits of an account's number at AWS.
const ACCOUNT_DIGITS: usize = 12;

/// Removes from error messages what identifies the provider, and its API keys.
pub(crate) struct Redactor {
    /// Names in lower case; a word that contains one of them is replaced.
    redacted: Vec<String>,
    /// What is redacted because the operator alone knows it: keys, accounts and projects.
    secrets: Vec<String>,
    /// Whether names and numbers of accounts at AWS are secrets too. A role's are in none of our settings.
    hides_accounts: bool,
}

impl Redactor {
    pub(crate) fn new(provider: &RemoteProvider) -> Self {
        let keys = provider.api_keys.iter().map(Secret::reveal);
        let names = provider.identity.iter().flat_map(Identity::names);
        let mut redactor = Self::with(&provider.base_url, keys.chain(names));
        if is_of_aws(provider) {
            redactor.hides_accounts = true;
            redactor.redact_also(&AWS_NAMES);
        }
        redactor
    }

    /// `secrets` are the keys and what names the operator's account.
    pub(crate) fn with<'a>(base_url: &'a str, secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let uri: Option<axum::http::Uri> = base_url.parse().ok();
        let host = uri
            .as_ref()
            .and_then(|uri| uri.host())
            .unwrap_or_default()
            .to_lowercase();
        // The vendor's name: `vendor` of `api.vendor.com`.
        let vendor = host
            .rsplit('.')
            .nth(1)
            .filter(|part| part.len() > 3)
            .map(str::to_owned);
        let path = uri.as_ref().map_or("", |uri| uri.path());
        let secrets: Vec<_> = secrets
            .into_iter()
            .map(str::to_lowercase)
            .chain(project_in(path).map(str::to_lowercase))
            .filter(|name| !name.is_empty())
            .collect();
        let redacted = [Some(host), vendor].into_iter().flatten();
        let redacted = redacted.filter(|name| !name.is_empty());
        Self {
            redacted: redacted.collect(),
            secrets,
            hides_accounts: false,
        }
    }

    /// Adds names to redact, in lower case.
    pub(crate) fn redact_also(&mut self, names: &[&str]) {
        let names = names.iter().map(|name| (*name).to_owned());
        self.redacted.extend(names);
    }

    /// Whether a message names what only the operator knows, so that not even a caller of the provider's own API gets
    /// it as it is.
    pub(crate) fn reveals_secret(&self, message: &str) -> bool {
        let message = message.to_lowercase();
        self.secrets.iter().any(|secret| message.contains(secret))
            || self.hides_accounts && names_account(&message)
    }

    /// The redacted message of an error body, if it is about the caller's request.
    ///
    /// The upstream model's name is replaced by the model that the caller requested. A context overflow is reworded
    /// to contain [`CONTEXT_OVERFLOW`], by which clients recognise it.
    pub(crate) fn public_reason(
        &self,
        status: u16,
        body: &[u8],
        upstream_model: &str,
        requested_model: &str,
    ) -> Option<String> {
        if !matches!(status, 400 | 413 | 422) {
            return None;
        }
        if is_operators_fault(body) {
            return None;
        }
        let error = error_in(body)?;
        let message = error
            .get("message")
            .or(Some(&error))
            .and_then(Value::as_str)?;
        let model = upstream_model.to_lowercase();
        let (model, has_account) = match resource_in(&model) {
            Some(resource) => (resource, true),
            None => (model.as_str(), false),
        };
        let clean = |word: &str| {
            let lower = word.to_lowercase();
            let is_redacted = self.redacted.iter().any(|name| has_name(&lower, name))
                || self.reveals_secret(&lower)
                || has_account && names_account(&lower);
            if is_redacted || lower.contains("://") || looks_secret(word) {
                REDACTED.to_owned()
            } else if names_model(&lower, model) {
                format!("`{requested_model}`")
            } else {
                word.chars().filter(|c| !c.is_control()).collect()
            }
        };
        let words: Vec<_> = message
            .split_whitespace()
            .take(MAX_WORDS)
            .map(clean)
            .collect();
        let reason = words.join(" ");
        if is_context_overflow(&error, message) && !reason.to_lowercase().contains(CONTEXT_OVERFLOW)
        {
            return Some(format!(
                "The model's {CONTEXT_OVERFLOW} is exceeded: {reason}"
            ));
        }
        (!reason.is_empty()).then_some(reason)
    }
}

/// Whether requests go to AWS: they are signed, or have a key of Bedrock.
fn is_of_aws(provider: &RemoteProvider) -> bool {
    const DOMAINS: [&str; 3] = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"];
    let uri: Option<axum::http::Uri> = provider.base_url.parse().ok();
    let host = uri.as_ref().and_then(|uri| uri.host()).unwrap_or_default();
    let host = host.to_lowercase();
    matches!(provider.identity, Some(Identity::Aws(_)))
        || provider.dialect == Dialect::Bedrock
        || DOMAINS.iter().any(|domain| host.ends_with(domain))
}

/// Whether a text in lower case has the name of a resource at AWS, in which the account is, or its number alone.
fn names_account(text: &str) -> bool {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    text.contains("arn:aws") || numbers.any(|number| number.len() == ACCOUNT_DIGITS)
}

/// The name of the resource in an ARN, in lower case: `name` of `arn:aws:bedrock:REGION:ACCOUNT:inference-profile/name`.
/// The parts before it are no names of a model, and `arn` is in many words.
fn resource_in(arn: &str) -> Option<&str> {
    let parts = arn.strip_prefix("arn:")?;
    let resource = parts.splitn(5, ':').nth(4)?;
    // Some services write `kind:name` instead of `kind/name`.
    let named = resource.rsplit_once('/').or(resource.split_once(':'));
    Some(named.map_or(resource, |(_, name)| name))
}

/// Whether a word has a name in it. A short name has to begin where the word or a part of it begins: `draws` does not
/// name `aws`.
fn has_name(word: &str, name: &str) -> bool {
    let mut places = word.match_indices(name);
    places.any(|(at, _)| name.len() > 3 || !word[..at].ends_with(char::is_alphabetic))
}

/// The project of a cloud in the path of its URLs: `/v1/projects/NAME/locations/…`.
fn project_in(path: &str) -> Option<&str> {
    let (_, project) = path.split_once("/projects/")?;
    project.split('/').next().filter(|name| name.len() > 3)
}

/// The message of an error about the caller's request, in the provider's words.
pub(crate) fn verbatim(status: u16, body: &[u8]) -> Option<String> {
    if !matches!(status, 400 | 413 | 422) || is_operators_fault(body) {
        return None;
    }
    let error = error_in(body)?;
    let message = error.get("message")?.as_str()?;
    (!message.is_empty()).then(|| message.to_owned())
}

/// Whether the error of a body says that the request exceeds the model's context.
pub(crate) fn is_overflow(body: &[u8]) -> bool {
    error_in(body).is_some_and(|error| {
        let message = error.get("message").and_then(Value::as_str);
        is_context_overflow(&error, message.unwrap_or_default())
    })
}

/// Whether an error says that a signature is too old or from the future.
pub(crate) fn is_about_clock(body: &[u8]) -> bool {
    const WORDS: [&str; 3] = [
        "signature expired",
        "signature not yet current",
        "time is too skewed",
    ];
    let error = error_in(body).unwrap_or_default();
    // Some services of AWS write the name in upper case.
    let message = error.get("message").or_else(|| error.get("Message"));
    let message = message.and_then(Value::as_str).unwrap_or_default();
    let message = message.to_lowercase();
    WORDS.iter().any(|words| message.contains(words))
}

/// Whether an error says that the request exceeds the model's context. Some vendors have an error code for it, others
/// only a message.
fn is_context_overflow(error: &Value, message: &str) -> bool {
    const CODES: [&str; 3] = [
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_max_prompt_tokens_exceeded",
    ];
    const MESSAGES: [[&str; 2]; 7] = [
        [CONTEXT_OVERFLOW, ""],
        ["input token count", "exceeds the maximum"],
        ["prompt is too long", ""],
        ["input is too long", ""],
        ["input length", "context l"],
        ["exceed", "context size"],
        ["exceed", "context window"],
    ];
    let has_code = |field: &str| {
        let code = error.get(field).and_then(Value::as_str);
        code.is_some_and(|code| CODES.contains(&code))
    };
    let message = message.to_lowercase();
    let matches_all = |parts: [&str; 2]| parts.iter().all(|part| message.contains(part));
    has_code("code") || has_code("type") || MESSAGES.into_iter().any(matches_all)
}

/// The error object of a body, or the body itself.
fn error_in(body: &[u8]) -> Option<Value> {
    let body: Value = serde_json::from_slice(body).ok()?;
    // Some providers wrap the error in a list.
    let body = body.get(0).unwrap_or(&body);
    Some(body.get("error").unwrap_or(body).clone())
}

/// Whether a status 400 is about the operator's key, region or account: Google and Anthropic have no other status for
/// some of that.
pub(crate) fn is_operators_fault(body: &[u8]) -> bool {
    const ABOUT_ACCOUNT: [&str; 8] = [
        "credit balance is too low",
        "specified api usage limits",
        "organization has been disabled",
        // Amazon Bedrock
        "model identifier is invalid",
        "on-demand throughput isn",
        "account is not authorized",
        "exceeds the service quota",
        "use case details have not been submitted",
    ];
    let Some(error) = error_in(body) else {
        return false;
    };
    let message = error.get("message").and_then(Value::as_str);
    let message = message.unwrap_or_default().to_lowercase();
    if ABOUT_ACCOUNT.iter().any(|words| message.contains(words)) {
        return true;
    }
    error.get("status").and_then(Value::as_str) == Some("FAILED_PRECONDITION")
        || is_about_key(&error)
}

/// Whether the error of a body refuses the key, whatever the status says: Gemini has 400 for a key that was deleted.
pub(crate) fn refuses_key(body: &[u8]) -> bool {
    error_in(body).is_some_and(|error| is_about_key(&error))
}

fn is_about_key(error: &Value) -> bool {
    let details = error.get("details").and_then(Value::as_array);
    let mut details = details.into_iter().flatten();
    details.any(|detail| {
        let reason = detail.get("reason").and_then(Value::as_str);
        reason.is_some_and(|reason| reason.starts_with("API_KEY_"))
    })
}

/// Whether a word names the upstream model: it contains the name or a part of it (`vendor/name:size`), or the name
/// contains it, as with a name without its date. For the latter the word must have letters and digits: a plain number
/// does not count.
fn names_model(word: &str, model: &str) -> bool {
    let mut parts = model.split(['/', ':', '@']).filter(|part| part.len() >= 3);
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_distinctive = bare.len() >= 4
        && bare.contains(|c: char| c.is_ascii_digit())
        && bare.contains(|c: char| c.is_ascii_alphabetic());
    parts.any(|part| word.contains(part)) || is_distinctive && model.contains(bare)
}

/// Whether a word looks like a key or an identifier: it starts with `sk-` or has a long run of letters and digits.
fn looks_secret(word: &str) -> bool {
    let run = |part: &str| {
        part.len() >= 20
            && part.bytes().any(|byte| byte.is_ascii_digit())
            && part.bytes().any(|byte| byte.is_ascii_alphabetic())
    };
    let separator = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let word = word.trim_start_matches(['"', '\'', '`', '(']);
    // OpenAI's keys, tokens of Google, JSON Web Tokens.
    let begins = ["sk-", "ya29.", "eyJ"];
    begins.iter().any(|begin| word.starts_with(begin)) || word.split(separator).any(run)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        config::{Aws, AwsSource, ProviderKind},
        upstream::testing::provider,
    };

    #[test]
    fn a_reason_is_shown_without_names_and_keys() {
        let redactor = Redactor::with("https://api.vendor.com/v1", ["sk-live-0123456789"]);
        let reason = |message: &str| {
            let body = serde_json::json!({ "error": { "message": message } }).to_string();
            redactor.public_reason(400, body.as_bytes(), "gpt-9o", "svc-pro")
        };
        assert_eq!(
            reason("This model's maximum context length is 8192 tokens.").unwrap(),
            "This model's maximum context length is 8192 tokens.",
        );
        assert_eq!(
            reason("GPT-9o-2026-01-01 at https://api.vendor.com says no to sk-live-0123456789")
                .unwrap(),
            "`svc-pro` at [...] says no to [...]",
        );
        let body = br#"{"error":{"message":"GPT-9o (gpt-9o-large) of 'acme' takes 8192 tokens"}}"#;
        assert_eq!(
            redactor
                .public_reason(400, body, "acme/gpt-9o-large:2026", "svc-pro")
                .unwrap(),
            "`svc-pro` `svc-pro` of `svc-pro` takes 8192 tokens",
        );
        assert_eq!(
            reason("Vendor req_0123456789abcdef0123").unwrap(),
            "[...] [...]"
        );
        assert_eq!(
            redactor.public_reason(401, b"{\"error\":{\"message\":\"x\"}}", "m", "n"),
            None
        );
        assert_eq!(
            redactor.public_reason(400, b"<html>no</html>", "m", "n"),
            None
        );
    }

    #[test]
    fn a_reason_may_be_wrapped_in_a_list() {
        let mut redactor = Redactor::with("https://api.vendor.com/v1", []);
        redactor.redact_also(&["gemini"]);
        let reason = |body: Value| {
            redactor.public_reason(400, body.to_string().as_bytes(), "gemini-3-pro", "svc-pro")
        };
        let error = json!({ "error": { "code": 400, "status": "INVALID_ARGUMENT",
            "message": "Gemini-3-Pro of Gemini takes no such role." } });
        let shown = "[...] of [...] takes no such role.";
        assert_eq!(reason(error.clone()).unwrap(), shown);
        assert_eq!(reason(json!([error])).unwrap(), shown);
        assert_eq!(reason(json!([])), None);
        let too_long = json!({ "error": { "message":
            "The input token count (9000) exceeds the maximum number of tokens allowed (8192)." } });
        assert_eq!(
            reason(too_long).unwrap(),
            "The model's maximum context length is exceeded: The input token count (9000) exceeds the \
             maximum number of tokens allowed (8192).",
        );
    }

    /// A provider at AWS whose credentials are those of the machine, so that no setting has the account.
    fn at_aws(kind: ProviderKind) -> Redactor {
        let identity = Identity::Aws(Aws {
            region: "eu-central-1".into(),
            service: "bedrock",
            source: AwsSource::Machine {
                url: "http://169.254.169.254".into(),
            },
        });
        Redactor::new(&RemoteProvider {
            identity: Some(identity),
            ..provider(kind, "http://127.0.0.1:9/v1")
        })
    }

    #[test]
    fn accounts_of_aws_are_secrets() {
        for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic] {
            let redactor = at_aws(kind);
            for message in [
                "User: arn:aws:sts::123456789012:assumed-role/gateway/i-1 may not do it",
                "The profile 'ARN:AWS-CN:bedrock:cn-north-1::x' is wrong",
                "Account 123456789012.",
            ] {
                assert!(redactor.reveals_secret(message), "{message}");
            }
            for message in ["messages.0: wrong", "1234567890123 is more than 8192"] {
                assert!(!redactor.reveals_secret(message), "{message}");
            }
            let body = json!({ "message":
                "Amazon Bedrock (AWS) draws on arn:aws:iam::123456789012:role/x of 123456789012: max_tokens" });
            let reason =
                redactor.public_reason(400, body.to_string().as_bytes(), "gpt-9o", "svc-pro");
            assert_eq!(
                reason.unwrap(),
                "[...] [...] [...] draws on [...] of [...] max_tokens"
            );
        }
        let other = Redactor::with("https://api.vendor.com/v1", []);
        assert!(!other.reveals_secret("Account 123456789012."));
    }

    #[test]
    fn the_model_of_an_arn_is_its_resource() {
        let redactor = Redactor::with("https://api.vendor.com/v1", []);
        for (arn, named) in [
            (
                "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1b2c3d4",
                "a1b2c3d4",
            ),
            (
                "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-v2:1",
                "anthropic.claude-v2:1",
            ),
            (
                "arn:aws:sagemaker:us-east-1:123456789012:endpoint:mine-7",
                "mine-7",
            ),
        ] {
            let message = format!(
                "Learn: a warning draws near the profile or endpoint, {named} ({arn}) of 123456789012"
            );
            let body = json!({ "message": message }).to_string();
            let reason = redactor.public_reason(400, body.as_bytes(), arn, "svc-pro");
            assert_eq!(
                reason.unwrap(),
                "Learn: a warning draws near the profile or endpoint, `svc-pro` [...] of [...]",
                "{arn}"
            );
        }
    }

    #[test]
    fn a_provider_is_at_aws_by_its_host_too() {
        for (url, expected) in [
            (
                "https://bedrock-runtime.eu-central-1.amazonaws.com/openai/v1",
                true,
            ),
            ("https://bedrock-mantle.us-east-2.API.aws/v1", true),
            ("https://amazonaws.com.example.com/v1", false),
        ] {
            let provider = provider(ProviderKind::OpenAi, url);
            assert_eq!(is_of_aws(&provider), expected, "{url}");
        }
    }

    #[test]
    fn errors_about_the_operators_key_region_or_account_are_not_shown() {
        let redactor = Redactor::with("https://api.vendor.com/v1", []);
        for error in [
            json!({ "message": "API key not valid.", "status": "INVALID_ARGUMENT",
                "details": [{ "@type": "x" }, { "reason": "API_KEY_INVALID" }] }),
            json!({ "message": "Location is not supported.", "status": "FAILED_PRECONDITION" }),
            json!({ "message": "Your credit balance is too low to access the API." }),
        ] {
            let body = json!({ "error": error }).to_string();
            let reason = redactor.public_reason(400, body.as_bytes(), "m", "n");
            assert_eq!(reason, None, "{body}");
        }
    }
}
