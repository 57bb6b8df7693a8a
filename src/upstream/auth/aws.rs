//! Credentials of AWS: an access key that is configured, or temporary ones of a role.

use std::{
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use axum::http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::{
    azure::token_in,
    http::TokenClient,
    renewing::{Issued, Issuer, Lent, Renewing},
    sigv4::{Credentials, Service, Unsigned},
    token::TokenRequest,
};
use crate::{
    base::{keys::Secret, timestamp},
    config::{Aws, AwsSource},
    wire::error::UpstreamError,
};

/// How long credentials without an end are used before they are fetched again.
const DEFAULT_LIFETIME: Duration = Duration::from_mins(5);
/// How long a session with the metadata service lasts, in seconds.
const METADATA_SESSION: &str = "21600";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";

/// Signs requests to one region.
pub(crate) struct Signer {
    service: Service,
    credentials: Source,
}

enum Source {
    Fixed(Arc<Credentials>),
    Temporary(Arc<Temporary>),
}

pub(crate) type Temporary = Renewing<Role>;

/// Where the credentials of a role come from.
pub(crate) struct Role {
    source: AwsSource,
    http: TokenClient,
}

/// What signs one request.
pub(crate) struct SigningPass<'a> {
    service: &'a Service,
    credentials: Lending,
}

enum Lending {
    Fixed(Arc<Credentials>),
    Temporary(Arc<Lent<Credentials>>),
}

impl Signer {
    pub(crate) fn new(aws: &Aws) -> Result<Self, String> {
        let credentials = match &aws.source {
            AwsSource::Keys {
                access_key_id,
                secret_access_key,
                session_token,
            } => Source::Fixed(Arc::new(Credentials::new(
                access_key_id.as_str(),
                secret_access_key.clone(),
                session_token.clone(),
            )?)),
            source => Source::Temporary(temporary(source)?),
        };
        let service = Service {
            region: aws.region.clone(),
            name: aws.service,
        };
        Ok(Self {
            service,
            credentials,
        })
    }

    pub(crate) async fn pass(&self) -> Result<SigningPass<'_>, UpstreamError> {
        let credentials = match &self.credentials {
            Source::Fixed(credentials) => Lending::Fixed(credentials.clone()),
            Source::Temporary(source) => Lending::Temporary(source.get().await?),
        };
        Ok(SigningPass {
            service: &self.service,
            credentials,
        })
    }

    /// Other temporary credentials than those that were refused.
    pub(crate) async fn instead_of(&self, refused: &SigningPass<'_>) -> Option<SigningPass<'_>> {
        let (Source::Temporary(source), Lending::Temporary(lent)) =
            (&self.credentials, &refused.credentials)
        else {
            return None;
        };
        Some(SigningPass {
            service: &self.service,
            credentials: Lending::Temporary(source.instead_of(lent).await?),
        })
    }
}

impl SigningPass<'_> {
    pub(crate) fn describe(&self) -> String {
        let id = &self.credentials().access_key_id;
        format!("has credentials ({id}) for {}", self.service.region)
    }

    fn credentials(&self) -> &Credentials {
        match &self.credentials {
            Lending::Fixed(credentials) => credentials,
            Lending::Temporary(lent) => &lent.value,
        }
    }

    /// The header lines that sign a request now.
    pub(crate) fn lines(&self, request: &Unsigned<'_>) -> String {
        let credentials = self.credentials();
        credentials.sign(request, self.service, timestamp::now())
    }
}

/// The sources in use. A provider whose source is in use shares its credentials, also after a reload.
static SOURCES: Mutex<Vec<(AwsSource, Weak<Temporary>)>> = Mutex::new(Vec::new());

/// Where these temporary credentials come from. Fails if the system has no root certificates.
fn temporary(source: &AwsSource) -> Result<Arc<Temporary>, String> {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    sources.retain(|(_, used)| used.strong_count() > 0);
    let known = sources.iter().find(|(known, _)| known == source);
    if let Some(used) = known.and_then(|(_, used)| used.upgrade()) {
        return Ok(used);
    }
    let role = Role {
        source: source.clone(),
        http: TokenClient::new()?,
    };
    let used = Arc::new(Renewing::new(
        role,
        "fetching credentials from AWS".to_owned(),
    ));
    sources.push((source.clone(), Arc::downgrade(&used)));
    Ok(used)
}

