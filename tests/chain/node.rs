//! Direct access to the node, and a toolbox that uses it.

use std::{collections::BTreeMap, time::Duration};

use alloy_primitives::{Address, U256, hex, utils::format_ether};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};
use tollgate::{
    base::keys::Secret,
    config::{Chain, Tools},
    tools::{ToolOutcome, ToolResult, Toolbox},
};

pub const ETHER: U256 = U256::from_limbs([1_000_000_000_000_000_000, 0, 0, 0]);

pub struct Node {
    pub toolbox: Toolbox,
    /// A funded account, for which the node signs.
    pub rich: Address,
    url: String,
    client: reqwest::Client,
    _alone: MutexGuard<'static, ()>,
}

/// There is one chain, and every test sees the blocks of the others.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

impl Node {
    /// Connects to the node and waits until no other test uses it.
    pub async fn alone() -> Self {
        let alone = ONE_AT_A_TIME.lock().await;
        let url = std::env::var("TOLLGATE_CHAIN_URL").expect("tests/chain/run sets it");
        let chain = Chain {
            rpc_url: Secret::new(url.as_str()),
            symbol: "TST".into(),
        };
        let config = Tools {
            timeout: Duration::from_mins(1),
            chains: BTreeMap::from([("local".into(), chain)]),
            ..Tools::default()
        };
        let mut node = Self {
            toolbox: Toolbox::new(&config).unwrap(),
            rich: Address::ZERO,
            url,
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            _alone: alone,
        };
        let accounts: Vec<Address> = node.rpc("eth_accounts", json!([])).await;
        node.rich = accounts[0];
        node
    }

    pub async fn rpc<T: DeserializeOwned>(&self, method: &str, params: Value) -> T {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let answer = self
            .client
            .post(&self.url)
            .json(&body)
            .send()
            .await
            .unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert!(answer.get("error").is_none(), "{method} {params}: {answer}");
        serde_json::from_value(answer["result"].clone()).unwrap()
    }

    /// Submits a transaction; returns its hash.
    pub async fn send_only(&self, transaction: Value) -> String {
        self.rpc("eth_sendTransaction", json!([transaction])).await
    }

    /// Submits a transaction and waits until it is in a block.
    pub async fn send(&self, transaction: Value) -> String {
        let hash = self.send_only(transaction).await;
        self.receipt(&hash).await;
        hash
    }

    pub async fn deploy(&self, init_code: Vec<u8>) -> Address {
        let data = hex::encode_prefixed(init_code);
        let hash = self.send(json!({ "from": self.rich, "data": data })).await;
        let receipt = self.receipt(&hash).await;
        serde_json::from_value(receipt["contractAddress"].clone()).unwrap()
    }

    pub async fn set_code(&self, at: Address, code: &[u8]) {
        let code = hex::encode_prefixed(code);
        let _: Value = self.rpc("anvil_setCode", json!([at, code])).await;
    }

    pub async fn run(&self, tool: &str, arguments: Value) -> ToolResult {
        self.toolbox.run(tool, &arguments.to_string()).await
    }

    pub async fn done(&self, tool: &str, arguments: Value) -> Value {
        let ran = self.run(tool, arguments).await;
        assert_eq!(ran.outcome, ToolOutcome::Done, "{}", ran.text);
        serde_json::from_str(&ran.text).unwrap()
    }

    async fn receipt(&self, hash: &str) -> Value {
        loop {
            let receipt: Value = self.rpc("eth_getTransactionReceipt", json!([hash])).await;
            if !receipt.is_null() {
                return receipt;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A random, unused address.
pub fn anyone() -> Address {
    Address::new(rand::random())
}

/// Wei as coins, computed independently: alloy writes 18 decimals, and the tools trim trailing zeros.
pub fn decimal(wei: U256) -> String {
    let text = format_ether(wei);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
