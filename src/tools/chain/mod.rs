//! JSON-RPC client for a node of an EVM chain.

use alloy_primitives::{Address, Bytes, U256};
use axum::http::{Method, Uri, header};
use http_body_util::Full;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

pub(crate) mod erc20;

use super::{
    address::evm::{self, Checksum},
    failure::Failure,
    web::{Fault, Web},
};
use crate::config;

pub(crate) struct Chain {
    pub name: String,
    /// Symbol of the chain's native coin.
    pub symbol: String,
    web: Web,
    /// Never shown, because it may contain a key.
    url: Uri,
}

/// Why a JSON-RPC call failed. The text is a predicate: the caller puts the name of the node before it.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum RpcFault {
    #[error("{0}")]
    Web(#[from] Fault),
    /// Only the node's error code is shown, because its message may reveal the operator of the node.
    #[error("refuses the call (code {0})")]
    Refused(i64),
    #[error("reports that the contract reverted")]
    Reverted,
}

impl RpcFault {
    /// Whether the called contract reverted.
    pub(crate) fn is_revert(self) -> bool {
        matches!(self, Self::Reverted)
    }
}

#[derive(Deserialize)]
struct RpcResponse {
    result: Option<Box<RawValue>>,
    error: Option<RpcError>,
}

#[derive(Deserialize)]
struct RpcError {
    code: i64,
    #[serde(default)]
    message: String,
}

impl RpcError {
    /// Whether the error is a revert. Some nodes have a code for reverts; others use one code for all errors and
    /// mention the revert in the message.
    fn is_revert(&self) -> bool {
        let in_message = || self.message.to_lowercase().contains("revert");
        matches!(self.code, 3 | -32_015) || (self.code == -32_000 && in_message())
    }
}

impl Chain {
    pub(crate) fn new(name: &str, config: &config::Chain, web: Web) -> Result<Self, String> {
        let url = config.rpc_url.reveal().parse();
        Ok(Self {
            name: name.to_owned(),
            symbol: config.symbol.clone(),
            web,
            url: url.map_err(|_| format!("the URL of the chain `{name}` cannot be read"))?,
        })
    }

    /// Sends one JSON-RPC call.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, RpcFault> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = Web::request(Method::POST, self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.to_string().into()))
            .expect("made of checked parts");
        let response: RpcResponse = self.web.fetch_json(request).await?;
        if let Some(error) = response.error {
            return Err(if error.is_revert() {
                RpcFault::Reverted
            } else {
                RpcFault::Refused(error.code)
            });
        }
        let result = response
            .result
            .as_ref()
            .map_or("null", |result| result.get());
        serde_json::from_str(result).map_err(|_| Fault::Unexpected.into())
    }

    /// Like [`Self::call`], with a fault turned into text for the model.
    pub(crate) async fn query<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, Failure> {
        let result = self.call(method, params).await;
        result.map_err(|fault| self.failure(fault))
    }

    /// Calls a contract with `eth_call`, which changes nothing on the chain.
    pub(crate) async fn read_contract(
        &self,
        contract: Address,
        input: Vec<u8>,
    ) -> Result<Bytes, RpcFault> {
        let call = json!({ "to": contract, "data": Bytes::from(input) });
        self.call("eth_call", json!([call, "latest"])).await
    }

    pub(crate) async fn block_number(&self) -> Result<U256, Failure> {
        self.query("eth_blockNumber", json!([])).await
    }

    /// Logs a fault and turns it into text for the model.
    pub(crate) fn failure(&self, fault: RpcFault) -> Failure {
        let name = &self.name;
        tracing::warn!(chain = name, reason = %fault, "built-in tool failed: the node of chain `{name}` {fault}");
        Failure::other(format!("the node of the chain `{name}` {fault}"))
    }

    /// Sends a request that costs nothing; returns what is wrong, if anything.
    pub(crate) async fn probe(&self) -> Result<String, String> {
        let id: Result<U256, _> = self.call("eth_chainId", json!([])).await;
        match id {
            Ok(id) => Ok(format!("answers, and is chain {id}")),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

/// Parses an address argument. A wrong checksum is refused, because the address is likely mistyped.
pub(crate) fn address(field: &str, text: &str) -> Result<Address, Failure> {
    let wrong = |reason: &str| Failure::arguments(format!("`{field}` is no EVM address: {reason}"));
    let read = evm::read(text.trim()).map_err(|reason| wrong(&reason))?;
    if read.checksum == Checksum::Wrong {
        return Err(wrong(
            "its EIP-55 checksum is wrong, so a character may be mistyped",
        ));
    }
    Ok(read.bytes)
}
