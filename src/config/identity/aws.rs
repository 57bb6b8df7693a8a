//! `auth = "aws"`: an access key, the role of a container or a machine, or a role for the identity of a pod.

use std::path::PathBuf;

use axum::http::Uri;

use crate::{
    base::{
        checked_toml::{Section, as_text},
        keys::Secret,
    },
    config::values::{Environment, is_safe_url, secret},
};

/// Where containers of ECS get credentials, which is reached from them alone.
const CONTAINER_HOST: &str = "http://169.254.170.2";
/// The metadata service of EC2's machines, which is reached from them alone.
const METADATA: &str = "http://169.254.169.254";
/// Hosts to which a container may send its token without TLS: those of ECS and EKS.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];
/// The name under which Bedrock's signatures are valid.
const BEDROCK: &str = "bedrock";
/// Bedrock's other endpoint, whose signatures have its own name.
const MANTLE: &str = "bedrock-mantle";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aws {
    pub region: String,
    /// The name of the service for which requests are signed.
    pub service: &'static str,
    pub source: AwsSource,
}

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AwsSource {
    Keys {
        access_key_id: String,
        secret_access_key: Secret,
        session_token: Option<Secret>,
    },
    /// From the agent of ECS or EKS.
    Container {
        url: String,
        /// What the agent wants to see in `authorization`.
        token: Option<Secret>,
        /// A file with it, which the agent renews.
        token_file: Option<PathBuf>,
    },
    /// From the metadata service of the machine.
    Machine { url: String },
    /// With a token of another issuer, such as Kubernetes, which renews it in a file.
    WebIdentity {
        sts_url: String,
        role_arn: String,
        session_name: String,
        token_file: PathBuf,
    },
}

impl Aws {
    pub(super) fn names(&self) -> Vec<&str> {
        match &self.source {
            AwsSource::Keys { access_key_id, .. } => vec![access_key_id],
            AwsSource::WebIdentity { role_arn, .. } => vec![role_arn],
            AwsSource::Container { .. } | AwsSource::Machine { .. } => Vec::new(),
        }
    }
}

/// The end of the hosts of a region's services.
fn domain(region: &str) -> &'static str {
    if region.starts_with("cn-") {
        "amazonaws.com.cn"
    } else {
        "amazonaws.com"
    }
}

impl Aws {
    /// The address of Bedrock in its region.
    pub(crate) fn bedrock_url(&self) -> String {
        let region = &self.region;
        format!("https://bedrock-runtime.{region}.{}", domain(region))
    }

    /// Whether requests go to Bedrock's other endpoint.
    pub(crate) fn is_mantle(&self) -> bool {
        self.service == MANTLE
    }
}

/// Reads the settings beside `auth = "aws"`.
pub(super) fn read(section: &mut Section, environment: &Environment) -> Option<Aws> {
    let region = region(section, environment);
    let service = section.text_of("base_url").map_or(BEDROCK, service_of);
    let source = source(section, region.as_deref(), environment);
    Some(Aws {
        region: region?,
        service,
        source: source?,
    })
}

/// The region: as it is set, or that of the host, or that of the environment.
fn region(section: &mut Section, environment: &Environment) -> Option<String> {
    let expected = "a region of AWS, e.g. `eu-central-1`";
    let was_set = section.contains("region");
    let set = section.optional("region", expected, |value| {
        as_text(value).filter(|region| is_region(region))
    });
    let of_host = section.text_of("base_url").and_then(region_of_host);
    if let (Some(set), Some(of_host)) = (&set, &of_host)
        && set != of_host
    {
        let message = format!("is {set:?}, but `base_url` has {of_host:?} in its host");
        section.mistake("region", &message);
    }
    let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"];
    let of_environment = || {
        let regions = variables
            .iter()
            .find_map(|name| variable(environment, name));
        regions.filter(|region| is_region(region))
    };
    let region = set.or(of_host).or_else(of_environment);
    if region.is_none() && !was_set {
        section.mistake(
            "region",
            &format!("is missing; expected {expected}, or the variable AWS_REGION"),
        );
    }
    region
}

