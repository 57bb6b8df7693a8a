//! A fake Amazon Bedrock: its binary streams, its failures, and a check of signatures that follows AWS's description
//! step by step.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, Mutex},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    FakeUpstream, Step, TestGateway,
    gateway::{PROVIDER_KEY, hello},
    ledger_view,
    upstream::{Received, response},
};

pub const REGION: &str = "eu-central-1";
pub const ACCESS_KEY: &str = "AKIDEXAMPLE";
/// The model behind [`ledger_view::MODEL`], with a character that paths must encode.
pub const MODEL: &str = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
pub const INVOKE: &str = "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0/invoke";

/// The section of a provider at this address, with an access key whose secret is [`PROVIDER_KEY`].
pub fn provider(bedrock: &FakeUpstream) -> String {
    section(
        bedrock,
        "access_key_id = \"AKIDEXAMPLE\"\nsecret_access_key_env = \"PROVIDER_KEY\"\n",
    )
}

/// The section of a provider at this address, and a deployment of its model.
pub fn section(bedrock: &FakeUpstream, credentials: &str) -> String {
    format!(
        "[providers.bedrock]\nkind = \"anthropic\"\nauth = \"aws\"\nregion = \"{REGION}\"\n\
         base_url = \"http://{}\"\n{credentials}\
         timeouts = {{ connect_seconds = 2, first_byte_seconds = 2, idle_seconds = 2 }}\n\
         [[deployments]]\nmodel = \"{}\"\nprovider = \"bedrock\"\nupstream_model = \"{MODEL}\"\n",
        bedrock.address,
        ledger_view::MODEL,
    )
}

/// Starts a gateway whose model [`ledger_view::MODEL`] is served by the fake Bedrock that is returned.
pub async fn start() -> (TestGateway, FakeUpstream) {
    let bedrock = FakeUpstream::start().await;
    let gateway = TestGateway::start_with(&provider(&bedrock)).await;
    (gateway, bedrock)
}

/// A message of an event stream with texts as its headers.
pub fn message(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(u8::try_from(name.len()).unwrap());
        block.extend_from_slice(name.as_bytes());
        block.push(7); // a text
        block.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        block.extend_from_slice(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap().to_be_bytes();
    let mut message = length(12 + block.len() + payload.len() + 4).to_vec();
    message.extend_from_slice(&length(block.len()));
    message.extend_from_slice(&crc32(&message).to_be_bytes());
    message.extend_from_slice(&block);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc32(&message).to_be_bytes());
    message
}

/// CRC-32 as gzip has it, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    })
}

/// An event of the Messages API as Bedrock sends it.
pub fn chunk(event: &Value) -> Vec<u8> {
    let bytes = BASE64_STANDARD.encode(event.to_string());
    let payload = json!({ "bytes": bytes, "p": "abcdefghij" }).to_string();
    let headers = [
        (":event-type", "chunk"),
        (":content-type", "application/json"),
        (":message-type", "event"),
    ];
    message(&headers, payload.as_bytes())
}

pub fn chunks(events: &[Value]) -> Vec<u8> {
    events.iter().flat_map(chunk).collect()
}

pub fn exception(name: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", name),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    message(&headers, br#"{"message":"a canary of the provider"}"#)
}

pub fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\nconnection: close\r\n\r\n"
        .to_vec()
}

/// Responds with a stream of these bytes, in pieces of this length, and closes the connection in order.
pub fn answer_stream(bedrock: &FakeUpstream, body: &[u8], piece: usize) {
    let mut steps = vec![Step::Send(stream_head())];
    steps.extend(body.chunks(piece).map(|piece| Step::Send(piece.to_vec())));
    steps.push(Step::Close);
    bedrock.play(steps);
}

/// A failure in Bedrock's form.
pub fn failure(status: u16, kind: &str, text: &str) -> Vec<u8> {
    let body = json!({ "message": text }).to_string();
    let plain = response(status, "application/json", &body);
    let plain = String::from_utf8(plain).unwrap();
    let named = format!("\r\nx-amzn-errortype: {kind}\r\ncontent-type");
    plain.replacen("\r\ncontent-type", &named, 1).into_bytes()
}

