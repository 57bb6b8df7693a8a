//! The chain tools with a scripted node. `tests/chain` uses a real one.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tollgate::{
    base::keys::Secret,
    config::{Chain, Tools},
    tools::{ToolOutcome, Toolbox},
};

use crate::support::{FakeUpstream, Step, upstream::response};

const ADDRESS: &str = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";

async fn start() -> (FakeUpstream, Toolbox) {
    let node = FakeUpstream::start().await;
    let chain = Chain {
        rpc_url: Secret::new(format!(
            "http://{}/v3/secret-key?k=secret-key",
            node.address
        )),
        symbol: "ETH".into(),
    };
    let config = Tools {
        chains: BTreeMap::from([("local".into(), chain)]),
        ..Tools::default()
    };
    (node, Toolbox::new(&config).unwrap())
}

#[tokio::test]
async fn requests_are_json_rpc_to_the_configured_url() {
    let (node, toolbox) = start().await;
    node.answer_json(
        200,
        &json!({ "jsonrpc": "2.0", "id": 1, "result": "0x14d1120d7b160000" }),
    );
    let arguments = json!({ "chain": "local", "address": ADDRESS }).to_string();
    let ran = toolbox.run("chain_balance", &arguments).await;
    let answer: Value = serde_json::from_str(&ran.text).unwrap();
    assert_eq!(answer["balance"], "1.5");
    let [asked] = &node.received()[..] else {
        panic!("one question");
    };
    let start = "POST /v3/secret-key?k=secret-key HTTP/1.1";
    assert!(asked.head.starts_with(start), "{}", asked.head);
    let question = json!({ "jsonrpc": "2.0", "id": 1, "method": "eth_getBalance",
        "params": [ADDRESS.to_lowercase(), "latest"] });
    assert_eq!(asked.body, question);
}

#[tokio::test]
async fn faults_are_reported_without_names() {
    let (node, toolbox) = start().await;
    let (elsewhere, _) = start().await;
    let json = "application/json";
    let moved = format!(
        "HTTP/1.1 307 X\r\nlocation: http://{}/\r\ncontent-length: 0\r\n\r\n",
        elsewhere.address
    );
    let refused = r#"{"error":{"code":-32005,"message":"no more for secret-key at 127.0.0.1"}}"#;
    let huge = format!(r#"{{"result":"0x{}"}}"#, "0".repeat(1 << 20));
    for (answer, words) in [
        (
            response(429, json, "{}"),
            "received too many requests (status 429); try again later",
        ),
        (
            response(401, json, "secret-key"),
            "refuses our key (status 401)",
        ),
        (response(502, json, "{}"), "fails with status 502"),
        (
            moved.into_bytes(),
            "redirects, which is not followed (status 307)",
        ),
        (
            response(200, json, refused),
            "refuses the call (code -32005)",
        ),
        (response(200, json, "<html>"), "sent an unexpected response"),
        (
            response(200, json, r#"{"result":null}"#),
            "sent an unexpected response",
        ),
        (
            response(200, json, r#"{"result":"lots"}"#),
            "sent an unexpected response",
        ),
        (response(200, json, "{}"), "sent an unexpected response"),
        (response(200, json, &huge), "sent more than 1 MiB"),
        (
            b"HTTP/1.1 200 X\r\ncontent-length: 9\r\n\r\n{".to_vec(),
            "cut its response short",
        ),
        (Vec::new(), "cut its response short"),
    ] {
        let mut steps = vec![Step::Send(answer)];
        if words.contains("cut its response") {
            steps.push(Step::Close);
        }
        node.play(steps);
        for (tool, arguments) in [
            ("chain_gas", json!({ "chain": "local" })),
            (
                "chain_balance",
                json!({ "chain": "local", "address": ADDRESS }),
            ),
            (
                "chain_balance",
                json!({ "chain": "local", "address": ADDRESS, "token": ADDRESS }),
            ),
        ] {
            let ran = toolbox.run(tool, &arguments.to_string()).await;
            let expected = format!("the node of the chain `local` {words}");
            assert_eq!(
                (ran.text.as_str(), ran.outcome),
                (expected.as_str(), ToolOutcome::Failed),
                "{tool}"
            );
        }
    }
    assert_eq!(elsewhere.calls(), 0, "no other server gets a request");
}

/// Older chains have no base fee, and their nodes do not support the method.
#[tokio::test]
async fn a_chain_without_base_fees_has_only_a_gas_price() {
    let (node, toolbox) = start().await;
    node.play_for_each(|asked| {
        let answer = match asked.body["method"].as_str().unwrap() {
            "eth_feeHistory" => json!({ "error": { "code": -32601, "message": "no such" } }),
            "eth_gasPrice" => json!({ "result": "0x4a817c801" }),
            _ => json!({ "result": "0x10" }),
        };
        vec![Step::Send(response(
            200,
            "application/json",
            &answer.to_string(),
        ))]
    });
    let ran = toolbox.run("chain_gas", r#"{"chain":"local"}"#).await;
    let expected = r#"{"chain":"local","block":"16","gas_price_gwei":"20.000000001"}"#;
    assert_eq!(
        (ran.text.as_str(), ran.outcome),
        (expected, ToolOutcome::Done)
    );
}