fn source(
    section: &mut Section,
    region: Option<&str>,
    environment: &Environment,
) -> Option<AwsSource> {
    match written_keys(section, environment) {
        Written::Nothing => {}
        Written::Mistake => return None,
        Written::Keys(keys) => return Some(keys),
    }
    let variable = |name| variable(environment, name);
    // The order of AWS's own libraries.
    if let Some((id, key)) = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY")) {
        return Some(AwsSource::Keys {
            access_key_id: id,
            secret_access_key: Secret::new(key),
            session_token: variable("AWS_SESSION_TOKEN").map(Secret::new),
        });
    }
    if let Some((file, role_arn)) =
        variable("AWS_WEB_IDENTITY_TOKEN_FILE").zip(variable("AWS_ROLE_ARN"))
    {
        let region = region?;
        let sts_url = variable("AWS_ENDPOINT_URL_STS");
        let sts_url = sts_url.unwrap_or_else(|| format!("https://sts.{region}.{}", domain(region)));
        if !is_safe_url(&sts_url) {
            let message = "uses AWS_ENDPOINT_URL_STS, which is not safe for a token; expected https, or an address \
                           of this machine";
            section.mistake("auth", message);
            return None;
        }
        return Some(AwsSource::WebIdentity {
            sts_url,
            role_arn,
            session_name: variable("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "tollgate".into()),
            token_file: file.into(),
        });
    }
    let relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let url = relative.map(|path| format!("{CONTAINER_HOST}{path}"));
    if let Some(url) = url.or_else(|| variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")) {
        if !is_container_url(&url) {
            let message = format!(
                "leads to {url:?} by AWS_CONTAINER_CREDENTIALS_FULL_URI; expected https, this machine, or the \
                 address of ECS or EKS"
            );
            section.mistake("auth", &message);
            return None;
        }
        return Some(AwsSource::Container {
            url,
            token: variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").map(Secret::new),
            token_file: variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from),
        });
    }
    let is_disabled = variable("AWS_EC2_METADATA_DISABLED");
    if is_disabled.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        let message = "finds no credentials: set `access_key_id` and `secret_access_key_file`, or run where AWS \
                       provides a role (AWS_EC2_METADATA_DISABLED is set)";
        section.mistake("auth", message);
        return None;
    }
    let url = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let url = url.unwrap_or_else(|| METADATA.to_owned());
    Some(AwsSource::Machine {
        url: url.trim_end_matches('/').to_owned(),
    })
}

/// What a section says of an access key.
enum Written {
    Nothing,
    Mistake,
    Keys(AwsSource),
}

fn written_keys(section: &mut Section, environment: &Environment) -> Written {
    const KEY: &str = "secret_access_key";
    const TOKEN: &str = "session_token";
    let is_written = |section: &Section, key: &str| {
        let mut names = ["", "_env", "_file"]
            .iter()
            .map(|end| format!("{key}{end}"));
        names.any(|name| section.contains(&name))
    };
    let has_id = section.contains("access_key_id");
    let (has_key, has_token) = (is_written(section, KEY), is_written(section, TOKEN));
    let expected = "the ID of an access key, e.g. `AKIAIOSFODNN7EXAMPLE`";
    let id = section.optional("access_key_id", expected, |value| {
        let is_id =
            |id: &String| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        as_text(value).filter(is_id)
    });
    let key = secret(section, KEY, None, environment);
    let token = secret(section, TOKEN, None, environment);
    if !has_id && !has_key && !has_token {
        return Written::Nothing;
    }
    if !has_id {
        let message = "is missing; `secret_access_key` and `session_token` belong to it";
        section.mistake("access_key_id", message);
    }
    if has_id && !has_key {
        let message = "needs `secret_access_key_file` or `secret_access_key_env` beside it";
        section.mistake("access_key_id", message);
    }
    let Some((access_key_id, secret_access_key)) = id.zip(key) else {
        return Written::Mistake;
    };
    Written::Keys(AwsSource::Keys {
        access_key_id,
        secret_access_key,
        session_token: token,
    })
}

fn variable(environment: &Environment, name: &str) -> Option<String> {
    let value = environment.get(name).map(|value| value.trim().to_owned());
    value.filter(|value| !value.is_empty())
}

