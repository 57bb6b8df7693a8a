//! What differs where a cloud serves the Messages API: paths, the version, the beta features and the model's name.

use std::borrow::Cow;

use super::bedrock;
use crate::{
    config::Dialect,
    wire::messages::{Naming, NativeHeaders},
};

const MESSAGES: &str = "/messages";
const COUNT: &str = "/messages/count_tokens";
/// The version of the API that this adapter implements, as a header and as Vertex AI calls it.
const VERSION: &str = "2023-06-01";
const VERTEX_VERSION: &str = "vertex-2023-10-16";

impl Dialect {
    /// The path to which a request for a message is posted.
    pub(super) fn messages(self, model: &str, stream: bool) -> Cow<'static, str> {
        match (self, stream) {
            (Self::Anthropic, _) => MESSAGES.into(),
            (Self::Vertex, false) => format!("/models/{model}:rawPredict").into(),
            (Self::Vertex, true) => format!("/models/{model}:streamRawPredict").into(),
            (Self::Bedrock, stream) => bedrock::invoke_path(model, stream).into(),
        }
    }

    /// The path to which a request is posted whose tokens are counted.
    pub(super) fn count(self, model: &str) -> Cow<'static, str> {
        match self {
            Self::Anthropic => COUNT.into(),
            Self::Vertex => "/models/count-tokens:rawPredict".into(),
            Self::Bedrock => bedrock::count_path(model).into(),
        }
    }

    /// The version in a header.
    pub(super) fn version_header(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some(VERSION),
            Self::Vertex | Self::Bedrock => None,
        }
    }

    /// How a body for this model says its version, the beta features and the model. One for Bedrock is rewritten after
    /// that.
    pub(super) fn naming<'a>(self, model: &'a str, betas: &'a [&'a str]) -> Naming<'a> {
        match self {
            Self::Anthropic | Self::Bedrock => Naming::Model(model),
            Self::Vertex => Naming::Version {
                version: VERTEX_VERSION,
                model: None,
                betas,
            },
        }
    }

    /// Like [`naming`](Self::naming), where the path does not have the model.
    pub(super) fn naming_to_count<'a>(self, model: &'a str, betas: &'a [&'a str]) -> Naming<'a> {
        match self {
            Self::Anthropic | Self::Bedrock => Naming::Model(model),
            Self::Vertex => Naming::Version {
                version: VERTEX_VERSION,
                model: Some(model),
                betas,
            },
        }
    }

    /// The header lines of a caller's own request. `betas` are the beta features that a cloud gets.
    pub(super) fn lines<'a>(self, headers: &'a NativeHeaders, betas: &[&str]) -> Cow<'a, str> {
        match self {
            Self::Anthropic => headers.lines().into(),
            // Vertex AI knows most beta features by the header alone, and refuses requests that have this one there.
            Self::Vertex => {
                let sent = betas.iter().copied();
                let sent: Vec<_> = sent
                    .filter(|beta| !beta.starts_with("context-1m-"))
                    .collect();
                NativeHeaders::beta_lines(&sent).into()
            }
            Self::Bedrock => "".into(),
        }
    }

    /// The header lines of a request that counts tokens, for which Vertex AI knows fewer features.
    pub(super) fn lines_to_count(self, headers: &NativeHeaders) -> &str {
        match self {
            Self::Anthropic => headers.lines(),
            Self::Vertex | Self::Bedrock => "",
        }
    }
}