impl Issuer for Role {
    type Value = Credentials;

    async fn issue(&self) -> Result<Issued<Credentials>, String> {
        let request = match &self.source {
            AwsSource::Keys { .. } => return Err("an access key is not fetched".into()),
            AwsSource::Container {
                url,
                token,
                token_file,
            } => {
                let token = match token_file {
                    // Read every time, because the agent replaces it.
                    Some(file) => Some(token_in(file)?),
                    None => token.as_ref().map(|token| token.reveal().to_owned()),
                };
                let headers = token.map(|token| ("authorization", token));
                get(url.clone(), headers.into_iter().collect())
            }
            AwsSource::Machine { url } => self.of_machine(url).await?,
            AwsSource::WebIdentity {
                sts_url,
                role_arn,
                session_name,
                token_file,
            } => TokenRequest {
                url: sts_url.clone(),
                headers: Vec::new(),
                form: Some(vec![
                    ("Action", "AssumeRoleWithWebIdentity".to_owned()),
                    ("Version", "2011-06-15".to_owned()),
                    ("RoleArn", role_arn.clone()),
                    ("RoleSessionName", session_name.clone()),
                    ("WebIdentityToken", token_in(token_file)?),
                ]),
            },
        };
        let body = self.http.send(&request).await?;
        issued(&body, timestamp::now()).map_err(|why| format!("{}: {why}", request.url))
    }
}

impl Role {
    /// The request for the credentials of the machine's role, in a session with its metadata service (`IMDSv2`).
    async fn of_machine(&self, url: &str) -> Result<TokenRequest, String> {
        let text = |body: &[u8]| str::from_utf8(body).map(|text| text.trim().to_owned());
        let session = TokenRequest {
            url: format!("{url}/latest/api/token"),
            headers: vec![(
                "x-aws-ec2-metadata-token-ttl-seconds",
                METADATA_SESSION.to_owned(),
            )],
            form: None,
        };
        let token = text(&self.http.send_as(Method::PUT, &session).await?)
            .map_err(|_| format!("{}: the response is no token", session.url))?;
        let headers = vec![("x-aws-ec2-metadata-token", token)];
        let roles = get(format!("{url}{ROLES}"), headers.clone());
        let role = text(&self.http.send(&roles).await?).unwrap_or_default();
        let role = role.lines().next().unwrap_or_default();
        if role.is_empty() || !role.bytes().all(is_of_role) {
            let roles = roles.url;
            return Err(format!(
                "{roles}: this machine has no role; attach an instance profile"
            ));
        }
        Ok(get(format!("{url}{ROLES}{role}"), headers))
    }
}

/// The characters of a role's name.
fn is_of_role(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte)
}

fn get(url: String, headers: Vec<(&'static str, String)>) -> TokenRequest {
    TokenRequest {
        url,
        headers,
        form: None,
    }
}

/// Credentials as every source writes them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Written {
    access_key_id: String,
    secret_access_key: String,
    #[serde(alias = "SessionToken")]
    token: String,
    /// A time as text, or in seconds since 1970 from STS.
    expiration: Option<Value>,
}

/// Reads credentials from a response. What is wrong with it does not quote it.
pub(super) fn issued(body: &[u8], now: i64) -> Result<Issued<Credentials>, String> {
    let written = written(body).ok_or("the response has no credentials")?;
    let end = match written.expiration {
        None | Some(Value::Null) => None,
        Some(end) => Some(time(&end).ok_or("the end of the credentials is no time")?),
    };
    let lifetime = match end.map(|end| u64::try_from(end.saturating_sub(now))) {
        None => DEFAULT_LIFETIME,
        // A day bounds what a wrong clock can do.
        Some(Ok(seconds @ 1..)) => Duration::from_secs(seconds.min(86_400)),
        Some(_) => {
            return Err(
                "the credentials have expired already: is the clock of this machine right?".into(),
            );
        }
    };
    let key = Secret::new(written.secret_access_key);
    let token = Some(Secret::new(written.token));
    let value = Credentials::new(written.access_key_id, key, token)?;
    Ok(Issued { value, lifetime })
}