/// Whether a text has the form of a region: `us-east-1`, `us-gov-west-1`.
fn is_region(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let is_word =
        |part: &&str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    let Some((number, words)) = parts.split_last() else {
        return false;
    };
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number && words.len() >= 2 && words.iter().all(is_word)
}

/// The region in the host of an endpoint of AWS.
fn region_of_host(url: &str) -> Option<String> {
    let host = host_of_aws(url)?;
    let region = host.split('.').find(|label| is_region(label));
    region.map(str::to_owned)
}

/// The service for which requests to this URL are signed. The host of a VPC endpoint has its name in the second label.
fn service_of(url: &str) -> &'static str {
    let host = host_of_aws(url).unwrap_or_default();
    if host.split('.').any(|label| label == MANTLE) {
        MANTLE
    } else {
        BEDROCK
    }
}

/// The host of a URL, if it is an endpoint of AWS.
fn host_of_aws(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    let host = uri.host()?.to_ascii_lowercase();
    let ends = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws"];
    let is_aws = ends.iter().any(|end| host.ends_with(end));
    is_aws.then_some(host)
}

/// Whether the token of a container may be sent there: AWS's own libraries have the same rule.
fn is_container_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = address
        .parse()
        .is_ok_and(|address: std::net::IpAddr| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => is_loopback || host == "localhost" || CONTAINER_HOSTS.contains(&host),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_found_in_hosts() {
        for (url, region) in [
            (
                "https://bedrock-runtime.eu-central-1.amazonaws.com",
                Some("eu-central-1"),
            ),
            (
                "https://bedrock-runtime.cn-north-1.amazonaws.com.cn/x",
                Some("cn-north-1"),
            ),
            (
                "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
                Some("us-gov-west-1"),
            ),
            (
                "https://vpce-1a.bedrock-runtime.us-east-1.vpce.amazonaws.com",
                Some("us-east-1"),
            ),
            (
                "https://bedrock-mantle.us-east-2.api.aws/v1",
                Some("us-east-2"),
            ),
            ("https://bedrock-runtime.eu-central-1.example.com", None),
            ("http://127.0.0.1:9000", None),
        ] {
            assert_eq!(region_of_host(url).as_deref(), region, "{url}");
        }
        for text in [
            "",
            "eu-1",
            "EU-central-1",
            "eu-central",
            "eu central-1",
            "eu--1",
            "a/b-c-1",
        ] {
            assert!(!is_region(text), "{text}");
        }
    }

    #[test]
    fn a_host_says_for_which_service_requests_are_signed() {
        for (url, service) in [
            (
                "https://bedrock-runtime.eu-central-1.amazonaws.com",
                BEDROCK,
            ),
            (
                "https://bedrock-runtime-fips.us-east-1.amazonaws.com",
                BEDROCK,
            ),
            ("https://bedrock-mantle.us-east-2.api.aws/v1", MANTLE),
            ("https://Bedrock-Mantle.us-east-2.api.aws/v1", MANTLE),
            (
                "https://vpce-1a.bedrock-mantle.us-east-1.vpce.amazonaws.com/v1",
                MANTLE,
            ),
            ("https://bedrock-mantle.example.com/v1", BEDROCK),
            ("http://127.0.0.1:9000/bedrock-mantle", BEDROCK),
        ] {
            assert_eq!(service_of(url), service, "{url}");
        }
    }

    #[test]
    fn a_containers_token_stays_on_the_machine() {
        for (url, is_good) in [
            ("http://169.254.170.2/v2/credentials/x", true),
            ("http://169.254.170.23/v1/credentials", true),
            ("http://[fd00:ec2::23]/v1/credentials", true),
            ("http://localhost:9/x", true),
            ("http://127.0.0.1:9/x", true),
            ("http://[::1]:9/x", true),
            ("https://credentials.example.com/x", true),
            ("http://169.254.169.254/x", false),
            ("http://example.com/x", false),
            ("file:///etc/passwd", false),
            ("/x", false),
        ] {
            assert_eq!(is_container_url(url), is_good, "{url}");
        }
    }
}
