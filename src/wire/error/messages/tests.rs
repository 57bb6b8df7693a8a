//! Every failure with what a client acts on: status, type, code and headers.

use http_body_util::BodyExt as _;

use super::*;
use crate::{
    base::{
        money::NanoUsd,
        rate::{Ceilings, WindowOf},
    },
    catalog::Tier,
    wire::error::{REASONS, Unpaid},
};

const BILLING: &str = "https://gateway.example/portal/billing";

/// Status, type, code, `retry-after` and `x-should-retry` of the response, with `-` for what it does not have.
async fn seen(error: &GatewayError) -> String {
    let reason = error.envelope().reason().to_owned();
    assert!(REASONS.contains(&&*reason), "{reason} is not listed");
    let (head, body) = error.messages_response("req_1", None).into_parts();
    let header = |name: &str| {
        let value = head.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or("-").to_owned()
    };
    assert_eq!(header("content-type"), "application/json");
    let body = body.collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let envelope = (&body["type"], &body["request_id"]);
    assert_eq!(envelope, (&json!("error"), &json!("req_1")));
    let error = &body["error"];
    assert!(error["message"].is_string(), "{error}");
    let (kind, code) = (&error["type"], &error["details"]["error_code"]);
    let (kind, code) = (kind.as_str().unwrap(), code.as_str().unwrap_or("-"));
    let (wait, retry) = (header("retry-after"), header("x-should-retry"));
    format!("{} {kind} {code} {wait} {retry}", head.status.as_u16())
}

