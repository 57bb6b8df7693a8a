//! Messages: what they say first, how long they are, and when to try again.

use super::*;
use crate::{
    base::{
        money::NanoUsd,
        rate::{Ceilings, Limit, WindowOf},
    },
    catalog::Tier,
    wire::error::{Unpaid, UpstreamError},
};

fn rate_limited(limit: Limit, wait_ms: Option<u64>) -> GatewayError {
    GatewayError::RateLimited(Refusal {
        of: WindowOf::Account,
        limit,
        ceilings: Ceilings {
            requests: 60,
            tokens: 100_000,
        },
        requests_left: 0,
        tokens_left: 0,
        wait_ms,
    })
}

fn unpaid(is_temporary: bool) -> Unpaid {
    let amount = NanoUsd::new(4_200_000);
    Unpaid {
        balance: amount,
        needed: amount,
        available: amount,
        held: amount,
        max_tokens_that_fit: None,
        is_temporary,
        billing_url: "https://llm.example.com/portal/billing".into(),
    }
}

/// Asserts that the message begins with a request, and that the body is short.
#[track_caller]
fn assert_says_what_to_do(error: &GatewayError) {
    const VERBS: [&str; 9] = [
        "Change", "Check", "Open", "Retry", "Send", "Shorten", "Top", "Upgrade", "Use",
    ];
    let message = error.to_string();
    let first = message.split_whitespace().next();
    assert!(first.is_some_and(|word| VERBS.contains(&word)), "{message}");
    let bytes = error.envelope().to_json().len();
    assert!(bytes < 1_000, "{bytes} bytes: {message}");
}

/// Coding agents show these messages to a person.
#[test]
fn a_refusal_says_first_what_to_do() {
    let (model, id) = ("svc-pro".to_owned(), "resp_1".to_owned());
    for error in [
        GatewayError::MissingKey,
        GatewayError::InvalidKey,
        GatewayError::NoAccount {
            balance: NanoUsd::new(0),
            billing_url: "https://llm.example.com/portal/billing".into(),
        },
        GatewayError::InsufficientCredits(unpaid(false).into()),
        GatewayError::InsufficientCredits(unpaid(true).into()),
        GatewayError::CreditsExpired {
            unpaid: unpaid(false).into(),
            expired_at: "2026-01-01T00:00:00Z".into(),
        },
        GatewayError::CreditUnavailable,
        GatewayError::TierUpgradeRequired {
            model: model.clone(),
            current: Tier::Free,
            required: Tier::Pro,
            upgrade_url: "https://llm.example.com/portal/plan".into(),
        },
        GatewayError::WebSocketNotServed,
        GatewayError::ModelNotFound {
            model: model.clone(),
        },
        GatewayError::PreviousResponseNotFound { id },
        GatewayError::ContextLengthExceeded {
            model,
            input: 9,
            output: 0,
            most: 8,
        },
        GatewayError::StorageUnavailable,
        GatewayError::Overloaded,
        GatewayError::RateLimitUnavailable,
        GatewayError::BodyMemoryExhausted,
        GatewayError::AdmissionLost,
        GatewayError::ShuttingDown,
        GatewayError::BodyTooLarge { limit: 1 },
        GatewayError::BodyTooSlow,
    ] {
        assert_says_what_to_do(&error);
    }
}

#[test]
fn a_429_has_a_time_to_wait_unless_waiting_does_not_help() {
    for (error, seconds) in [
        (rate_limited(Limit::Requests, Some(1)), Some(1)),
        (rate_limited(Limit::Requests, Some(1_001)), Some(2)),
        (rate_limited(Limit::Tokens, Some(0)), Some(1)),
        (rate_limited(Limit::Tokens, Some(600_000)), Some(60)),
        (GatewayError::TooManyAbandoned { limit: 1 }, Some(5)),
        (
            GatewayError::TooManyRefused {
                whose: "account",
                seconds: 7,
            },
            Some(7),
        ),
        (GatewayError::TooManyCounts { seconds: 7 }, Some(7)),
    ] {
        assert_says_what_to_do(&error);
        assert_eq!(error.envelope().status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(error.retry_after(), seconds, "{error}");
    }
    let never = rate_limited(Limit::Tokens, None);
    assert_eq!(never.retry_after(), None);
    assert_eq!(never.should_retry(), Some(false));
    assert!(never.to_string().starts_with("Lower max_tokens"), "{never}");
}

/// The cause alone does not tell a person how to go on.
#[test]
fn a_failure_says_first_what_to_do() {
    let status = |status, reason: Option<&str>| UpstreamError::Status {
        status,
        reason: reason.map(str::to_owned),
        retry_after: None,
        about_us: false,
    };
    let time = Duration::from_secs(1);
    for error in [
        UpstreamError::Connect("refused".into()),
        UpstreamError::FirstByte(time),
        UpstreamError::Idle(time),
        UpstreamError::TooLong(time),
        status(400, Some("messages.1: all is wrong")),
        status(400, None),
        status(401, None),
        status(429, None),
        status(500, None),
        UpstreamError::Broken("cut".into()),
        UpstreamError::Malformed("no JSON".into()),
        UpstreamError::TooLarge(1),
        UpstreamError::Empty,
        UpstreamError::NotJson,
        UpstreamError::Reported("type x, code y".into()),
    ] {
        assert_says_what_to_do(&GatewayError::Upstream(error));
    }
    // As of a base URL without `/v1`.
    assert_says_what_to_do(&GatewayError::RouteNotFound {
        method: "POST".into(),
        path: "/responses".into(),
    });
}

#[test]
fn an_error_quotes_no_more_than_the_start_of_a_long_value() {
    let model = "ü".repeat(1 << 20);
    let envelope = GatewayError::ModelNotFound { model }.envelope();
    let start = "Use a model that GET /v1/models lists: `üü";
    assert!(envelope.message.starts_with(start));
    assert!(envelope.message.ends_with('…'));
    assert!(envelope.message.len() <= MAX_MESSAGE_BYTES);
    let param = GatewayError::invalid("x".repeat(1_000), "short").envelope();
    assert_eq!(param.message, "short");
    assert_eq!(param.param.map(|param| param.len()), Some(MAX_PARAM_BYTES));
    assert_eq!(cut("exact".into(), 5), "exact");
    assert_eq!(cut("\"\u{1}".into(), 8), "\"\u{1}");
    assert_eq!(cut("\"\u{1}".into(), 7), "\"…");
    for text in ["\u{1}", "\"", "x", "ü"] {
        let long = text.repeat(5_000);
        let body = GatewayError::invalid(long.clone(), long).envelope();
        assert!(body.to_json().len() < 1_000, "{text:?}");
        let url = format!(
            "https://llm.example.com/portal/requests/{}",
            "i".repeat(256)
        );
        let body = body.with_request_url(Some(url.clone()));
        assert!(body.to_json().len() < 1_000, "{text:?}");
        assert!(!body.message.is_empty() && body.to_json().contains(&url));
    }
}
