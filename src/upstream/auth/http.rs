//! Requests for tokens, bounded in time and bytes. Redirects are not followed.

use std::time::Duration;

use axum::http::{Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::timeout;

use super::token::TokenRequest;
use crate::net::connect::{self, chain};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a whole request.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_RESPONSE_BYTES: usize = 256 << 10;
/// Most bytes of an error code. What is longer is something else.
const MAX_CODE_BYTES: usize = 40;

pub(crate) struct TokenClient {
    http: connect::Client,
}

impl TokenClient {
    pub(crate) fn new() -> Result<Self, String> {
        let http = connect::client(CONNECT_TIMEOUT)?;
        Ok(Self { http })
    }

    /// The body of the response. The reason of a failure names the URL, and nothing else of what was sent.
    pub(crate) async fn send(&self, request: &TokenRequest) -> Result<Bytes, String> {
        let method = match &request.form {
            Some(_) => Method::POST,
            None => Method::GET,
        };
        self.send_as(method, request).await
    }

    /// Like [`send`](Self::send), with another method than the usual one.
    pub(crate) async fn send_as(
        &self,
        method: Method,
        request: &TokenRequest,
    ) -> Result<Bytes, String> {
        let failed = |why: &str| format!("{}: {why}", request.url);
        let agent = concat!("tollgate/", env!("CARGO_PKG_VERSION"));
        let mut built = Request::builder()
            .method(method)
            .uri(&request.url)
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, agent);
        if request.form.is_some() {
            built = built.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        for (name, value) in &request.headers {
            built = built.header(*name, value);
        }
        let form = request.form.as_deref().unwrap_or_default();
        let built = built.body(Full::new(Bytes::from(encoded(form))));
        // Leaves out the error's text, which may repeat a secret.
        let built = built.map_err(|_| failed("the request is invalid"))?;
        let sending = async {
            let response = self.http.request(built).await;
            let response = response.map_err(|error| failed(&chain(&error)))?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect();
            let body = body.await.map_err(|error| failed(&chain(&*error)))?;
            match (status, body.to_bytes()) {
                (StatusCode::OK, body) => Ok(body),
                (status, body) => Err(failed(&refusal(status, &body))),
            }
        };
        let sent = timeout(TIMEOUT, sending).await;
        sent.unwrap_or_else(|_| Err(failed("the request timed out")))
    }
}

/// The status of a refusal with the codes in its body. The rest of the body could repeat what was sent.
pub(super) fn refusal(status: StatusCode, body: &[u8]) -> String {
    let mut words = vec![format!("status {}", status.as_u16())];
    let body = str::from_utf8(body).unwrap_or_default();
    match serde_json::from_str::<Value>(body) {
        Ok(body) => words.extend(codes_in_json(&body)),
        Err(_) => words.extend(code_in_xml(body).map(str::to_owned)),
    }
    words.join(", ")
}

/// The error code of OAuth (RFC 6749) or of AWS and, from Entra ID, the number of its message.
fn codes_in_json(body: &Value) -> Vec<String> {
    let text = |path: &str| body.pointer(path).and_then(Value::as_str);
    let of_oauth = text("/error").filter(|code| is_oauth_code(code));
    let of_sts = text("/Error/Code").filter(|code| is_aws_code(code));
    // The agents of containers.
    let of_agent = text("/code").filter(|code| is_aws_code(code));
    let code = of_oauth.or(of_sts).or(of_agent).map(str::to_owned);
    let description = text("/error_description").unwrap_or_default();
    let number = description.strip_prefix("AADSTS").unwrap_or_default();
    let number: String = number
        .chars()
        .take_while(char::is_ascii_digit)
        .take(10)
        .collect();
    let of_entra = (!number.is_empty()).then(|| format!("AADSTS{number}"));
    code.into_iter().chain(of_entra).collect()
}

/// The error code of STS, which writes XML too.
fn code_in_xml(body: &str) -> Option<&str> {
    let (_, rest) = body.split_once("<Code>")?;
    let (code, _) = rest.split_once("</Code>")?;
    Some(code.trim()).filter(|code| is_aws_code(code))
}

fn is_oauth_code(code: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    (1..=MAX_CODE_BYTES).contains(&code.len()) && code.bytes().all(is_plain)
}

fn is_aws_code(code: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic();
    (1..=MAX_CODE_BYTES).contains(&code.len()) && code.bytes().all(is_letter)
}

/// A form as it is posted, and as the query of a URL.
pub(crate) fn encoded(form: &[(&str, String)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs = form.iter();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={}", encode(value)))
        .collect();
    pairs.join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_its_codes_and_nothing_else() {
        for (body, expected) in [
            (
                r#"{"error":"invalid_grant","error_description":"Invalid JWT: eyJhbGciOi"}"#,
                "status 400, invalid_grant",
            ),
            (
                r#"{"error":"invalid_client","error_description":"AADSTS7000215: no to secret"}"#,
                "status 400, invalid_client, AADSTS7000215",
            ),
            (
                r#"{"Error":{"Code":"AccessDenied","Message":"no to secret"},"RequestId":"1"}"#,
                "status 400, AccessDenied",
            ),
            (
                "<ErrorResponse><Error><Type>Sender</Type>\n<Code>ExpiredTokenException</Code>\
                 <Message>secret</Message></Error></ErrorResponse>",
                "status 400, ExpiredTokenException",
            ),
            (
                r#"{"code":"NoIdInRequest","message":"secret"}"#,
                "status 400, NoIdInRequest",
            ),
            (r#"{"Error":{"Code":"My secret"}}"#, "status 400"),
            (r#"{"Error":{"Code":""}}"#, "status 400"),
            (
                r#"{"code":"abcdefghijklmnopqrstuvwxyzabcdefghijklmno"}"#,
                "status 400",
            ),
            ("<Code>My secret</Code>", "status 400"),
            ("<Code>secret", "status 400"),
            (r#"{"error":"My secret"}"#, "status 400"),
            (r#"{"error":{"code":400}}"#, "status 400"),
            ("secret", "status 400"),
        ] {
            let text = refusal(StatusCode::BAD_REQUEST, body.as_bytes());
            assert_eq!(text, expected, "{body}");
        }
    }
}
