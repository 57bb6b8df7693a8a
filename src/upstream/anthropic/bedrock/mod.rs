//! The Messages API as Amazon Bedrock serves it: the model is in the path, the version and the betas are in the body,
//! and streams come in the binary form of AWS.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;

use crate::{upstream::auth::sigv4::path_segment, wire::error::UpstreamError};

mod body;
mod frames;

pub(crate) use body::{body, counted_body};
pub(crate) use frames::BedrockFrames;

/// The path of a call.
pub(crate) fn invoke_path(model: &str, is_stream: bool) -> String {
    let action = if is_stream {
        "invoke-with-response-stream"
    } else {
        "invoke"
    };
    format!("/model/{}/{action}", path_segment(model))
}

/// The path of a request that counts tokens. Models have counts, and the profiles in front of them (`eu.anthropic.…`)
/// have none.
pub(crate) fn count_path(model: &str) -> String {
    let start = model.find("anthropic.");
    let start = start.filter(|_| !model.starts_with("arn:"));
    let model = &model[start.unwrap_or(0)..];
    format!("/model/{}/count-tokens", path_segment(model))
}

/// The body of a request that counts the tokens of a call with this body.
pub(crate) fn count_body(invoke: &[u8]) -> Vec<u8> {
    const START: &str = r#"{"input":{"invokeModel":{"body":""#;
    const END: &str = r#""}}}"#;
    // Bodies are large: the text is written where it belongs, and its memory is taken once.
    let length = START.len() + invoke.len().div_ceil(3) * 4 + END.len();
    let mut body = String::with_capacity(length);
    body.push_str(START);
    STANDARD.encode_string(invoke, &mut body);
    body.push_str(END);
    body.into_bytes()
}

/// Parses the response to a request that counts tokens.
pub(crate) fn read_count(body: &[u8]) -> Result<u64, UpstreamError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Count {
        input_tokens: u64,
    }
    let count: Count =
        serde_json::from_slice(body).map_err(|error| UpstreamError::unreadable(&error))?;
    Ok(count.input_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_one_segment_of_the_path() {
        assert_eq!(
            invoke_path("eu.anthropic.claude-sonnet-4-5-20250929-v1:0", true),
            "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke-with-response-stream"
        );
        let profile = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/a1";
        assert_eq!(
            invoke_path(profile, false),
            "/model/arn%3Aaws%3Abedrock%3Aeu-west-1%3A123456789012%3Aapplication-inference-profile%2Fa1/invoke"
        );
        assert_eq!(count_path("a/../b?c"), "/model/a%2F..%2Fb%3Fc/count-tokens");
        assert_eq!(
            count_path("us.anthropic.claude-v1:0"),
            "/model/anthropic.claude-v1%3A0/count-tokens"
        );
        assert!(count_path(profile).starts_with("/model/arn%3Aaws%3A"));
    }

    #[test]
    fn tokens_are_counted() {
        let body = count_body(b"{}");
        assert_eq!(body, br#"{"input":{"invokeModel":{"body":"e30="}}}"#);
        assert_eq!(read_count(br#"{"inputTokens":7}"#).unwrap(), 7);
        assert!(read_count(br#"{"input_tokens":7}"#).is_err());
    }

    #[test]
    fn a_body_to_be_counted_takes_its_memory_once() {
        for length in [0, 1, 2, 3, 100_000] {
            let body = count_body(&vec![b'x'; length]);
            assert_eq!(body.len(), body.capacity(), "{length}");
        }
    }
}
