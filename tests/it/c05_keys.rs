//! §5 and §3.1: API keys, from their creation, when they are shown once, to their revocation.

use std::{collections::BTreeSet, path::Path};

use reqwest::{Method, header::AUTHORIZATION};
use serde_json::json;

use crate::support::{
    Plan, TestGateway,
    gateway::{answer, hello},
    stores,
};

const MODEL: &str = "svc-native-fast";
const MISSING: &str = "missing_api_key";
const INVALID: &str = "invalid_api_key";
/// A well-formed key that no account has.
const UNKNOWN: &str = "sk-svc-000000000000000000000000000000000000000000000000";

fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

async fn set_state(gateway: &TestGateway, key_id: &str, action: &str) {
    let (method, path) = match action {
        "delete" => (Method::DELETE, format!("/operator/keys/{key_id}")),
        action => (Method::POST, format!("/operator/keys/{key_id}/{action}")),
    };
    gateway.operate(method, &path, None).await.assert_ok();
}

#[tokio::test]
async fn a_key_is_fifty_five_url_safe_characters_and_never_the_same() {
    let gateway = TestGateway::start().await;
    let mut seen = BTreeSet::new();
    for _ in 0..50 {
        let (_, key) = gateway.new_key(&gateway.account_id).await;
        assert_eq!(key.len(), 55, "{key}");
        let random = key.strip_prefix("sk-svc-").expect("the published prefix");
        let url_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(random.bytes().all(url_safe), "{key}");
        assert!(seen.insert(key), "every key is new");
    }
}

#[tokio::test]
async fn a_key_is_shown_once_and_then_only_its_first_twelve_characters() {
    let gateway = TestGateway::start().await;
    let path = format!("/operator/accounts/{}/keys", gateway.account_id);
    let body = Some(json!({ "name": "production" }));
    let made = gateway.operate(Method::POST, &path, body).await;
    let made = made.assert_ok();
    let key = made["key"].as_str().unwrap();
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["prefix"], key[..12]);
    assert_eq!(made["state"], "active");

    let listed = gateway.operate(Method::GET, &path, None).await;
    let listed = listed.assert_ok();
    let entry = listed["data"].as_array().unwrap();
    let entry = entry.iter().find(|entry| entry["id"] == id).unwrap();
    assert_eq!(entry["prefix"], key[..12]);
    assert_eq!(entry["name"], "production");
    assert_eq!(entry.get("key"), None, "the full key is not listed");

    for action in ["disable", "enable"] {
        let path = format!("/operator/keys/{id}/{action}");
        let shown = gateway.operate(Method::POST, &path, None).await;
        let shown = shown.assert_ok().to_string();
        assert!(!shown.contains(&key[12..]), "{action}: {shown}");
    }
    assert!(!listed.to_string().contains(&key[12..]));
}

#[tokio::test]
async fn the_store_holds_a_digest_and_not_the_key() {
    let gateway = TestGateway::start().await;
    let (key_id, key) = gateway.new_key(&gateway.account_id).await;
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let check = async |data: &Path, when: &str| {
        let bytes = stores::bytes(data).await;
        assert!(
            holds(&bytes, key_id.as_bytes()),
            "{when}: the key's record is there"
        );
        assert!(
            holds(&bytes, &key.as_bytes()[..12]),
            "{when}: and its prefix"
        );
        for length in [55, 48, 40, 24, 16] {
            let tail = &key.as_bytes()[55 - length..];
            assert!(
                !holds(&bytes, tail),
                "{when}: {length} characters of the key are stored"
            );
        }
    };
    check(gateway.data.path(), "while running").await;
    let data = gateway.stop().await;
    check(data.path(), "after a stop").await;
}

#[tokio::test]
async fn disabling_and_enabling_apply_from_the_very_next_request() {
    let gateway = TestGateway::start().await;
    let (key_id, key) = gateway.new_key(&gateway.account_id).await;
    for _ in 0..40 {
        gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
        set_state(&gateway, &key_id, "disable").await;
        gateway.chat_as(&key, &hello(MODEL)).await.assert_error(
            401,
            "authentication_error",
            Some(INVALID),
            None,
        );
        set_state(&gateway, &key_id, "enable").await;
    }
    assert_eq!(gateway.upstream.calls(), 40);
}

