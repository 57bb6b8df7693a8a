//! The toolbox through its public functions, as far as possible without a data source.

use serde_json::Value;

use super::*;

fn toolbox() -> Toolbox {
    Toolbox::new(&config::Tools::default()).unwrap()
}

#[test]
fn definitions_are_plain_schemas() {
    let toolbox = toolbox();
    let shown = toolbox.definitions().iter().map(|tool| {
        let parameters = tool.function.parameters.as_ref().unwrap();
        format!("{} {}", tool.function.name, parameters.as_json())
    });
    let shown: Vec<_> = shown.collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    crypto_price {"type":"object","properties":{"symbols":{"type":"array","items":{"type":"string"},"description":"Symbols or IDs of the coins, e.g. btc and eth; at most 20"},"currency":{"type":"string","description":"The currency of the prices, e.g. usd, eur or btc; usd if it is left out"}},"required":["symbols"]}
    crypto_market {"type":"object","properties":{"symbol":{"type":"string","description":"The symbol or ID of the coin, e.g. btc"},"days":{"type":"integer","description":"How many days to look back, from 1 to 365; 7 if it is left out"}},"required":["symbol"]}
    chain_gas {"type":"object","properties":{"chain":{"type":"string","description":"The name of the chain"}},"required":["chain"]}
    chain_balance {"type":"object","properties":{"chain":{"type":"string","description":"The name of the chain"},"address":{"type":"string","description":"The address that holds the balance, with 0x"},"token":{"type":"string","description":"The address of an ERC-20 token's contract; left out for the chain's native coin"}},"required":["chain","address"]}
    chain_transaction {"type":"object","properties":{"chain":{"type":"string","description":"The name of the chain"},"hash":{"type":"string","description":"The hash of the transaction: 0x and 64 hexadecimal digits"}},"required":["chain","hash"]}
    inspect_address {"type":"object","properties":{"address":{"type":"string","description":"The address to look at"}},"required":["address"]}
    convert_units {"type":"object","properties":{"amount":{"type":"string","description":"The amount as a decimal number in a string, e.g. \"1.5\""},"from":{"type":"string","description":"The unit of the amount: wei, kwei, mwei, gwei, szabo, finney, ether; satoshi, bit, mbtc, bitcoin; lamport, sol"},"to":{"type":"string","description":"The unit to convert to; one of the same currency"}},"required":["amount","from","to"]}
    "#);
}

#[test]
fn every_schema_uses_only_keywords_that_providers_accept() {
    fn check(schema: &Value, tool: &str) {
        let Value::Object(schema) = schema else {
            panic!("{tool}: {schema}");
        };
        let known = [
            "type",
            "description",
            "properties",
            "required",
            "items",
            "enum",
        ];
        for (key, value) in schema {
            assert!(known.contains(&key.as_str()), "{tool}: {key}");
            match key.as_str() {
                "type" => assert!(value.is_string(), "{tool}: {value}"),
                "items" => check(value, tool),
                "properties" => {
                    let fields = value.as_object().unwrap();
                    for (name, field) in fields {
                        assert!(field["description"].is_string(), "{tool}: {name}");
                        check(field, tool);
                    }
                }
                _ => {}
            }
        }
    }
    for tool in toolbox().definitions() {
        let schema = tool.function.parameters.as_ref().unwrap().as_json();
        check(&serde_json::from_str(schema).unwrap(), &tool.function.name);
    }
}

/// Every offered tool can be run: `definitions` and `call` list the same tools.
#[tokio::test]
async fn every_definition_leads_to_a_tool() {
    let toolbox = toolbox();
    assert_eq!(toolbox.definitions().len(), 7);
    for tool in toolbox.definitions() {
        let result = toolbox.run(&tool.function.name, "{}").await;
        assert_eq!(
            result.outcome,
            ToolOutcome::BadArguments,
            "{}",
            tool.function.name
        );
        let result = toolbox.run(&tool.function.name, "  ").await;
        assert!(result.text.contains("missing field"), "{}", result.text);
    }
}

