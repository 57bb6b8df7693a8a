//! Providers at AWS: what is read, and the reported mistakes.

use tollgate::config::{AwsSource, Dialect, Identity};

use crate::configuration::{openai, parse, refused};

fn provider(settings: &str) -> String {
    format!(
        "[providers.bedrock]\n{settings}\n[[deployments]]\nmodel = \"*\"\nprovider = \"bedrock\"\n"
    )
}

/// The region and the source of the credentials.
#[track_caller]
fn identity(settings: &str, variables: &[(&str, &str)]) -> (String, AwsSource) {
    let config = parse(&provider(settings), variables);
    match &openai(&config, "bedrock").identity {
        Some(Identity::Aws(aws)) => (aws.region.clone(), aws.source.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_region_is_enough() {
    for (kind, region, url, dialect) in [
        (
            "anthropic",
            "eu-central-1",
            "https://bedrock-runtime.eu-central-1.amazonaws.com",
            Dialect::Bedrock,
        ),
        (
            "openai",
            "us-gov-west-1",
            "https://bedrock-runtime.us-gov-west-1.amazonaws.com/openai/v1",
            Dialect::Anthropic,
        ),
        (
            "anthropic",
            "cn-north-1",
            "https://bedrock-runtime.cn-north-1.amazonaws.com.cn",
            Dialect::Bedrock,
        ),
    ] {
        let settings = format!("kind = \"{kind}\"\nauth = \"aws\"\nregion = \"{region}\"");
        let config = parse(&provider(&settings), &[]);
        let bedrock = openai(&config, "bedrock");
        assert_eq!((bedrock.base_url.as_str(), bedrock.dialect), (url, dialect));
        assert_eq!(bedrock.betas.is_empty(), kind == "openai");
    }
    let given = "kind = \"anthropic\"\nauth = \"aws\"\nregion = \"eu-west-1\"\ndialect = \"anthropic\"\n\
                 base_url = \"https://bedrock-runtime.eu-west-1.amazonaws.com/anthropic/v1\"";
    let config = parse(&provider(given), &[]);
    assert_eq!(openai(&config, "bedrock").dialect, Dialect::Anthropic);
    // Bedrock's other endpoint has no form of its own.
    let mantle = "kind = \"anthropic\"\nauth = \"aws\"\n\
                  base_url = \"https://bedrock-mantle.us-east-1.api.aws/anthropic/v1\"";
    for (more, expected) in [
        ("", Dialect::Anthropic),
        ("\ndialect = \"bedrock\"", Dialect::Bedrock),
    ] {
        let config = parse(&provider(&format!("{mantle}{more}")), &[]);
        assert_eq!(openai(&config, "bedrock").dialect, expected, "{more}");
    }
}

#[test]
fn the_region_is_found() {
    let host = "base_url = \"https://vpce-1.bedrock-runtime.eu-west-3.vpce.amazonaws.com\"";
    for (more, variables, expected) in [
        (host, vec![], "eu-west-3"),
        (host, vec![("AWS_REGION", "us-east-1")], "eu-west-3"),
        ("", vec![("AWS_REGION", "us-east-1")], "us-east-1"),
        ("", vec![("AWS_DEFAULT_REGION", "us-east-2")], "us-east-2"),
        (
            "region = \"ap-south-1\"",
            vec![("AWS_REGION", "us-east-1")],
            "ap-south-1",
        ),
    ] {
        let settings = format!("kind = \"anthropic\"\nauth = \"aws\"\n{more}");
        let (region, _) = identity(&settings, &variables);
        assert_eq!(region, expected, "{more} {variables:?}");
    }
}

#[test]
fn requests_are_signed_for_the_service_of_the_host() {
    let mantle = "base_url = \"https://bedrock-mantle.us-east-2.api.aws/v1\"";
    for (more, expected) in [
        ("region = \"us-east-2\"", "bedrock"),
        (mantle, "bedrock-mantle"),
    ] {
        let settings = format!("kind = \"openai\"\nauth = \"aws\"\n{more}");
        let config = parse(&provider(&settings), &[]);
        match &openai(&config, "bedrock").identity {
            Some(Identity::Aws(aws)) => assert_eq!(aws.service, expected, "{more}"),
            other => panic!("{other:?}"),
        }
    }
}

/// The first source that there is, in the order of AWS's own libraries.
#[test]
fn credentials_are_found() {
    let settings = "kind = \"anthropic\"\nauth = \"aws\"\nregion = \"eu-west-1\"";
    let keys = [
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", "s"),
    ];
    let pod = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
    ];
    let container = [(
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "/v2/credentials/x",
    )];
    let all = [&keys[..], &pod, &container].concat();
    let found = |variables: &[(&str, &str)]| identity(settings, variables).1;
    assert!(
        matches!(found(&all), AwsSource::Keys { access_key_id, .. } if access_key_id == "AKID")
    );
    let without_keys = [&pod[..], &container].concat();
    assert!(matches!(
        found(&without_keys),
        AwsSource::WebIdentity { sts_url, session_name, .. }
            if sts_url == "https://sts.eu-west-1.amazonaws.com" && session_name == "tollgate"
    ));
    assert!(matches!(
        found(&container),
        AwsSource::Container { url, .. } if url == "http://169.254.170.2/v2/credentials/x"
    ));
    assert!(matches!(
        found(&[]),
        AwsSource::Machine { url } if url == "http://169.254.169.254"
    ));
    let written =
        format!("{settings}\naccess_key_id = \"AKOWN\"\nsecret_access_key_env = \"LOCAL_API_KEY\"");
    let (_, source) = identity(&written, &all);
    assert!(matches!(source, AwsSource::Keys { access_key_id, .. } if access_key_id == "AKOWN"));
}

#[test]
fn mistakes_are_explained() {
    let with_region = "kind = \"openai\"\nauth = \"aws\"\nregion = \"eu-west-1\"";
    let more = |settings: &str| format!("{with_region}\n{settings}");
    let anthropic = "kind = \"anthropic\"\nauth = \"aws\"";
    for (settings, variables, expected) in [
        (anthropic.to_owned(), vec![], "or the variable AWS_REGION"),
        (
            format!("{anthropic}\nregion = \"Frankfurt\""),
            vec![],
            "is \"Frankfurt\"; expected a region of AWS",
        ),
        (
            format!(
                "{anthropic}\nregion = \"eu-west-1\"\n\
                 base_url = \"https://bedrock-runtime.us-east-1.amazonaws.com\""
            ),
            vec![],
            "is \"eu-west-1\", but `base_url` has \"us-east-1\" in its host",
        ),
        (
            more("api_key_env = \"LOCAL_API_KEY\""),
            vec![],
            "does not belong beside `auth`",
        ),
        (
            more("access_key_id = \"AKID\""),
            vec![],
            "needs `secret_access_key_file` or `secret_access_key_env` beside it",
        ),
        (
            more("secret_access_key_env = \"LOCAL_API_KEY\""),
            vec![],
            "`secret_access_key` and `session_token` belong to it",
        ),
        (
            more("access_key_id = \"AKID\"\nsecret_access_key = \"do-not-show-this\""),
            vec![],
            "use `secret_access_key_env` or `secret_access_key_file`",
        ),
        (
            with_region.to_owned(),
            vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://example.com/x")],
            "by AWS_CONTAINER_CREDENTIALS_FULL_URI; expected https",
        ),
        (
            with_region.to_owned(),
            vec![
                ("AWS_WEB_IDENTITY_TOKEN_FILE", "/token"),
                ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
                ("AWS_ENDPOINT_URL_STS", "http://sts.example.com"),
            ],
            "uses AWS_ENDPOINT_URL_STS, which is not safe for a token",
        ),
        (
            with_region.to_owned(),
            vec![("AWS_EC2_METADATA_DISABLED", "true")],
            "AWS_EC2_METADATA_DISABLED is set",
        ),
        (
            "kind = \"anthropic\"\ndialect = \"bedrock\"\napi_key_env = \"LOCAL_API_KEY\""
                .to_owned(),
            vec![],
            "`providers.bedrock.base_url` is missing",
        ),
    ] {
        let text = refused(&provider(&settings), &variables);
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("do-not-show"), "{text}");
    }
}