#[tokio::test]
async fn a_deleted_key_is_refused_at_once_and_never_comes_back() {
    let gateway = TestGateway::start().await;
    for round in 0..20 {
        let (key_id, key) = gateway.new_key(&gateway.account_id).await;
        gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
        if round % 2 == 1 {
            set_state(&gateway, &key_id, "disable").await; // §3.1: active or disabled
        }
        set_state(&gateway, &key_id, "delete").await;
        let refused = gateway.chat_as(&key, &hello(MODEL)).await;
        refused.assert_error(401, "authentication_error", Some(INVALID), None);
        for action in ["enable", "disable"] {
            let path = format!("/operator/keys/{key_id}/{action}");
            let revived = gateway.operate(Method::POST, &path, None).await;
            revived.assert_error(400, "invalid_request_error", Some("key_deleted"), None);
        }
        let refused = gateway.chat_as(&key, &hello(MODEL)).await;
        refused.assert_error(401, "authentication_error", Some(INVALID), None);
    }
    gateway.chat(&hello(MODEL)).await.assert_ok();
}

#[tokio::test]
async fn a_deleted_key_stays_listed_and_deleting_twice_is_harmless() {
    let gateway = TestGateway::start().await;
    let (key_id, _) = gateway.new_key(&gateway.account_id).await;
    for _ in 0..2 {
        set_state(&gateway, &key_id, "delete").await;
    }
    let path = format!("/operator/accounts/{}/keys", gateway.account_id);
    let keys = gateway.operate(Method::GET, &path, None).await;
    let keys = keys.assert_ok()["data"].as_array().unwrap();
    let key = keys.iter().find(|key| key["id"] == *key_id).unwrap();
    assert_eq!(key["state"], "deleted", "history is kept");
}

#[tokio::test]
async fn the_state_of_a_key_outlives_the_process() {
    let gateway = TestGateway::start().await;
    let mut keys = Vec::new();
    for action in ["enable", "disable", "delete"] {
        let (key_id, key) = gateway.new_key(&gateway.account_id).await;
        set_state(&gateway, &key_id, action).await;
        keys.push((action, key));
    }
    let gateway = TestGateway::start_in(gateway.stop().await, "").await;
    for (action, key) in keys {
        let answer = gateway.chat_as(&key, &hello(MODEL)).await;
        let expected = if action == "enable" { 200 } else { 401 };
        assert_eq!(answer.status, expected, "{action}: {}", answer.body);
    }
}

#[tokio::test]
async fn deleting_one_key_keeps_the_others() {
    let gateway = TestGateway::start().await;
    let (old_id, old) = gateway.new_key(&gateway.account_id).await;
    let (_, new) = gateway.new_key(&gateway.account_id).await;
    set_state(&gateway, &old_id, "delete").await;
    assert_eq!(gateway.chat_as(&old, &hello(MODEL)).await.status, 401);
    gateway.chat_as(&new, &hello(MODEL)).await.assert_ok();
}