/// Asserts that a request carries a signature of this secret that is valid now, for everything that it must cover.
#[track_caller]
pub fn assert_signed(request: &Received, secret: &str, token: Option<&str>) {
    let header = |name: &str| request.header(name).unwrap_or_else(|| panic!("no {name}"));
    // 1. The parts of `Authorization`.
    let authorization = header("authorization");
    let rest = authorization.strip_prefix("AWS4-HMAC-SHA256 ").unwrap();
    let parts: Vec<_> = rest.split(", ").collect();
    let part = |name: &str| {
        let found = parts.iter().find_map(|part| part.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {authorization}"))
    };
    let (credential, names) = (part("Credential="), part("SignedHeaders="));
    let scope: Vec<_> = credential.split('/').collect();
    let [_, day, region, service, terminator] = scope[..] else {
        panic!("{credential}");
    };
    assert_eq!(
        (region, service, terminator),
        (REGION, "bedrock", "aws4_request")
    );
    // 2. The time is now, and the day is its day.
    let time = header("x-amz-date");
    assert_eq!((&time[..8], &time[8..9], &time[15..]), (day, "T", "Z"));
    assert!(seconds_from_now(time) <= 60, "{time}");
    // 3. The headers that must be signed.
    let signed: Vec<_> = names.split(';').collect();
    assert!(signed.is_sorted(), "{names}");
    for line in request.head.lines().skip(1) {
        let name = line.split(':').next().unwrap().to_ascii_lowercase();
        if name == "host" || name == "content-type" || name.starts_with("x-amz-") {
            assert!(signed.contains(&name.as_str()), "{name} is not signed");
        }
    }
    assert_eq!(request.header("x-amz-security-token"), token);
    // 4. The canonical request.
    let line: Vec<_> = request.head.lines().next().unwrap().split(' ').collect();
    let (path, query) = line[1].split_once('?').unwrap_or((line[1], ""));
    assert_eq!(query, "", "a query would have to be sorted");
    let payload = hex(&Sha256::digest(request.text.as_bytes()));
    assert_eq!(header("x-amz-content-sha256"), payload);
    let mut canonical = format!("{}\n{}\n{query}\n", line[0], encoded(path));
    for name in &signed {
        let _ = writeln!(canonical, "{name}:{}", header(name));
    }
    let _ = write!(canonical, "\n{names}\n{payload}");
    // 5. The string to sign, the key and the signature.
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{digest}");
    let mut key = format!("AWS4{secret}").into_bytes();
    for text in [day, region, service, "aws4_request", &to_sign] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), text.as_bytes());
        key = tag.as_ref().to_vec();
    }
    assert_eq!(part("Signature="), hex(&key), "of {canonical}");
}

/// The ID of the key that signed a request.
pub fn signer(request: &Received) -> String {
    let authorization = request.header("authorization").unwrap();
    let (_, credential) = authorization.split_once("Credential=").unwrap();
    credential.split('/').next().unwrap().to_owned()
}

/// A path, encoded once more.
fn encoded(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// How far a time like `20270115T080000Z` is from now.
fn seconds_from_now(time: &str) -> u64 {
    let spelt = format!(
        "{}-{}-{}T{}:{}:{}Z",
        &time[..4],
        &time[4..6],
        &time[6..8],
        &time[9..11],
        &time[11..13],
        &time[13..15]
    );
    let format = &time::format_description::well_known::Rfc3339;
    let time = time::OffsetDateTime::parse(&spelt, format).unwrap();
    let difference = time::OffsetDateTime::now_utc() - time;
    difference.whole_seconds().unsigned_abs()
}

const ROLES: &str = "GET /latest/meta-data/iam/security-credentials/";

/// A metadata service of EC2: each fetch gets the next credentials, `ASIA1`, `ASIA2` and so on, which end after this
/// time. Their secret is [`PROVIDER_KEY`], and their token `token-of-ASIA1`.
pub async fn metadata_service(seconds: i64) -> FakeUpstream {
    metadata_service_with(seconds, Ends::default()).await
}

/// When credentials end, by their access key IDs.
pub type Ends = Arc<Mutex<HashMap<String, time::OffsetDateTime>>>;

/// A metadata service that notes when its credentials end.
pub async fn metadata_service_with(seconds: i64, ends: Ends) -> FakeUpstream {
    let service = FakeUpstream::start().await;
    let fetched = std::sync::atomic::AtomicUsize::new(0);
    service.play_for_each(move |request| {
        let line = request.head.lines().next().unwrap();
        let is_in_session = request.header("x-aws-ec2-metadata-token") == Some("session-1");
        let body = match line.strip_prefix(ROLES) {
            _ if line == "PUT /latest/api/token HTTP/1.1" => {
                let lifetime = request.header("x-aws-ec2-metadata-token-ttl-seconds");
                assert_eq!(lifetime, Some("21600"));
                "session-1".to_owned()
            }
            _ if !is_in_session => return vec![Step::Send(response(401, "text/plain", ""))],
            Some(" HTTP/1.1") => "gateway-role".to_owned(),
            Some("gateway-role HTTP/1.1") => {
                let number = 1 + fetched.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let id = format!("ASIA{number}");
                let end = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
                ends.lock().unwrap().insert(id.clone(), end);
                credentials(&id, seconds).to_string()
            }
            _ => return vec![Step::Send(response(404, "text/plain", ""))],
        };
        vec![Step::Send(response(200, "text/plain", &body))]
    });
    service
}

/// Credentials as services of AWS write them.
pub fn credentials(id: &str, seconds: i64) -> Value {
    let end = time::OffsetDateTime::now_utc() + time::Duration::seconds(seconds);
    let format = &time::format_description::well_known::Rfc3339;
    json!({
        "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
        "AccessKeyId": id, "SecretAccessKey": PROVIDER_KEY, "Token": format!("token-of-{id}"),
        "Expiration": end.replace_nanosecond(0).unwrap().format(format).unwrap(),
    })
}

/// Sends calls until one is signed with this key; each must succeed.
pub async fn until_signed_by(gateway: &TestGateway, bedrock: &FakeUpstream, id: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        gateway.chat(&hello(ledger_view::MODEL)).await.assert_ok();
        if signer(bedrock.received().last().unwrap()) == id {
            return;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "no call is signed by {id}"
        );
    }
}