#[tokio::test]
async fn pure_tools_work_without_configuration() {
    let toolbox = toolbox();
    for (name, arguments, text) in [
        (
            "convert_units",
            r#"{"amount":1.5,"from":"ether","to":"wei"}"#,
            r#"{"amount":"1.5","from":"ether","to":"wei","result":"1500000000000000000"}"#,
        ),
        (
            "convert_units",
            r#"{"amount":"1e-18","from":"ETH","to":"wei","why":"a model adds things"}"#,
            r#"{"amount":"0.000000000000000001","from":"ether","to":"wei","result":"1"}"#,
        ),
        (
            "inspect_address",
            r#"{"address":"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"}"#,
            r#"{"address":"1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa","valid":true,"family":"bitcoin","network":"mainnet","type":"p2pkh","encoding":"base58"}"#,
        ),
        (
            "inspect_address",
            r#"{"address":""}"#,
            r#"{"address":"","valid":false,"reason":"it is empty"}"#,
        ),
    ] {
        let result = toolbox.run(name, arguments).await;
        assert_eq!(
            (result.text.as_str(), result.outcome),
            (text, ToolOutcome::Done),
            "{arguments}"
        );
    }
}

#[tokio::test]
async fn tools_without_a_source_name_the_reason() {
    let toolbox = toolbox();
    let address = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed";
    for (name, arguments, text) in [
        (
            "crypto_price",
            r#"{"symbols":["btc"]}"#.to_owned(),
            "market data is not configured",
        ),
        (
            "crypto_market",
            r#"{"symbol":"btc"}"#.to_owned(),
            "market data is not configured",
        ),
        (
            "chain_gas",
            r#"{"chain":"ethereum"}"#.to_owned(),
            "no chain is configured",
        ),
        (
            "chain_balance",
            format!(r#"{{"chain":"ethereum","address":"{address}"}}"#),
            "no chain is configured",
        ),
        (
            "chain_transaction",
            format!(r#"{{"chain":"ethereum","hash":"0x{}"}}"#, "1".repeat(64)),
            "no chain is configured",
        ),
    ] {
        let result = toolbox.run(name, &arguments).await;
        assert_eq!(
            (result.text.as_str(), result.outcome),
            (text, ToolOutcome::Failed),
            "{name}"
        );
    }
}

#[tokio::test]
async fn unknown_tools_and_bad_arguments_are_named() {
    let toolbox = toolbox();
    let result = toolbox.run("rm_rf", "{}").await;
    assert_eq!(result.outcome, ToolOutcome::UnknownTool);
    assert_eq!(
        result.text,
        "there is no tool `rm_rf`; there are crypto_price, crypto_market, chain_gas, \
         chain_balance, chain_transaction, inspect_address, convert_units"
    );
    let result = toolbox
        .run("convert_units", r#"{"amount":"x","from":"wei","to":"eth"}"#)
        .await;
    assert_eq!(result.outcome, ToolOutcome::BadArguments);
    assert_eq!(
        result.text,
        "the argument `amount` cannot be used: expected a decimal number, e.g. `1.5`"
    );
    let result = toolbox.run("convert_units", "not JSON").await;
    assert_eq!(result.outcome, ToolOutcome::BadArguments);
}

#[tokio::test]
async fn disabled_tools_are_not_offered() {
    let off = config::Tools {
        enabled: false,
        ..config::Tools::default()
    };
    let toolbox = Toolbox::new(&off).unwrap();
    assert!(toolbox.definitions().is_empty());
    let result = toolbox.run("convert_units", "{}").await;
    assert_eq!(result.outcome, ToolOutcome::UnknownTool);
    assert_eq!(
        result.text,
        "there is no tool `convert_units`; there are none"
    );
}

#[test]
fn a_long_text_is_cut_between_characters() {
    let fits = "é".repeat(MAX_TEXT_BYTES / 2);
    assert_eq!(bounded(fits.clone()), fits);
    for shift in 0..4 {
        let long = format!("{}{}", "x".repeat(shift), "🦀".repeat(MAX_TEXT_BYTES));
        let cut = bounded(long.clone());
        assert!(
            cut.len() <= MAX_TEXT_BYTES && cut.len() > MAX_TEXT_BYTES - 4,
            "{}",
            cut.len()
        );
        let (kept, _) = cut.split_once("\n[cut").unwrap();
        assert!(long.starts_with(kept));
    }
}

#[test]
fn outcomes_have_names() {
    let names = [
        (ToolOutcome::Done, "done"),
        (ToolOutcome::Failed, "failed"),
        (ToolOutcome::UnknownTool, "unknown_tool"),
        (ToolOutcome::BadArguments, "bad_arguments"),
        (ToolOutcome::TimedOut, "timed_out"),
    ];
    for (outcome, name) in names {
        assert_eq!(outcome.as_str(), name);
    }
}
