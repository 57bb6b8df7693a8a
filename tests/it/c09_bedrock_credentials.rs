//! Credentials for Amazon Bedrock: those of a machine, a container and a pod, which are renewed before they end.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    FakeUpstream, LedgerView, Step, TestGateway, View,
    anthropic::{message, text},
    bedrock::{
        Ends, assert_signed, credentials, failure, metadata_service, metadata_service_with,
        section, signer, until_signed_by,
    },
    gateway::{PROVIDER_KEY, answer, hello},
    ledger_view::MODEL,
    upstream::response,
};

async fn start(variables: &[(&str, &str)]) -> (TestGateway, FakeUpstream) {
    let bedrock = FakeUpstream::start().await;
    bedrock.answer_json(200, &message(json!([text("Hello")]), "end_turn"));
    let gateway = TestGateway::start_with_variables(&section(&bedrock, ""), variables).await;
    (gateway, bedrock)
}

/// The requests of a fake service whose line begins like this.
fn requests(service: &FakeUpstream, line: &str) -> usize {
    let received = service.received();
    received
        .iter()
        .filter(|request| request.head.starts_with(line))
        .count()
}

const CREDENTIALS: &str = "GET /latest/meta-data/iam/security-credentials/gateway-role ";

#[tokio::test]
async fn a_machines_credentials_are_fetched_once() {
    let service = metadata_service(3_600).await;
    let url = format!("http://{}/", service.address);
    let (gateway, bedrock) = start(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)]).await;
    let customer = gateway.customer().await;
    let calls = (0..8).map(|_| customer.ask("Hello", false));
    for view in futures_util::future::join_all(calls).await {
        assert_eq!(view, View::Answered);
    }
    assert_eq!(requests(&service, CREDENTIALS), 1);
    assert_eq!(requests(&service, "PUT /latest/api/token "), 1);
    for sent in bedrock.received() {
        assert_eq!(signer(&sent), "ASIA1");
        assert_signed(&sent, PROVIDER_KEY, Some("token-of-ASIA1"));
    }
    assert_eq!(customer.ledger_view().await, LedgerView::charged(8));
}

/// Every call of the whole time succeeds: credentials are replaced before they end.
#[tokio::test]
async fn a_machines_credentials_are_renewed() {
    let ends = Ends::default();
    let service = metadata_service_with(3, ends.clone()).await;
    let url = format!("http://{}", service.address);
    let (gateway, bedrock) = start(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)]).await;
    let late = Arc::new(AtomicUsize::new(0));
    let hello = message(json!([text("Hello")]), "end_turn").to_string();
    let counted = late.clone();
    bedrock.play_for_each(move |request| {
        if ends.lock().unwrap()[&signer(request)] < time::OffsetDateTime::now_utc() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        vec![Step::Send(response(200, "application/json", &hello))]
    });
    until_signed_by(&gateway, &bedrock, "ASIA3").await;
    assert_eq!(late.load(Ordering::Relaxed), 0, "signed after the end");
    let last = bedrock.received().pop().unwrap();
    assert_signed(&last, PROVIDER_KEY, Some("token-of-ASIA3"));
}

/// Credentials that were withdrawn before their end are replaced, and the request is sent again.
#[tokio::test]
async fn refused_credentials_are_replaced() {
    let service = metadata_service(3_600).await;
    let url = format!("http://{}", service.address);
    let (gateway, bedrock) = start(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)]).await;
    let hello = message(json!([text("Hello")]), "end_turn").to_string();
    bedrock.play_for_each(move |request| {
        let expired = failure(
            403,
            "ExpiredTokenException",
            "The security token included in the request is expired",
        );
        let is_old = signer(request) == "ASIA1";
        let good = response(200, "application/json", &hello);
        vec![Step::Send(if is_old { expired } else { good })]
    });
    let customer = gateway.customer().await;
    assert_eq!(customer.ask("Hello", false).await, View::Answered);
    assert_eq!(customer.ask("Hello", false).await, View::Answered);
    let signers: Vec<_> = bedrock.received().iter().map(signer).collect();
    assert_eq!(signers, ["ASIA1", "ASIA2", "ASIA2"]);
    assert_eq!(customer.ledger_view().await, LedgerView::charged(2));
}

