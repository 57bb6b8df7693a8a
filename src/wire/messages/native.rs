//! A request as its caller sent it, for providers of the same API: they get it byte for byte, and so do their responses
//! come back. Nothing that only this API has is lost on the way: caching, signed thinking, images, fields of tomorrow.

use std::{fmt, ops::Range};

use axum::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::splice::{quoted, range_in, replaced, with_commas, with_key};
use crate::base::tokens::TokenCount;

const VERSION: HeaderName = HeaderName::from_static("anthropic-version");
const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// The version that is sent if the caller sent none.
const DEFAULT_VERSION: &str = "2023-06-01";

/// Most tokens that the provider adds to a request: instructions for tools, separators.
const REQUEST_ALLOWANCE: u64 = 16_384;
/// Most tokens that the provider adds to a message.
const MESSAGE_ALLOWANCE: u64 = 16;

/// The caller's headers that concern the API.
#[derive(Clone, Debug, Default)]
pub(crate) struct NativeHeaders {
    /// As lines of a request.
    lines: String,
    /// The beta features that the request uses.
    betas: Vec<String>,
}

impl NativeHeaders {
    /// The headers in the caller's words. A value that is not text is left out.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let (mut lines, mut betas) = (String::new(), Vec::new());
        let mut add = |name: &HeaderName, value: &str| {
            lines.extend([name.as_str(), ": ", value, "\r\n"]);
        };
        let version = headers.get(VERSION).and_then(|value| value.to_str().ok());
        add(&VERSION, version.unwrap_or(DEFAULT_VERSION));
        for beta in headers.get_all(BETA) {
            if let Ok(beta) = beta.to_str() {
                add(&BETA, beta);
                let features = beta.split(',').map(str::trim);
                let features = features.filter(|feature| !feature.is_empty());
                betas.extend(features.map(str::to_owned));
            }
        }
        Self { lines, betas }
    }

    /// Header lines, each ending in CRLF.
    pub(crate) fn lines(&self) -> &str {
        &self.lines
    }

    /// The beta features that the caller asks for and that are allowed, each once.
    pub(crate) fn betas_in(&self, allowed: &[String]) -> Vec<&str> {
        let mut chosen: Vec<&str> = Vec::new();
        for beta in &self.betas {
            if allowed.contains(beta) && !chosen.contains(&beta.as_str()) {
                chosen.push(beta.as_str());
            }
        }
        chosen
    }

    /// The header line with these beta features, without the version; empty if there are none.
    pub(crate) fn beta_lines(betas: &[&str]) -> String {
        if betas.is_empty() {
            return String::new();
        }
        format!("{BETA}: {}\r\n", betas.join(","))
    }
}

/// How a body says which model it is for.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(into = "NamingFields<'a>")]
pub(crate) enum Naming<'a> {
    Model(&'a str),
    /// With the version of the API, as the clouds want it; most of them have the model in the path. The beta features
    /// of a caller's own request are in the body too.
    Version {
        version: &'static str,
        model: Option<&'a str>,
        betas: &'a [&'a str],
    },
}

#[derive(Serialize)]
struct NamingFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic_version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic_beta: Option<&'a [&'a str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
}

impl<'a> From<Naming<'a>> for NamingFields<'a> {
    fn from(naming: Naming<'a>) -> Self {
        match naming {
            Naming::Model(model) => Self {
                anthropic_version: None,
                anthropic_beta: None,
                model: Some(model),
            },
            Naming::Version {
                version,
                model,
                betas,
            } => Self {
                anthropic_version: Some(version),
                anthropic_beta: (!betas.is_empty()).then_some(betas),
                model,
            },
        }
    }
}

/// What a request has that only a provider of this API can read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    /// Whether another provider could not serve the request without losing something.
    pub needs_native: bool,
    /// Estimated tokens of what is not in the chat form of the request.
    pub tokens: u64,
    /// Whether the tokens have no bound but the model's context: those of an image do not depend on its bytes.
    pub is_unbounded: bool,
    /// Whether the output budget is 0: the provider fills its cache and generates nothing.
    pub is_warming: bool,
}

/// A request in the caller's bytes.
pub(crate) struct NativeRequest {
    body: Bytes,
    headers: NativeHeaders,
    extras: Extras,
    model: Range<usize>,
    max_tokens: Option<Range<usize>>,
    user_id: Option<Range<usize>>,
    /// Where the body has what a cloud gets in our own words: version and beta features.
    clouds: Vec<Range<usize>>,
}