async fn assert_seen(table: impl IntoIterator<Item = (GatewayError, &'static str)>) {
    for (error, expected) in table {
        assert_eq!(seen(&error).await, expected, "{error:?}");
    }
}

fn unpaid(is_temporary: bool) -> Unpaid {
    let zero = NanoUsd::new(0);
    Unpaid {
        balance: zero,
        needed: NanoUsd::new(5),
        available: zero,
        held: zero,
        max_tokens_that_fit: None,
        is_temporary,
        billing_url: BILLING.into(),
    }
}

fn no_account() -> GatewayError {
    GatewayError::NoAccount {
        balance: NanoUsd::new(0),
        billing_url: BILLING.into(),
    }
}

fn expired() -> GatewayError {
    GatewayError::CreditsExpired {
        unpaid: unpaid(false).into(),
        expired_at: "2026-01-01T00:00:00Z".into(),
    }
}

fn limited(limit: Limit, wait_ms: Option<u64>) -> GatewayError {
    GatewayError::RateLimited(Refusal {
        of: WindowOf::Account,
        limit,
        ceilings: Ceilings {
            requests: 1,
            tokens: 10,
        },
        requests_left: 0,
        tokens_left: 4,
        wait_ms,
    })
}

fn status(status: u16, about_us: bool) -> GatewayError {
    GatewayError::Upstream(UpstreamError::Status {
        status,
        reason: None,
        retry_after: None,
        about_us,
    })
}

#[tokio::test]
async fn requests_that_are_wrong() {
    use GatewayError as E;
    assert_seen([
        (E::invalid("a", "a: no"), "400 invalid_request_error - - -"),
        (
            E::MalformedHead { reason: "no" },
            "400 invalid_request_error - - -",
        ),
        (
            E::ThreadUnsupported,
            "400 invalid_request_error thread_unsupported_request - -",
        ),
        (E::BodyTooLarge { limit: 1 }, "413 request_too_large - - -"),
        (
            E::HeadersTooLarge { limit: 1 },
            "431 invalid_request_error - - -",
        ),
        (
            E::TooManyHeaders { limit: 1 },
            "431 invalid_request_error - - -",
        ),
        (E::HeadTooSlow, "408 timeout_error - - -"),
        (E::BodyTooSlow, "408 timeout_error - - -"),
        (
            E::ModelNotFound { model: "m".into() },
            "404 not_found_error model_not_found - -",
        ),
        (
            E::RouteNotFound {
                method: "GET".into(),
                path: "/v1/x".into(),
            },
            "404 not_found_error route_not_found - -",
        ),
    ])
    .await;
}

#[tokio::test]
async fn accounts_that_may_not() {
    use GatewayError as E;
    let above_the_plan = E::TierUpgradeRequired {
        model: "m".into(),
        current: Tier::Free,
        required: Tier::Pro,
        upgrade_url: "https://gateway.example/portal/plan".into(),
    };
    assert_seen([
        (
            E::MissingKey,
            "401 authentication_error missing_api_key - false",
        ),
        (
            E::InvalidKey,
            "401 authentication_error invalid_api_key - false",
        ),
        (no_account(), "402 billing_error no_account - false"),
        (
            E::InsufficientCredits(unpaid(false).into()),
            "402 billing_error insufficient_credits - false",
        ),
        (
            E::InsufficientCredits(unpaid(true).into()),
            "402 billing_error insufficient_credits 1 true",
        ),
        (expired(), "402 billing_error credits_expired - false"),
        (
            above_the_plan,
            "403 permission_error tier_upgrade_required - -",
        ),
        (
            limited(Limit::Requests, Some(61_500)),
            "429 rate_limit_error rpm_exceeded 60 -",
        ),
        (
            limited(Limit::Tokens, Some(1)),
            "429 rate_limit_error tpm_exceeded 1 -",
        ),
        (
            limited(Limit::Tokens, None),
            "429 rate_limit_error tpm_exceeded - false",
        ),
        (
            E::TooManyAbandoned { limit: 1 },
            "429 rate_limit_error abandoned_exceeded 5 -",
        ),
        (
            E::TooManyRefused {
                whose: "account",
                seconds: 7,
            },
            "429 rate_limit_error refusals_exceeded 7 -",
        ),
        (
            E::TooManyCounts { seconds: 3 },
            "429 rate_limit_error counts_exceeded 3 -",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_gateway_that_cannot() {
    use GatewayError as E;
    assert_seen([
        (E::Overloaded, "503 api_error overloaded 1 true"),
        (E::ShuttingDown, "503 api_error stopping 1 -"),
        (
            E::RateLimitUnavailable,
            "503 api_error rate_limit_unavailable 1 -",
        ),
        (
            E::CreditUnavailable,
            "503 api_error credit_reservation_unavailable 1 -",
        ),
        (
            E::AdmissionLost,
            "503 api_error admission_state_unavailable 1 -",
        ),
        (
            E::BodyMemoryExhausted,
            "503 api_error body_memory_exhausted 1 -",
        ),
        (
            E::Gateway { reason: "no" },
            "500 api_error gateway_error - -",
        ),
        (E::Internal, "500 api_error internal_error - -"),
    ])
    .await;
}

#[tokio::test]
async fn providers_that_fail() {
    let verbatim = UpstreamError::Verbatim {
        status: 413,
        message: "too large".into(),
    };
    let refused = "400 invalid_request_error upstream_error - false";
    let overloaded = "529 overloaded_error upstream_error - -";
    assert_seen([
        (status(400, false), refused),
        (status(413, false), refused),
        (status(422, false), refused),
        (verbatim.into(), refused),
        (status(429, false), overloaded),
        (status(503, false), overloaded),
        (status(529, false), overloaded),
        // The provider refuses the operator's key or account: another deployment may serve the request.
        (status(400, true), "502 api_error upstream_error - true"),
        (status(401, false), "502 api_error upstream_error - true"),
        (status(418, false), "502 api_error upstream_error - false"),
        (status(500, false), "502 api_error upstream_error - -"),
        (
            UpstreamError::Connect("no".into()).into(),
            "502 api_error upstream_error - -",
        ),
        (
            UpstreamError::FirstByte(Duration::from_secs(1)).into(),
            "502 api_error upstream_error - -",
        ),
    ])
    .await;
}

/// Some clients show the message alone, and replace one that says the balance is too low by words of their own.
#[test]
fn an_unpaid_request_names_the_billing_page() {
    let short = GatewayError::InsufficientCredits(unpaid(false).into());
    let later = GatewayError::InsufficientCredits(unpaid(true).into());
    for error in [short, later, no_account(), expired()] {
        let text = error.messages_text();
        assert!(text.ends_with(BILLING), "{text}");
        assert!(!text.to_lowercase().contains("credit balance is too low"));
        let details = error.details(None);
        assert_eq!(details["billing_url"], BILLING);
        assert!(details.contains_key("balance"), "{details:?}");
    }
}