/// ECS and EKS: an agent on the machine, and a token in a file, which is read every time.
#[tokio::test]
async fn a_containers_credentials_come_from_its_agent() {
    let agent = FakeUpstream::start().await;
    agent.play_for_each(|request| {
        let token = request.header("authorization").unwrap_or_default();
        let body = credentials(&format!("ASIA{token}"), 3).to_string();
        vec![Step::Send(response(200, "application/json", &body))]
    });
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "one\n").unwrap();
    let url = format!("http://{}/v1/credentials", agent.address);
    let (gateway, bedrock) = start(&[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &url),
        (
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            file.to_str().unwrap(),
        ),
    ])
    .await;
    until_signed_by(&gateway, &bedrock, "ASIAone").await;
    assert_eq!(requests(&agent, "GET /v1/credentials HTTP/1.1"), 1);
    std::fs::write(&file, "two").unwrap();
    until_signed_by(&gateway, &bedrock, "ASIAtwo").await;
    let last = bedrock.received().pop().unwrap();
    assert_signed(&last, PROVIDER_KEY, Some("token-of-ASIAtwo"));
}

/// A service account of Kubernetes takes a role on (IRSA).
#[tokio::test]
async fn a_pods_credentials_come_from_its_role() {
    let sts = FakeUpstream::start().await;
    let given = credentials("ASIA1", 3_600);
    let value = |name: &str| given[name].as_str().unwrap();
    let body = format!(
        "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
         <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{}</AccessKeyId><SecretAccessKey>{}\
         </SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{}</Expiration></Credentials>\
         </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
        value("AccessKeyId"),
        value("SecretAccessKey"),
        value("Token"),
        value("Expiration"),
    );
    sts.answer(200, "text/xml", &body);
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "eyJ.of.kubernetes").unwrap();
    let url = format!("http://{}", sts.address);
    let (gateway, bedrock) = start(&[
        ("AWS_WEB_IDENTITY_TOKEN_FILE", file.to_str().unwrap()),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/gateway"),
        ("AWS_ENDPOINT_URL_STS", &url),
    ])
    .await;
    until_signed_by(&gateway, &bedrock, "ASIA1").await;
    let asked = sts.received().pop().unwrap();
    assert!(asked.head.starts_with("POST / HTTP/1.1"), "{}", asked.head);
    for part in [
        "Action=AssumeRoleWithWebIdentity",
        "Version=2011%2D06%2D15",
        "RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fgateway",
        "RoleSessionName=tollgate",
        "WebIdentityToken=eyJ%2Eof%2Ekubernetes",
    ] {
        assert!(
            asked.text.split('&').any(|pair| pair == part),
            "{part}: {}",
            asked.text
        );
    }
    assert_signed(
        &bedrock.received().pop().unwrap(),
        PROVIDER_KEY,
        Some("token-of-ASIA1"),
    );
}

/// The keys of the environment, as AWS's own tools use them.
#[tokio::test]
async fn the_environment_has_keys() {
    let (gateway, bedrock) = start(&[
        ("AWS_ACCESS_KEY_ID", "AKIDENV"),
        ("AWS_SECRET_ACCESS_KEY", "a/secret+key"),
        ("AWS_SESSION_TOKEN", "a-session"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/not/read"),
        ("AWS_ROLE_ARN", "not used"),
    ])
    .await;
    until_signed_by(&gateway, &bedrock, "AKIDENV").await;
    assert_signed(
        &bedrock.received().pop().unwrap(),
        "a/secret+key",
        Some("a-session"),
    );
}

/// Without credentials nothing is sent, the call is free, and the operator learns why.
#[tokio::test]
async fn a_machine_without_a_role_sends_nothing() {
    let service = FakeUpstream::start().await;
    service.answer(404, "text/plain", "");
    let url = format!("http://{}", service.address);
    let (gateway, bedrock) = start(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)]).await;
    let customer = gateway.customer().await;
    assert_eq!(customer.ask("Hello", false).await, View::FAILED);
    assert_eq!(bedrock.calls(), 0);
    assert_eq!(customer.ledger_view().await, LedgerView::free(1));
    let request = gateway.request(Method::POST, "/v1/chat/completions");
    let request = request
        .header("x-request-id", "no-role")
        .json(&hello(MODEL));
    answer(request)
        .await
        .assert_error(502, "upstream_error", None, None);
    let shown = gateway
        .operate(Method::GET, "/operator/requests/no-role", None)
        .await;
    let shown = shown.assert_ok().to_string();
    assert!(shown.contains("could not get a token"), "{shown}");
}
