//! Providers that are authorised by tokens of a cloud: Vertex AI and Azure OpenAI.

use reqwest::Method;
use serde_json::json;
use tollgate::{
    base::keys::Secret,
    config::{
        Azure, AzureGrant, Dialect, Google, Identity, ProviderKind, Quirks, RemoteProvider, Reuse,
        Timeouts,
    },
    upstream::Provider,
};

use crate::support::{
    FakeUpstream, Step,
    anthropic::{self, failure, hello_events, message},
    clouds::{CLIENT_SECRET, Cloud, EMAIL, MODEL, PROJECT, token},
    gateway::{answer, hello},
    gemini,
    ledger_view::PRICE,
    messages::{COUNT, PATH, writing},
    upstream::{completion, response},
};

const GEMINI: &str = "/publishers/google";
const CLAUDE: &str = "/publishers/anthropic";

/// The path and query of the last request.
fn target(upstream: &FakeUpstream) -> String {
    let head = upstream.received().pop().unwrap().head;
    head.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn gemini_on_vertex_gets_one_token_for_all_requests() {
    let cloud = Cloud::google("gemini", GEMINI, "").await;
    cloud.api.answer_json(200, &gemini::said("Hello"));
    let body = hello(MODEL);
    let chats = (0..20).map(|_| cloud.gateway.chat(&body));
    for answer in futures_util::future::join_all(chats).await {
        answer.assert_ok();
    }
    assert_eq!(
        target(&cloud.api),
        format!(
            "/v1/projects/{PROJECT}/locations/europe-west4/publishers/google/models/claude-9@20260101:generateContent"
        )
    );
    assert_eq!(cloud.authorizations(), vec!["Bearer ya29.token-1"; 20]);
    assert_eq!(cloud.tokens.calls(), 1);
    let asked = cloud.tokens.received().pop().unwrap();
    assert_eq!(target(&cloud.tokens), "/token");
    assert!(
        asked.text.starts_with(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant%2Dtype%3Ajwt%2Dbearer&assertion=eyJ"
        ),
        "{}",
        asked.text
    );
    assert!(!cloud.api.last_text().contains("x-goog-api-key"));
    assert_eq!(cloud.spent().await, 20 * PRICE.unsigned_abs());
}

#[tokio::test]
async fn claude_on_vertex_has_paths_and_a_version_of_its_own() {
    let cloud = Cloud::google("anthropic", CLAUDE, "").await;
    let said = message(json!([anthropic::text("Hello")]), "end_turn");
    cloud.api.answer_json(200, &said);
    cloud.gateway.chat(&hello(MODEL)).await.assert_ok();
    let models =
        format!("/v1/projects/{PROJECT}/locations/europe-west4/publishers/anthropic/models");
    assert_eq!(
        target(&cloud.api),
        format!("{models}/claude-9@20260101:rawPredict")
    );
    let body = cloud.api.last_body();
    assert_eq!(body["anthropic_version"], "vertex-2023-10-16");
    assert_eq!(body.get("model"), None);
    assert_eq!(body["stream"], false);
    assert!(!cloud.api.last_text().contains("anthropic-version"));

    cloud.api.answer_stream(&anthropic::events(&hello_events()));
    let stream = cloud.gateway.stream(&hello(MODEL)).await;
    assert_eq!(stream.content(0), "Hello");
    assert_eq!(
        target(&cloud.api),
        format!("{models}/claude-9@20260101:streamRawPredict")
    );
    assert_eq!(cloud.api.last_body()["stream"], true);
    assert_eq!(cloud.authorizations(), ["Bearer ya29.token-1"; 2]);
    assert_eq!(cloud.spent().await, 2 * PRICE.unsigned_abs());
}

/// A model without additions of the gateway, whose requests are forwarded in the caller's bytes.
const OWN: &str = "[[models]]\nid = \"own\"\nidentity_prompt = false\nbuiltin_tools = false\ninput = \"1.00\"\n\
    output = \"5.00\"\n[[deployments]]\nmodel = \"own\"\nprovider = \"cloud\"\nupstream_model = \"claude-9@20260101\"\n";

/// What a coding agent asks for: some of it is known to Anthropic's own API alone.
const BETAS: &str = "claude-code-20250219, context-1m-2025-08-07, interleaved-thinking-2025-05-14, \
    prompt-caching-scope-2026-01-05, effort-2025-11-24";

#[tokio::test]
async fn requests_of_the_messages_api_are_written_as_vertex_reads_them() {
    let cloud = Cloud::google("anthropic", CLAUDE, OWN).await;
    let said = message(json!([anthropic::text("Hello")]), "end_turn");
    cloud.api.answer_json(200, &said);
    let ask = async |path: &str| {
        let body = writing(json!({ "model": "own", "x_new": 1.0 }));
        let request = cloud.gateway.request(Method::POST, path).json(&body);
        let request = request.header("anthropic-version", "2023-06-01");
        let request = request.header("anthropic-beta", BETAS);
        answer(request).await
    };
    let answer = ask(PATH).await;
    assert_eq!(answer.assert_ok()["model"], "own");
    let sent = cloud.api.received().pop().unwrap();
    assert!(
        sent.text
            .starts_with("{\"anthropic_version\":\"vertex-2023-10-16\","),
        "{}",
        sent.text
    );
    assert_eq!(
        sent.body["anthropic_beta"],
        json!(["context-1m-2025-08-07", "interleaved-thinking-2025-05-14"])
    );
    assert_eq!(sent.body["x_new"], json!(1.0));
    assert_eq!(sent.body.get("model"), None);
    assert_eq!(sent.header("anthropic-version"), None);
    let in_header = Some("interleaved-thinking-2025-05-14");
    assert_eq!(sent.header("anthropic-beta"), in_header);
    assert!(target(&cloud.api).ends_with("/models/claude-9@20260101:rawPredict"));

    cloud.api.answer_json(200, &json!({ "input_tokens": 17 }));
    let counted = ask(COUNT).await;
    assert_eq!(counted.assert_ok()["input_tokens"], 17);
    let sent = cloud.api.received().pop().unwrap();
    assert!(target(&cloud.api).ends_with("/publishers/anthropic/models/count-tokens:rawPredict"));
    assert_eq!(sent.body["model"], "claude-9@20260101");
    assert_eq!(
        sent.body["anthropic_beta"],
        json!(["context-1m-2025-08-07", "interleaved-thinking-2025-05-14"])
    );
    assert_eq!(sent.header("anthropic-beta"), None);
}

/// A feature that Vertex AI does not have would be a 400, so the operator decides which it gets.
#[tokio::test]
async fn the_betas_of_vertex_can_be_set() {
    for (betas, expected) in [
        ("[\"prompt-caching-scope-2026-01-05\"]", true),
        ("[]", false),
    ] {
        let api = FakeUpstream::start().await;
        let provider = format!(
            "[providers.cloud]\nkind = \"anthropic\"\ndialect = \"vertex\"\nbetas = {betas}\n\
             base_url = \"http://{}/v1\"\napi_key_env = \"PROVIDER_KEY\"\n\
             [[deployments]]\nmodel = \"{}\"\nprovider = \"cloud\"\nupstream_model = \"claude-9@20260101\"\n",
            api.address,
            anthropic::OWN,
        );
        let gateway = anthropic::start_own(&provider).await;
        let said = message(json!([anthropic::text("Hello")]), "end_turn");
        api.answer_json(200, &said);
        let body = writing(json!({ "model": anthropic::OWN }));
        let request = gateway.request(Method::POST, PATH).json(&body);
        answer(request.header("anthropic-beta", BETAS))
            .await
            .assert_ok();
        let sent = api.received().pop().unwrap();
        let beta = "prompt-caching-scope-2026-01-05";
        assert_eq!(sent.header("anthropic-beta"), expected.then_some(beta));
        let in_body = expected.then(|| json!([beta]));
        assert_eq!(sent.body.get("anthropic_beta"), in_body.as_ref());
        // Callers get no others by writing them, or another version, into the body.
        api.answer_json(200, &said);
        let own = json!({
            "model": anthropic::OWN,
            "anthropic_version": "2023-06-01",
            "anthropic_beta": [beta, "code-execution-2025-08-25"],
        });
        let body = writing(own);
        answer(gateway.request(Method::POST, PATH).json(&body))
            .await
            .assert_ok();
        let sent = api.received().pop().unwrap();
        assert_eq!(sent.header("anthropic-beta"), expected.then_some(beta));
        assert_eq!(sent.body.get("anthropic_beta"), in_body.as_ref());
        assert_eq!(sent.body["anthropic_version"], "vertex-2023-10-16");
    }
}

/// A caller of the provider's own API gets the provider's words, but not the operator's project.
#[tokio::test]
async fn the_operators_project_is_shown_to_nobody() {
    let cloud = Cloud::google("anthropic", CLAUDE, OWN).await;
    let send = async |text: &str| {
        let said = failure("invalid_request_error", text);
        cloud.api.answer_json(400, &said);
        let body = writing(json!({ "model": "own" }));
        let native = answer(cloud.gateway.request(Method::POST, PATH).json(&body)).await;
        let chat = cloud.gateway.chat(&hello(MODEL)).await;
        assert_eq!((native.status, chat.status), (400, 502));
        format!("{} {}", native.body, chat.body)
    };
    let shown = send(&format!(
        "Quota of {EMAIL} in projects/{PROJECT}/locations is wrong: ya29.abc"
    ))
    .await;
    for secret in [PROJECT, EMAIL, "ya29.abc"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    let shown = send("messages.0: wrong").await;
    assert_eq!(shown.matches("messages.0: wrong").count(), 2, "{shown}");
}

#[tokio::test]
async fn azure_openai_gets_a_token_of_an_application() {
    for (path, settings, expected) in [
        ("/openai/v1", "", "/openai/v1/chat/completions"),
        (
            "/openai/deployments/mine",
            "query = \"api-version=2024-10-21\"",
            "/openai/deployments/mine/chat/completions?api-version=2024-10-21",
        ),
    ] {
        let cloud = Cloud::azure(path, settings).await;
        cloud.gateway.chat(&hello(MODEL)).await.assert_ok();
        assert_eq!(target(&cloud.api), expected);
        assert_eq!(cloud.authorizations(), ["Bearer ya29.token-1"]);
        assert_eq!(target(&cloud.tokens), "/contoso.example/oauth2/v2.0/token");
        assert_eq!(
            cloud.tokens.received()[0].text,
            "grant_type=client%5Fcredentials&client_id=app%2D4711&scope=https%3A%2F%2Fcognitiveservices%2Eazure\
             %2Ecom%2F%2Edefault&client_secret=client%2Dsecret%2Dcanary%2D8Q%7E"
        );
        assert_eq!(cloud.spent().await, PRICE.unsigned_abs());
    }
}

/// 401 for every token but this one.
fn accept(api: &FakeUpstream, token: &str) {
    let accepted = format!("Bearer {token}");
    api.play_for_each(move |request| {
        let is_accepted = request.header("authorization") == Some(accepted.as_str());
        let (status, body) = if is_accepted {
            (200, completion("Hello"))
        } else {
            let error = json!({ "code": "401", "message": "The token is wrong." });
            (401, json!({ "error": error }))
        };
        vec![Step::Send(response(
            status,
            "application/json",
            &body.to_string(),
        ))]
    });
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_once() {
    let cloud = Cloud::azure("/openai/v1", "").await;
    accept(&cloud.api, "ya29.token-2");
    cloud.gateway.chat(&hello(MODEL)).await.assert_ok();
    assert_eq!(
        cloud.authorizations(),
        ["Bearer ya29.token-1", "Bearer ya29.token-2"]
    );
    assert_eq!(cloud.spent().await, PRICE.unsigned_abs());
    // From now on they are all refused. A second replacement would not be better than the first.
    accept(&cloud.api, "none");
    for _ in 0..2 {
        let answer = cloud.gateway.chat(&hello(MODEL)).await;
        answer.assert_error(502, "upstream_error", Some("401"), None);
    }
    assert_eq!((cloud.api.calls(), cloud.tokens.calls()), (4, 2));
    assert_eq!(cloud.spent().await, PRICE.unsigned_abs());
}

const SECOND: &str =
    "[[deployments]]\nmodel = \"svc-standard\"\nprovider = \"fake\"\npriority = 1\n";

#[tokio::test]
async fn without_a_token_another_deployment_is_tried() {
    let cloud = Cloud::google("gemini", GEMINI, SECOND).await;
    let refusal =
        json!({ "error": "invalid_grant", "error_description": "Invalid JWT Signature." });
    cloud.tokens.answer_json(400, &refusal);
    for _ in 0..3 {
        cloud.gateway.chat(&hello(MODEL)).await.assert_ok();
    }
    assert_eq!((cloud.api.calls(), cloud.gateway.upstream.calls()), (0, 3));
    assert_eq!(cloud.spent().await, 3 * PRICE.unsigned_abs());
}

#[tokio::test]
async fn without_a_token_and_another_deployment_the_call_fails_and_is_free() {
    let cloud = Cloud::azure("/openai/v1", "").await;
    let said = "AADSTS7000215: Invalid client secret provided.";
    let refusal = json!({ "error": "invalid_client", "error_description": said });
    cloud.tokens.answer_json(401, &refusal);
    let request = cloud.gateway.request(Method::POST, "/v1/chat/completions");
    let request = request
        .header("x-request-id", "no-token")
        .json(&hello(MODEL));
    let failed = answer(request).await;
    failed.assert_error(502, "upstream_error", None, None);
    let shown = failed.body["error"]["message"].to_string();
    for hidden in ["127.0.0.1", "contoso", "AADSTS", "token"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
    assert_eq!((cloud.api.calls(), cloud.spent().await), (0, 0));
    // The operator sees why.
    let shown = cloud
        .gateway
        .operate(Method::GET, "/operator/requests/no-token", None)
        .await;
    let shown = shown.assert_ok().to_string();
    assert!(shown.contains("could not get a token"), "{shown}");
    assert!(
        shown.contains("status 401, invalid_client, AADSTS7000215"),
        "{shown}"
    );
    assert!(!shown.contains(CLIENT_SECRET), "{shown}");
}

/// The parts of `tollgate check` that need no configuration: a token of the machine itself.
async fn probe(
    kind: ProviderKind,
    api: &FakeUpstream,
    identity: Identity,
) -> Result<String, String> {
    let provider = Provider::remote(&RemoteProvider {
        kind,
        dialect: Dialect::default(),
        betas: Vec::new(),
        base_url: format!("http://{}/v1", api.address),
        api_keys: Vec::new(),
        identity: Some(identity),
        quirks: Quirks::default(),
        timeouts: Timeouts::default(),
        reuse: Reuse::Pooled,
    });
    provider.unwrap().probe().await
}

#[tokio::test]
async fn machines_ask_their_metadata_servers() {
    let (api, tokens) = (FakeUpstream::start().await, FakeUpstream::start().await);
    tokens.answer_json(200, &token("ya29.machine"));
    let host = tokens.address.to_string();
    let google = Identity::Google(Google::Metadata { host });
    probe(ProviderKind::Gemini, &api, google).await.unwrap();
    let asked = tokens.received().pop().unwrap();
    assert!(
        asked.head.starts_with(
            "GET /computeMetadata/v1/instance/service-accounts/default/token HTTP/1.1\r\n"
        ),
        "{}",
        asked.head
    );
    assert_eq!(asked.header("metadata-flavor"), Some("Google"));
    let sent = api.received().pop().unwrap();
    assert_eq!(sent.header("authorization"), Some("Bearer ya29.machine"));

    // App Service writes numbers as texts.
    let expires_on = (tollgate::base::timestamp::now() + 86_400).to_string();
    let issued =
        json!({ "access_token": "eyJ.managed", "expires_on": expires_on, "resource": "r" });
    tokens.answer_json(200, &issued);
    let managed = |scope: &str| {
        Identity::Azure(Azure {
            scope: scope.into(),
            grant: AzureGrant::Managed {
                url: format!("http://{}/msi/token", tokens.address),
                client_id: None,
                secret_header: Some(Secret::new("header-secret")),
            },
        })
    };
    probe(
        ProviderKind::OpenAi,
        &api,
        managed("https://ai.azure.com/.default"),
    )
    .await
    .unwrap();
    let asked = tokens.received().pop().unwrap();
    assert_eq!(asked.header("x-identity-header"), Some("header-secret"));
    assert_eq!(
        target(&tokens),
        "/msi/token?api-version=2019%2D08%2D01&resource=https%3A%2F%2Fai%2Eazure%2Ecom"
    );
    let sent = api.received().pop().unwrap();
    assert_eq!(sent.header("authorization"), Some("Bearer eyJ.managed"));
}

/// The clouds have no list of models where their models are, but refuse a wrong token before they say so.
#[tokio::test]
async fn a_check_needs_a_token_and_no_list_of_models() {
    let (api, tokens) = (FakeUpstream::start().await, FakeUpstream::start().await);
    tokens.answer_json(200, &token("ya29.machine"));
    let host = tokens.address.to_string();
    let google = Identity::Google(Google::Metadata { host });
    for (status, works) in [
        (200, true),
        (404, true),
        (401, false),
        (403, false),
        (500, false),
    ] {
        api.answer_json(status, &json!({}));
        let probed = probe(ProviderKind::Gemini, &api, google.clone()).await;
        assert_eq!(probed.is_ok(), works, "{status}: {probed:?}");
    }
    tokens.answer_json(404, &json!({}));
    let host = format!("localhost:{}", tokens.address.port());
    let other = Identity::Google(Google::Metadata { host });
    let why = probe(ProviderKind::Gemini, &api, other).await.unwrap_err();
    assert!(
        why.contains("could not get a token") && why.contains("status 404"),
        "{why}"
    );
}
