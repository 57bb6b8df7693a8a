//! A node of an EVM chain, asked over JSON-RPC.

use alloy_primitives::{Address, Bytes, U256};
use axum::http::{Method, Uri, header};
use http_body_util::Full;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json, value::RawValue};

pub mod erc20;

use super::{
    address::evm::{self, Checksum},
    failure::Failure,
    web::{Fault, Web},
};
use crate::config;

pub struct Chain {
    pub name: String,
    /// What its native coin is called.
    pub symbol: String,
    web: Web,
    /// It may hold a key, so it is never shown.
    url: Uri,
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum RpcFault {
    #[error("{0}")]
    Web(#[from] Fault),
    /// The node's own words may tell who runs it; its code does not.
    #[error("refuses the call (code {0})")]
    Refused(i64),
    #[error("says that the contract broke off")]
    Reverted,
}

impl RpcFault {
    /// Whether a contract was asked and broke off.
    pub fn is_revert(self) -> bool {
        matches!(self, Self::Reverted)
    }
}

#[derive(Deserialize)]
struct Reply {
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
    /// Some nodes have a code for a contract that broke off; others have one for everything, and
    /// tell it in words.
    fn is_revert(&self) -> bool {
        let says_so = || self.message.to_lowercase().contains("revert");
        matches!(self.code, 3 | -32_015) || (self.code == -32_000 && says_so())
    }
}

impl Chain {
    pub fn new(name: &str, config: &config::Chain, web: Web) -> Result<Self, String> {
        let url = config.rpc_url.reveal().parse();
        Ok(Self {
            name: name.to_owned(),
            symbol: config.symbol.clone(),
            web,
            url: url.map_err(|_| format!("the URL of the chain `{name}` cannot be read"))?,
        })
    }

    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, RpcFault> {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = Web::request(Method::POST, self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.to_string().into()))
            .expect("made of checked parts");
        let reply: Reply = self.web.ask(request).await?;
        if let Some(error) = reply.error {
            return Err(if error.is_revert() {
                RpcFault::Reverted
            } else {
                RpcFault::Refused(error.code)
            });
        }
        let result = reply.result.as_ref().map_or("null", |result| result.get());
        serde_json::from_str(result).map_err(|_| Fault::NotAsExpected.into())
    }

    /// Like [`Self::call`], in words for the model.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        params: Value,
    ) -> Result<T, Failure> {
        let answer = self.call(method, params).await;
        answer.map_err(|fault| self.failure(fault))
    }

    /// What a contract answers without anything being changed.
    pub async fn read(&self, contract: Address, input: Vec<u8>) -> Result<Bytes, RpcFault> {
        let call = json!({ "to": contract, "data": Bytes::from(input) });
        self.call("eth_call", json!([call, "latest"])).await
    }

    pub async fn block_number(&self) -> Result<U256, Failure> {
        self.ask("eth_blockNumber", json!([])).await
    }

    pub fn failure(&self, fault: RpcFault) -> Failure {
        let name = &self.name;
        tracing::warn!(chain = name, reason = %fault, "the node of a chain failed a tool: {fault}");
        Failure::because(format!("the node of the chain `{name}` {fault}"))
    }

    /// Asks for something that costs nothing; says what was wrong.
    pub async fn probe(&self) -> Result<String, String> {
        let id: Result<U256, _> = self.call("eth_chainId", json!([])).await;
        match id {
            Ok(id) => Ok(format!("answers, and is chain {id}")),
            Err(fault) => Err(fault.to_string()),
        }
    }
}

/// An address among the arguments; one with a wrong checksum is likely a mistyped one.
pub fn address(field: &str, text: &str) -> Result<Address, Failure> {
    let wrong = |reason: &str| Failure::arguments(format!("`{field}` is no EVM address: {reason}"));
    let read = evm::read(text.trim()).map_err(|reason| wrong(&reason))?;
    if read.checksum == Checksum::Wrong {
        return Err(wrong(
            "its EIP-55 checksum is wrong, so a character may be mistyped",
        ));
    }
    Ok(read.bytes)
}