fn written(body: &[u8]) -> Option<Written> {
    let text = str::from_utf8(body).ok()?.trim_start();
    if text.starts_with('<') {
        return in_xml(text);
    }
    let mut body: Value = serde_json::from_str(text).ok()?;
    let of_sts = "/AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials";
    let inner = body.pointer_mut(of_sts).map(Value::take);
    serde_json::from_value(inner.unwrap_or(body)).ok()
}

/// The credentials in a response of STS that is XML. None of their values has characters that XML escapes.
fn in_xml(text: &str) -> Option<Written> {
    let (_, text) = text.split_once("<Credentials>")?;
    let (text, _) = text.split_once("</Credentials>")?;
    let value = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        Some(value.trim().to_owned())
    };
    Some(Written {
        access_key_id: value("AccessKeyId")?,
        secret_access_key: value("SecretAccessKey")?,
        token: value("SessionToken")?,
        expiration: value("Expiration").map(Value::from),
    })
}

/// Seconds since 1970.
fn time(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => timestamp::read(text),
        Value::Number(number) => {
            let seconds = number
                .as_f64()
                .filter(|seconds| (0.0..1e11).contains(seconds))?;
            i64::try_from(Duration::from_secs_f64(seconds).as_secs()).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2027-01-15T08:00:00Z.
    const NOW: i64 = 1_800_000_000;

    fn read(body: &str) -> Result<(String, u64), String> {
        let issued = issued(body.as_bytes(), NOW)?;
        Ok((issued.value.access_key_id, issued.lifetime.as_secs()))
    }

    #[test]
    fn credentials_are_read_in_every_form() {
        let plain = |end: &str| {
            format!(
                r#"{{"Code":"Success","AccessKeyId":"ASIA1","SecretAccessKey":"s","Token":"t"{end}}}"#
            )
        };
        let sts = |end: &str| {
            format!(
                r#"{{"AssumeRoleWithWebIdentityResponse":{{"AssumeRoleWithWebIdentityResult":{{"Credentials":
                {{"AccessKeyId":"ASIA1","SecretAccessKey":"s","SessionToken":"t","Expiration":{end}}}}}}}}}"#
            )
        };
        let xml = "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n\
            <AssumeRoleWithWebIdentityResult><Credentials><SessionToken>t</SessionToken>\
            <SecretAccessKey>s</SecretAccessKey><Expiration>2027-01-15T09:00:00Z</Expiration>\n\
            <AccessKeyId>ASIA1</AccessKeyId></Credentials></AssumeRoleWithWebIdentityResult>\
            </AssumeRoleWithWebIdentityResponse>";
        for (body, seconds) in [
            (plain(r#","Expiration":"2027-01-15T09:00:00Z""#), 3_600),
            (plain(r#","Expiration":"2028-01-15T09:00:00Z""#), 86_400),
            (plain(""), 300),
            (sts("1.8000036E9"), 3_600),
            (sts("1800000060"), 60),
            (sts("\"2027-01-15T09:00:00Z\""), 3_600),
            (xml.to_owned(), 3_600),
        ] {
            assert_eq!(read(&body), Ok(("ASIA1".to_owned(), seconds)), "{body}");
        }
    }

    #[test]
    fn what_has_no_credentials_is_refused_without_being_quoted() {
        for body in [
            r#"{"Code":"Failed","Message":"secret"}"#,
            r#"{"AccessKeyId":"A","SecretAccessKey":"secret","Token":"t","Expiration":"2027-01-15T08:00:00Z"}"#,
            r#"{"AccessKeyId":"A","SecretAccessKey":"secret","Token":"t","Expiration":"soon"}"#,
            r#"{"AccessKeyId":"A","SecretAccessKey":"secret","Token":"t\r\nx: y","Expiration":"2027-01-15T09:00:00Z"}"#,
            r#"{"AccessKeyId":"A, b","SecretAccessKey":"secret","Token":"t"}"#,
            "<Credentials><AccessKeyId>secret</AccessKeyId>",
            "secret",
            "",
        ] {
            let why = read(body).unwrap_err();
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
