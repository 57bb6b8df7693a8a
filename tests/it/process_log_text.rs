//! Caller-supplied text in the log: one line each, machine-readable, and never a key.

use serde_json::Value;

use crate::support::{RawConnection, Serving, gateway::hello, raw::chat_request, serving::TOKEN};

const MODEL: &str = "svc-native-fast";

/// Request IDs that a header can carry, and their form in the log.
fn ids(key: &str) -> Vec<(Vec<u8>, String)> {
    let long = "i".repeat(8 << 10);
    let same = |id: &str| (id.as_bytes().to_vec(), id.to_owned());
    vec![
        same("plain-1"),
        same(r#""},"level":"ERROR","x":{"y":""#),
        same(r"back\slash \n \u0000 %0a %1b[31m"),
        same("a\tb"),
        same("\u{2028}\u{2029}\u{85}\u{9b}31m\u{202e}😀"),
        (
            b"gr\xfc\xdf-\xff".to_vec(),
            "gr\u{fffd}\u{fffd}-\u{fffd}".into(),
        ),
        (long.clone().into_bytes(), long[..128].to_owned()),
        (format!("task {key} x").into_bytes(), "task ".to_owned()),
    ]
}

/// Repeats an ID on every call: it is a label and never makes a call free.
#[tokio::test]
async fn any_request_id_is_echoed_logged_as_text_and_charged_again_each_time() {
    let serving = Serving::start_with(1, "kind = \"simulator\"", &[("RUST_LOG", "debug")]).await;
    let mut connection = RawConnection::open(serving.public).await;
    let ids = ids(&serving.key);
    for (id, _) in &ids {
        for _ in 0..2 {
            let request = chat_request(&serving.key, "x-request-id: @\r\n", &hello(MODEL));
            let (before, after) = request.split_once('@').unwrap();
            connection
                .send([before.as_bytes(), id, after.as_bytes()].concat())
                .await;
            let reply = connection.answer().await;
            reply.assert_ok();
            assert_eq!(reply.headers["x-request-id"].as_bytes(), id);
        }
    }
    let (_, charges) = serving.ledger_view().await;
    assert_eq!(charges, 2 * ids.len());
    let (key, ended) = (serving.key, serving.process.terminated().await);
    let chats = |line: &Value| line["path"] == "/v1/chat/completions";
    let lines = ended.stderr.lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect(line));
    let logged: Vec<_> = lines.filter(chats).collect();
    assert_eq!(logged.len(), 2 * ids.len(), "a line each");
    let expected = ids.iter().flat_map(|(_, id)| [id, id]);
    for (line, id) in logged.iter().zip(expected) {
        assert_eq!(line["request_id"], **id);
    }
    assert!(!ended.stderr.contains(&key), "no key in the log");
}

/// IDs that a header cannot carry are refused by the HTTP parser and not logged.
#[tokio::test]
async fn an_id_with_control_characters_is_refused_and_not_logged() {
    let serving = Serving::start_with(1, "kind = \"simulator\"", &[("RUST_LOG", "debug")]).await;
    for id in ["\u{1b}[2Jcanary", "a\0canary", "a\u{7f}canary"] {
        let mut connection = RawConnection::open(serving.public).await;
        let headers = format!("x-request-id: {id}\r\n");
        connection
            .send(chat_request(&serving.key, &headers, &hello(MODEL)))
            .await;
        connection.until("HTTP/1.1 400", 1).await;
    }
    assert_eq!(serving.ledger_view().await, ("100.000000".to_owned(), 0));
    let ended = serving.process.terminated().await;
    assert!(!ended.stderr.contains("canary"), "{}", ended.stderr);
    assert!(!ended.stderr.contains('\u{1b}'), "{}", ended.stderr);
}

/// Any token is a method. A long one is cut, and so is one with a key in it; in errors too.
#[tokio::test]
async fn a_method_is_cut_in_the_log_and_in_errors() {
    let serving = Serving::start_with(1, "kind = \"simulator\"", &[("RUST_LOG", "debug")]).await;
    let key = serving.key.clone();
    let methods = [
        ("M".repeat(60_000), "M".repeat(128)),
        (format!("GET-{key}"), "GET-".into()),
    ];
    for (listener, path, token) in [
        (serving.public, "/v1/nope", key.as_str()),
        (serving.operator, "/operator/nope", TOKEN),
    ] {
        for (method, cut) in &methods {
            let mut connection = RawConnection::open(listener).await;
            let head = format!(
                "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\r\n"
            );
            connection.send(head).await;
            let refused = connection.answer().await;
            refused.assert_error(404, "not_found", Some("route_not_found"), None);
            let message = refused.error()["message"].as_str().unwrap();
            assert!(
                message.contains(&format!("here is no `{cut} {path}`")),
                "{message}"
            );
        }
    }
    let ended = serving.process.terminated().await;
    let lines = ended.stderr.lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect(line));
    let logged: Vec<_> = lines.filter(|line| line["status"] == 404).collect();
    let mut logged: Vec<_> = logged.iter().map(|line| line["method"].as_str()).collect();
    logged.sort_unstable(); // each connection logs on its own
    let [long, with_key] = methods.each_ref().map(|(_, cut)| Some(cut.as_str()));
    assert_eq!(logged, [with_key, with_key, long, long]);
    // No line of the log has more of it; with debug messages, the store's own lines may be long.
    assert!(!ended.stderr.contains(&"M".repeat(129)));
    assert!(!ended.stderr.contains(&key), "no key in the log");
}

/// A key in the wrong place is not used as a key, and is not logged either.
#[tokio::test]
async fn a_key_in_the_wrong_place_is_refused_and_not_logged() {
    let serving = Serving::start_with(1, "kind = \"simulator\"", &[("RUST_LOG", "debug")]).await;
    let key = serving.key.clone();
    let url = format!("http://{}/v1/chat/completions", serving.public);
    let chat = |url: &str| serving.client.post(url).json(&hello(MODEL));
    let requests = [
        chat(&format!("{url}?api_key={key}")),
        chat(&format!("{url}?Authorization=Bearer%20{key}")),
        chat(&format!("{url}/{key}")),
        chat(&url).bearer_auth(&key).bearer_auth(&key),
        chat(&url).header("authorization", &key),
        chat(&url).header("authorization", format!("Basic {key}")),
        chat(&url).header("authorization", format!("Bearer {key} {key}")),
        chat(&url).header("x-api-key", &key),
        chat(&url).header("cookie", format!("key={key}")),
    ];
    for request in requests {
        assert_eq!(request.send().await.unwrap().status(), 401);
    }
    assert_eq!(serving.ledger_view().await, ("100.000000".to_owned(), 0));
    let ended = serving.process.terminated().await;
    assert!(ended.stderr.contains("\"status\":401"), "they are logged");
    let secret = &key["sk-svc-".len()..];
    let found = ended.stderr.lines().find(|line| line.contains(secret));
    assert_eq!(found, None, "and the key is not");
}

#[tokio::test]
async fn an_unreadable_rust_log_is_ignored_with_a_warning() {
    let environment = [("RUST_LOG", "tollgate=nonsense")];
    let serving = Serving::start_with(1, "kind = \"simulator\"", &environment).await;
    let ended = serving.process.terminated().await;
    let warning = ended.stderr.lines().find(|it| it.contains("RUST_LOG"));
    assert!(warning.unwrap().contains("WARN"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("INFO"),
        "the configured level applies"
    );
}