/// Without the caller's content.
impl fmt::Debug for NativeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NativeRequest({} bytes)", self.body.len())
    }
}

/// The values that are replaced, and those that are removed for a cloud.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    model: &'a RawValue,
    #[serde(borrow)]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<MetadataOutline<'a>>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    anthropic_version: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    anthropic_beta: Option<&'a RawValue>,
}

/// A value that is there, null included.
fn even_null<'a, D: Deserializer<'a>>(json: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(json).map(Some)
}

#[derive(Deserialize)]
struct MetadataOutline<'a> {
    #[serde(borrow)]
    user_id: Option<&'a RawValue>,
}

impl NativeRequest {
    /// `body` has been parsed as a request before; `None` if it cannot be forwarded in its own bytes.
    ///
    /// Beta features that it names count like those of the headers.
    pub(crate) fn new(body: Bytes, mut headers: NativeHeaders, extras: Extras) -> Option<Self> {
        let text = std::str::from_utf8(&body).ok()?;
        let outline: Outline<'_> = serde_json::from_str(text).ok()?;
        let range = |raw: &RawValue| range_in(text, raw);
        let model = range(outline.model)?;
        let max_tokens = outline.max_tokens.and_then(range);
        let user_id = outline.metadata.and_then(|metadata| metadata.user_id);
        let user_id = user_id.and_then(range);
        let betas = outline.anthropic_beta.map(RawValue::get);
        let betas = betas.and_then(|betas| serde_json::from_str::<Vec<String>>(betas).ok());
        headers.betas.extend(betas.unwrap_or_default());
        let clouds = [outline.anthropic_version, outline.anthropic_beta];
        let clouds = clouds.into_iter().flatten().filter_map(range);
        let mut clouds: Vec<_> = clouds.map(|value| with_key(text, &value)).collect();
        clouds.sort_by_key(|member| member.start);
        let clouds = with_commas(text, clouds);
        Some(Self {
            body,
            headers,
            extras,
            model,
            max_tokens,
            user_id,
            clouds,
        })
    }

    pub(crate) fn headers(&self) -> &NativeHeaders {
        &self.headers
    }

    /// Whether another provider could not serve the request without losing something.
    pub(crate) fn is_required(&self) -> bool {
        self.extras.needs_native
    }

    /// The body for a provider: with its name of the model, the account in place of the user, and the budget of the
    /// call. All else is as the caller wrote it.
    pub(crate) fn body(&self, naming: Naming<'_>, user: &str, max_tokens: Option<u32>) -> Vec<u8> {
        let mut changes = vec![self.named(naming)];
        if matches!(naming, Naming::Version { .. }) {
            // In the caller's words they would stand twice, and features could be used that the operator does not allow.
            let removed = self.clouds.iter().cloned();
            changes.extend(removed.map(|range| (range, String::new())));
        }
        let user_id = self.user_id.clone();
        changes.extend(user_id.map(|range| (range, quoted(user))));
        // One token is reserved for a request of no output, and its 0 stays.
        let max_tokens = max_tokens.filter(|_| !self.extras.is_warming);
        let budget = self.max_tokens.clone().zip(max_tokens);
        changes.extend(budget.map(|(range, tokens)| (range, tokens.to_string())));
        replaced(&self.body, changes)
    }

    /// What replaces the model.
    fn named(&self, naming: Naming<'_>) -> (Range<usize>, String) {
        let (version, model, betas) = match naming {
            Naming::Model(model) => return (self.model.clone(), quoted(model)),
            Naming::Version {
                version,
                model,
                betas,
            } => (version, model, betas),
        };
        let mut member = format!("\"anthropic_version\":{}", quoted(version));
        if !betas.is_empty() {
            let betas: Vec<_> = betas.iter().map(|beta| quoted(beta)).collect();
            member.extend([",\"anthropic_beta\":[", &betas.join(","), "]"]);
        }
        if let Some(model) = model {
            member.extend([",\"model\":", &quoted(model)]);
        }
        (with_key(&self.body, &self.model), member)
    }

