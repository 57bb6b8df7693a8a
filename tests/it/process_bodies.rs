//! Memory of the process under large and half-sent bodies.

use serde_json::Value;

use crate::support::{FakeUpstream, RawConnection, Serving, gateway::hello};

const MODEL: &str = "svc-native-fast";
const MEGABYTE: usize = 1 << 20;

async fn serving(upstream: &FakeUpstream, settings: &[(&str, &str)]) -> Serving {
    let provider = format!(
        "kind = \"openai\"\nbase_url = \"http://{}/v1\"",
        upstream.address
    );
    let serving = Serving::start_with(1, &provider, settings).await;
    // The first request allocates everything that is allocated once.
    let first = serving.chat(&hello(MODEL)).send().await.unwrap();
    assert_eq!(first.status(), 200);
    serving
}

#[tokio::test]
async fn forty_half_sent_bodies_take_no_more_memory_than_the_setting() {
    let upstream = FakeUpstream::start().await;
    let settings = [
        ("TOLLGATE__SERVER__MAX_BODY_BYTES", "8388608"),
        ("TOLLGATE__SERVER__BODY_MEMORY_BYTES", "33554432"),
        ("TOLLGATE__SERVER__BODY_MEMORY_SHARE_PERCENT", "100"),
    ];
    let serving = serving(&upstream, &settings).await;
    let before = serving.process.memory();
    let mut connections = Vec::new();
    let part = "x".repeat(6 * MEGABYTE);
    for _ in 0..40 {
        let mut connection = RawConnection::open(serving.public).await;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {}\r\n\
             content-length: 8388608\r\n\r\n",
            serving.key
        );
        connection.send(head).await;
        // Refused ones are drained, so all of it is accepted.
        connection.send(&part).await;
        connections.push(connection);
    }
    let growth = serving.process.most_memory().saturating_sub(before);
    // Besides the bodies, every connection has a buffer of up to 128 KiB.
    assert!(growth < (32 + 12) * MEGABYTE, "{growth} bytes");
    let served = serving.chat(&hello(MODEL)).send().await.unwrap();
    assert_eq!(served.status(), 200);
}

#[tokio::test]
async fn refused_bodies_of_millions_of_values_take_little_more_than_their_bytes() {
    let upstream = FakeUpstream::start().await;
    let serving = serving(&upstream, &[]).await;
    let bytes = 6 * MEGABYTE;
    let filled = |begin: &str, entry: &str, end: &str| {
        format!("{begin}{}{end}", entry.repeat(bytes / entry.len()))
    };
    let message = r#""messages":[{"role":"user","content":"#;
    let before = serving.process.most_memory();
    for (field, body) in [
        (
            "stop",
            filled(
                &format!(r#"{{"model":"{MODEL}",{message}"Hi"}}],"stop":["#),
                r#""x","#,
                r#""x"]}"#,
            ),
        ),
        (
            "logit_bias",
            filled(
                &format!(r#"{{"model":"{MODEL}",{message}"Hi"}}],"logit_bias":{{"#),
                r#""1":1,"#,
                r#""x":1}}"#,
            ),
        ),
        (
            "messages",
            filled(
                &format!(r#"{{"model":"{MODEL}",{message}["#),
                "{},",
                "{}]}]}",
            ),
        ),
    ] {
        let url = format!("http://{}/v1/chat/completions", serving.public);
        let request = serving.client.post(url).bearer_auth(&serving.key);
        let refused = request.body(body).send().await.unwrap();
        assert_eq!(refused.status(), 400, "{field}");
        let error: Value = refused.json().await.unwrap();
        assert_eq!(error["error"]["param"], field);
        let growth = serving.process.most_memory() - before;
        assert!(growth < 5 * bytes, "{field}: {growth} bytes");
    }
}