/// `None` means that the header is accepted.
#[tokio::test]
async fn the_authorization_header_decides_between_missing_and_invalid() {
    let gateway = TestGateway::start().await;
    let (disabled_id, disabled) = gateway.new_key(&gateway.account_id).await;
    set_state(&gateway, &disabled_id, "disable").await;
    let (deleted_id, deleted) = gateway.new_key(&gateway.account_id).await;
    set_state(&gateway, &deleted_id, "delete").await;
    let key = gateway.key.clone();
    let bearer = |key: &str| vec![format!("Bearer {key}")];
    let cases: Vec<(&str, Vec<String>, Option<&str>)> = vec![
        ("no header", vec![], Some(MISSING)),
        ("an empty header", vec![String::new()], Some(MISSING)),
        ("the key alone", vec![key.clone()], Some(MISSING)),
        (
            "another scheme",
            vec!["Basic dTpw".to_owned()],
            Some(MISSING),
        ),
        (
            "another scheme with the key",
            vec![format!("Token {key}")],
            Some(MISSING),
        ),
        (
            "a scheme without a key",
            vec!["Bearer".to_owned()],
            Some(MISSING),
        ),
        (
            "a scheme and spaces",
            vec!["Bearer   ".to_owned()],
            Some(MISSING),
        ),
        ("another vendor's key", bearer("sk-abc"), Some(INVALID)),
        ("a key cut short", bearer(&key[..54]), Some(INVALID)),
        ("a key too long", bearer(&format!("{key}A")), Some(INVALID)),
        (
            "a key in capitals",
            bearer(&key.to_uppercase()),
            Some(INVALID),
        ),
        (
            "two keys in one",
            bearer(&format!("{key} {key}")),
            Some(INVALID),
        ),
        ("an unknown key", bearer(UNKNOWN), Some(INVALID)),
        ("a disabled key", bearer(&disabled), Some(INVALID)),
        ("a deleted key", bearer(&deleted), Some(INVALID)),
        (
            "two headers with the same key",
            [bearer(&key), bearer(&key)].concat(),
            Some(INVALID),
        ),
        (
            "a good header and a bad one",
            [bearer(&key), bearer(UNKNOWN)].concat(),
            Some(INVALID),
        ),
        ("the key", bearer(&key), None),
        ("a lower-case scheme", vec![format!("bearer {key}")], None),
    ];
    for (what, headers, refused) in cases {
        let url = gateway.url("/v1/chat/completions");
        let mut request = gateway.client.post(url).json(&hello(MODEL));
        for header in headers {
            request = request.header(AUTHORIZATION, header);
        }
        let answer = answer(request).await;
        match refused {
            None => {
                answer.assert_ok();
            }
            Some(code) => {
                let found = (answer.status, answer.error()["code"].as_str());
                assert_eq!(found, (401, Some(code)), "{what}");
                assert_eq!(answer.error()["type"], "authentication_error", "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_key_outside_of_its_header_is_ignored() {
    let gateway = TestGateway::start().await;
    let key = gateway.key.clone();
    let chat = |path: String| gateway.client.post(gateway.url(&path)).json(&hello(MODEL));
    for (what, request) in [
        (
            "api_key in the query",
            chat(format!("/v1/chat/completions?api_key={key}")),
        ),
        (
            "key in the query",
            chat(format!("/v1/chat/completions?key={key}")),
        ),
        (
            "Authorization in the query",
            chat(format!("/v1/chat/completions?Authorization=Bearer%20{key}")),
        ),
        (
            "x-api-key",
            chat("/v1/chat/completions".into()).header("x-api-key", &key),
        ),
        (
            "api-key",
            chat("/v1/chat/completions".into()).header("api-key", &key),
        ),
        (
            "a cookie",
            chat("/v1/chat/completions".into()).header("cookie", format!("key={key}")),
        ),
    ] {
        let answer = answer(request).await;
        let found = (answer.status, answer.error()["code"].as_str());
        assert_eq!(found, (401, Some(MISSING)), "{what}");
    }
    assert_eq!(gateway.upstream.calls(), 0);
}

#[tokio::test]
async fn unserved_routes_are_reported_only_to_callers_with_a_key() {
    let gateway = TestGateway::start().await;
    for path in ["/v1/embeddings", "/v1/nowhere", "/v1/", "/v1"] {
        let bare = || gateway.client.post(gateway.url(path)).body("{}");
        let unauthorized = "authentication_error";
        let anonymous = answer(bare()).await;
        anonymous.assert_error(401, unauthorized, Some(MISSING), None);
        let stranger = answer(bare().bearer_auth(UNKNOWN)).await;
        stranger.assert_error(401, unauthorized, Some(INVALID), None);
        let caller = answer(bare().bearer_auth(&gateway.key)).await;
        caller.assert_error(404, "not_found", Some("route_not_found"), None);
    }
}

#[tokio::test]
async fn a_bad_key_is_refused_before_the_body_is_read() {
    let gateway = TestGateway::start().await;
    for body in ["", "not JSON", r#"{"model":"no-such-model"}"#] {
        let url = gateway.url("/v1/chat/completions");
        let answer = answer(gateway.client.post(url).bearer_auth(UNKNOWN).body(body)).await;
        answer.assert_error(401, "authentication_error", Some(INVALID), None);
    }
}

#[tokio::test]
async fn a_key_has_its_accounts_current_plan() {
    let gateway = TestGateway::start().await;
    let (account_id, key) = gateway.account(Plan::FREE).await;
    let path = format!("/operator/accounts/{account_id}");
    for (tier, expected) in [("pro", 200), ("standard", 403), ("max", 200), ("free", 403)] {
        let change = Some(json!({ "tier": tier }));
        gateway
            .operate(Method::PATCH, &path, change)
            .await
            .assert_ok();
        let answer = gateway.chat_as(&key, &hello("svc-pro")).await;
        assert_eq!(answer.status, expected, "{tier}: {}", answer.body);
    }
}