    /// Adds what the caller's bytes have beyond the chat form of the request.
    pub(crate) fn count(&self, messages: usize, count: &mut TokenCount) {
        count.estimate += self.extras.tokens;
        let bytes = self.body.len() as u64 + REQUEST_ALLOWANCE;
        count.bound = count.bound.max(bytes + MESSAGE_ALLOWANCE * messages as u64);
        if self.extras.is_unbounded {
            count.bound = count.bound.max(u32::MAX.into());
        }
    }
}

/// A provider's message as it came.
#[derive(Clone, Debug)]
pub(crate) struct NativeMessage(pub Bytes);

impl NativeMessage {
    /// The message for the caller, who knows the model by another name.
    pub(super) fn with_model(&self, model: &str) -> Vec<u8> {
        let named = std::str::from_utf8(&self.0).ok().and_then(|text| {
            let named: Named<'_> = serde_json::from_str(text).ok()?;
            range_in(text, named.model?)
        });
        let change = named.map(|range| (range, quoted(model)));
        replaced(&self.0, change.into_iter().collect())
    }
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
}

/// An event of a provider's stream as it came.
#[derive(Clone, Debug)]
pub(crate) struct NativeEvent {
    kind: String,
    data: Bytes,
}

impl NativeEvent {
    /// `None` for an event whose kind cannot be written as its name.
    pub(crate) fn new(kind: &str, data: &[u8]) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (!kind.is_empty() && kind.bytes().all(is_plain)).then(|| Self {
            kind: kind.to_owned(),
            data: Bytes::copy_from_slice(data),
        })
    }

    /// The event's JSON.
    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    /// Whether it begins a block of content, so that the response can start.
    pub(crate) fn is_content(&self) -> bool {
        self.kind == "content_block_start"
    }

    /// Whether it ends the message. Such events are sent once the message is charged.
    pub(super) fn is_end(&self) -> bool {
        matches!(self.kind.as_str(), "message_delta" | "message_stop")
    }

    /// The event for the caller, who knows the model by another name.
    pub(super) fn frame(&self, model: &str) -> Bytes {
        #[derive(Deserialize)]
        struct Start<'a> {
            #[serde(borrow)]
            message: Named<'a>,
        }
        let named = || {
            let text = std::str::from_utf8(&self.data).ok()?;
            let start: Start<'_> = serde_json::from_str(text).ok()?;
            range_in(text, start.message.model?)
        };
        let is_start = self.kind == "message_start";
        let change = is_start.then(named).flatten();
        let change = change.map(|range| (range, quoted(model)));
        let data = replaced(&self.data, change.into_iter().collect());
        let mut frame = Vec::with_capacity(data.len() + self.kind.len() + 24);
        frame.extend_from_slice(b"event: ");
        frame.extend_from_slice(self.kind.as_bytes());
        frame.extend_from_slice(b"\ndata: ");
        // A line break would end the line of data. In JSON it is white space.
        frame.extend(data.iter().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            byte => *byte,
        }));
        frame.extend_from_slice(b"\n\n");
        frame.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &'static str) -> NativeRequest {
        let body = Bytes::from_static(body.as_bytes());
        NativeRequest::new(body, NativeHeaders::default(), Extras::default()).unwrap()
    }

    #[test]
    fn only_three_values_change() {
        let sent = r#"{ "x":[1.0, 1e2],"max_tokens" : 5e1, "metadata":{"a":"\u0041","user_id":"me"},
            "model":"alias\u002d1","messages":[{"role":"user","content":"model"}]}"#;
        let body = request(sent).body(Naming::Model("claude"), "acct_1", Some(40));
        let expected = r#"{ "x":[1.0, 1e2],"max_tokens" : 40, "metadata":{"a":"\u0041","user_id":"acct_1"},
            "model":"claude","messages":[{"role":"user","content":"model"}]}"#;
        assert_eq!(std::str::from_utf8(&body).unwrap(), expected);
        let bare = request(r#"{"model":"a","metadata":{"user_id":null}}"#);
        let body = bare.body(Naming::Model("b"), "acct_1", None);
        assert_eq!(body, br#"{"model":"b","metadata":{"user_id":null}}"#);
    }

    #[test]
    fn a_cloud_gets_the_version_in_place_of_the_model() {
        let version = "vertex-2023-10-16";
        let of = |body: &'static str, model, betas: &[&str]| {
            let naming = Naming::Version {
                version,
                model,
                betas,
            };
            let body = request(body).body(naming, "acct_1", None);
            String::from_utf8(body).unwrap()
        };
        assert_eq!(
            of(r#"{"model" : "a","messages":[]}"#, None, &[]),
            r#"{"anthropic_version":"vertex-2023-10-16","messages":[]}"#
        );
        assert_eq!(
            of(
                r#"{"x":"model","mo\u0064el":"a"}"#,
                Some("b@1"),
                &["c", "d"]
            ),
            r#"{"x":"model","anthropic_version":"vertex-2023-10-16","anthropic_beta":["c","d"],"model":"b@1"}"#
        );
    }

    #[test]
    fn a_cloud_gets_no_version_and_no_betas_of_the_body() {
        for (body, expected) in [
            (
                r#"{"anthropic_beta":["x"],"model":"a","anthropic_version":"1","y":1}"#,
                r#"{"anthropic_version":"v","y":1}"#,
            ),
            (
                r#"{ "model":"a" , "anthropic_beta" : null , "anthropic\u005fversion":"1" }"#,
                r#"{ "anthropic_version":"v" }"#,
            ),
            (
                r#"{"anthropic_version":{"}":","},"anthropic_beta":"x","model":"a"}"#,
                r#"{"anthropic_version":"v"}"#,
            ),
            (
                r#"{"model":"a","y":{"anthropic_beta":["x"]},"anthropic_beta":["x","c"]}"#,
                r#"{"anthropic_version":"v","anthropic_beta":["c"],"y":{"anthropic_beta":["x"]}}"#,
            ),
        ] {
            let request = request(body);
            let betas = request.headers().betas_in(&["c".to_owned()]);
            let naming = Naming::Version {
                version: "v",
                model: None,
                betas: &betas,
            };
            let written = String::from_utf8(request.body(naming, "acct_1", None)).unwrap();
            assert_eq!(written, expected);
            // A provider of the API itself gets them as they are.
            let own = String::from_utf8(request.body(Naming::Model("a"), "acct_1", None));
            assert_eq!(own.unwrap(), body);
        }
        let twice = r#"{"model":"a","anthropic_beta":["x"],"anthropic_beta":["y"]}"#;
        let twice = Bytes::from_static(twice.as_bytes());
        assert!(NativeRequest::new(twice, NativeHeaders::default(), Extras::default()).is_none());
    }

    #[test]
    fn a_response_is_renamed_at_its_top_only() {
        let message = NativeMessage(Bytes::from_static(
            br#"{"content":[{"type":"text","model":"x"}],"model" : "claude-9"}"#,
        ));
        assert_eq!(
            message.with_model("m"),
            br#"{"content":[{"type":"text","model":"x"}],"model" : "m"}"#
        );
        let start = b"{\"message\":{\"model\":\"claude-9\",\n\"x\":1}}";
        let frame = NativeEvent::new("message_start", start).unwrap().frame("m");
        let expected = b"event: message_start\ndata: {\"message\":{\"model\":\"m\", \"x\":1}}\n\n";
        assert_eq!(&frame[..], expected);
        assert!(NativeEvent::new("a\nb", b"{}").is_none());
    }

    #[test]
    fn headers_are_the_callers() {
        let mut headers = HeaderMap::new();
        assert_eq!(
            NativeHeaders::of(&headers).lines(),
            "anthropic-version: 2023-06-01\r\n"
        );
        headers.insert(VERSION, "2026-10-21".parse().unwrap());
        headers.append(BETA, "a,b".parse().unwrap());
        headers.append(BETA, "c, a".parse().unwrap());
        assert_eq!(
            NativeHeaders::of(&headers).lines(),
            "anthropic-version: 2026-10-21\r\nanthropic-beta: a,b\r\nanthropic-beta: c, a\r\n"
        );
    }

    #[test]
    fn beta_features_that_are_not_allowed_are_left_out() {
        let mut headers = HeaderMap::new();
        headers.append(BETA, "a,b".parse().unwrap());
        headers.append(BETA, "c, a".parse().unwrap());
        let headers = NativeHeaders::of(&headers);
        let allowed = ["c", "a", "d"].map(str::to_owned);
        assert_eq!(headers.betas_in(&allowed), ["a", "c"]);
        assert!(headers.betas_in(&[]).is_empty());
        assert_eq!(
            NativeHeaders::beta_lines(&["a", "c"]),
            "anthropic-beta: a,c\r\n"
        );
        assert_eq!(NativeHeaders::beta_lines(&[]), "");
    }
}
