//! The chain tools with a real node and real transactions. `tests/chain/run` starts the node.

mod node;
mod token;

use alloy_primitives::{Address, U256, hex};
use serde_json::{Value, json};
use tollgate::tools::ToolOutcome;

use crate::node::{ETHER, Node, anyone, decimal};

#[tokio::test]
async fn the_node_is_probed() {
    let node = Node::alone().await;
    let probed = node.toolbox.probe().await;
    let words = "answers, and is chain 31337".to_owned();
    assert_eq!(probed, [("chain `local`".to_owned(), Ok(words))]);
}

#[tokio::test]
async fn definitions_name_the_chains() {
    let node = Node::alone().await;
    let definitions = node.toolbox.definitions().iter();
    let with_chain = definitions.filter(|tool| {
        let schema = tool.function.parameters.as_ref().unwrap().as_json();
        schema.contains(r#""enum":["local"]"#)
    });
    assert_eq!(with_chain.count(), 3);
}

#[tokio::test]
async fn a_balance_is_exact_to_the_last_wei() {
    let node = Node::alone().await;
    let to = anyone();
    let balance = async || {
        let answer = node
            .done("chain_balance", json!({ "chain": "local", "address": to }))
            .await;
        (answer["balance"].clone(), answer["smallest_units"].clone())
    };
    assert_eq!(balance().await, (json!("0"), json!("0")));
    let value = ETHER * U256::from(3) / U256::from(2) + U256::ONE;
    node.send(json!({ "from": node.rich, "to": to, "value": value }))
        .await;
    let expected = (json!("1.500000000000000001"), json!("1500000000000000001"));
    assert_eq!(balance().await, expected);

    // The largest possible balance: 78 digits.
    let _: Value = node.rpc("anvil_setBalance", json!([to, U256::MAX])).await;
    let (coins, wei) = balance().await;
    assert_eq!(wei, json!(U256::MAX.to_string()));
    assert_eq!(coins, json!(decimal(U256::MAX)));

    let answer = node.done(
        "chain_balance",
        json!({ "chain": "LOCAL", "address": to, "token": "" }),
    );
    assert_eq!(answer.await["symbol"], "TST");
}

#[tokio::test]
async fn a_token_has_its_own_decimals() {
    let node = Node::alone().await;
    let token = node.deploy(token::init_code()).await;
    let of = |owner: Address| json!({ "chain": "local", "address": owner, "token": token });
    let to = anyone();
    node.send(token::transfer(node.rich, token, to, 500_001))
        .await;
    let answer = node.done("chain_balance", of(to)).await;
    assert_eq!(
        answer,
        json!({
            "chain": "local", "address": to.to_checksum(None), "token": token.to_checksum(None),
            "symbol": "TEST", "balance": "0.500001", "decimals": 6, "smallest_units": "500001",
        })
    );
    let answer = node.done("chain_balance", of(node.rich)).await;
    assert_eq!(answer["balance"], "999999.5");
    let answer = node.done("chain_balance", of(anyone())).await;
    assert_eq!(answer["balance"], "0");
}

#[tokio::test]
async fn an_address_without_a_token_is_reported() {
    let node = Node::alone().await;
    let reverting = anyone();
    // PUSH0 PUSH0 REVERT
    node.set_code(reverting, &hex!("5f5ffd")).await;
    for token in [anyone(), reverting] {
        let call = json!({ "chain": "local", "address": node.rich, "token": token });
        let ran = node.run("chain_balance", call).await;
        assert_eq!(ran.outcome, ToolOutcome::Failed);
        let words = format!("there is no ERC-20 token at {token} on the chain `local`");
        assert_eq!(ran.text, words);
    }
}

/// The oldest tokens return 32 bytes for a symbol, and some have no decimals.
#[tokio::test]
async fn an_old_token_is_read_as_far_as_possible() {
    let node = Node::alone().await;
    let token = anyone();
    // PUSH3 "OLD" PUSH1 e8 SHL PUSH0 MSTORE PUSH1 20 PUSH0 RETURN: the same for every call.
    node.set_code(token, &hex!("624f4c4460e81b5f5260205ff3"))
        .await;
    let call = json!({ "chain": "local", "address": node.rich, "token": token });
    let answer = node.done("chain_balance", call).await;
    assert_eq!(answer["symbol"], "OLD");
    assert_eq!(
        (answer.get("balance"), answer.get("decimals")),
        (None, None)
    );
    let units: U256 = U256::from_be_slice(b"OLD") << 232_u32;
    assert_eq!(answer["smallest_units"], units.to_string());
}

#[tokio::test]
async fn gas_prices_are_those_of_the_node() {
    let node = Node::alone().await;
    node.send(json!({ "from": node.rich, "to": node.rich, "value": "0x1",
        "maxPriorityFeePerGas": "0x77359401", "maxFeePerGas": "0x174876e800" }))
        .await;
    let answer = node.done("chain_gas", json!({ "chain": "local" })).await;
    let price: U256 = node.rpc("eth_gasPrice", json!([])).await;
    let block: U256 = node.rpc("eth_blockNumber", json!([])).await;
    let fees: Value = node
        .rpc("eth_feeHistory", json!(["0x1", "latest", []]))
        .await;
    let next: U256 = serde_json::from_value(fees["baseFeePerGas"][1].clone()).unwrap();
    let gwei = |wei: U256| decimal(wei * U256::from(1_000_000_000));
    assert_eq!(answer["gas_price_gwei"], gwei(price));
    assert_eq!(answer["base_fee_gwei"], gwei(next));
    assert_eq!(answer["block"], block.to_string());
    assert!(answer["priority_fee_gwei"].is_string(), "{answer}");
}

#[tokio::test]
async fn a_transaction_that_succeeded() {
    let node = Node::alone().await;
    let to = anyone();
    let before: U256 = node
        .rpc("eth_getBalance", json!([node.rich, "latest"]))
        .await;
    let value = ETHER / U256::from(4);
    let hash = node
        .send(json!({ "from": node.rich, "to": to, "value": value }))
        .await;
    let after: U256 = node
        .rpc("eth_getBalance", json!([node.rich, "latest"]))
        .await;
    let call = || json!({ "chain": "local", "hash": hash });
    let answer = node.done("chain_transaction", call()).await;
    assert_eq!(answer["status"], "success");
    assert_eq!(answer["from"], node.rich.to_checksum(None));
    assert_eq!(answer["to"], to.to_checksum(None));
    assert_eq!(
        (&answer["value"], &answer["symbol"]),
        (&json!("0.25"), &json!("TST"))
    );
    assert_eq!(answer["gas_used"], "21000");
    // The sender's loss beyond the value is the fee.
    assert_eq!(answer["fee"], decimal(before - after - value));
    assert_eq!(answer["confirmations"], "1");
    let block: U256 = node.rpc("eth_blockNumber", json!([])).await;
    assert_eq!(answer["block"], block.to_string());
    let _: Value = node.rpc("anvil_mine", json!(["0x5"])).await;
    let answer = node.done("chain_transaction", call()).await;
    assert_eq!(answer["confirmations"], "6");
}

#[tokio::test]
async fn a_transaction_that_failed_costs_its_fee() {
    let node = Node::alone().await;
    let token = node.deploy(token::init_code()).await;
    // More than the supply.
    let call = token::transfer(node.rich, token, anyone(), u64::MAX);
    let hash = node.send(call).await;
    let answer = node
        .done(
            "chain_transaction",
            json!({ "chain": "local", "hash": hash }),
        )
        .await;
    assert_eq!(answer["status"], "failed");
    assert_eq!(answer["to"], token.to_checksum(None));
    assert_ne!(answer["fee"], "0");
    // The contract reverted; an invalid opcode would have used all the gas.
    assert_ne!(answer["gas_used"], "100000");
}

#[tokio::test]
async fn a_transaction_that_created_a_contract() {
    let node = Node::alone().await;
    let creation = json!({ "from": node.rich, "data": hex::encode_prefixed(token::init_code()) });
    let hash = node.send(creation).await;
    let answer = node
        .done(
            "chain_transaction",
            json!({ "chain": "local", "hash": hash }),
        )
        .await;
    assert_eq!(
        (&answer["status"], answer.get("to")),
        (&json!("success"), None)
    );
    let made: Address = answer["created_contract"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let code: String = node.rpc("eth_getCode", json!([made, "latest"])).await;
    assert_eq!(code, hex::encode_prefixed(token::runtime_code()));
}

#[tokio::test]
async fn a_pending_and_an_unknown_transaction() {
    let node = Node::alone().await;
    let _: Value = node.rpc("evm_setAutomine", json!([false])).await;
    let transaction = json!({ "from": node.rich, "to": anyone(), "value": "0x1" });
    let hash = node.send_only(transaction).await;
    let call = || json!({ "chain": "local", "hash": hash });
    let waiting = node.done("chain_transaction", call()).await;
    let _: Value = node.rpc("evm_setAutomine", json!([true])).await;
    let _: Value = node.rpc("anvil_mine", json!(["0x1"])).await;
    assert_eq!(waiting["status"], "pending");
    assert_eq!((waiting.get("block"), waiting.get("fee")), (None, None));
    assert_eq!(waiting["value"], "0.000000000000000001");
    let mined = node.done("chain_transaction", call()).await;
    assert_eq!(mined["status"], "success");

    let never = format!("0x{}", "ab".repeat(32));
    let call = json!({ "chain": "local", "hash": never });
    let answer = node.done("chain_transaction", call).await;
    assert_eq!(
        answer,
        json!({ "chain": "local", "hash": never, "status": "not_found" })
    );
}

#[tokio::test]
async fn invalid_arguments_are_reported() {
    let node = Node::alone().await;
    let wrong_checksum = "0x5AAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
    for (tool, arguments, outcome, words) in [
        (
            "chain_gas",
            json!({ "chain": "moon" }),
            ToolOutcome::Failed,
            "the chain `moon` is not configured; configured: local",
        ),
        (
            "chain_balance",
            json!({ "chain": "local", "address": wrong_checksum }),
            ToolOutcome::BadArguments,
            "`address` is no EVM address: its EIP-55 checksum is wrong, so a character may be mistyped",
        ),
        (
            "chain_balance",
            json!({ "chain": "local", "address": node.rich, "token": "0x12" }),
            ToolOutcome::BadArguments,
            "`token` is no EVM address: it has 2 digits after `0x`; an address has 40",
        ),
        (
            "chain_transaction",
            json!({ "chain": "local", "hash": "0x12" }),
            ToolOutcome::BadArguments,
            "`hash` must be a transaction's hash: 0x and 64 hexadecimal digits",
        ),
    ] {
        let ran = node.run(tool, arguments).await;
        assert_eq!((ran.text.as_str(), ran.outcome), (words, outcome));
    }
}
