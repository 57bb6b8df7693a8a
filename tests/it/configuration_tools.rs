//! `[tools]`: settings of the built-in tools.

use std::time::Duration;

use tollgate::config::Config;

use crate::configuration::{SMALL, parse, refused};

const TOOLS: &str = r#"
[tools]
enabled = true
max_steps = 4
timeout_seconds = 20
[tools.market]
base_url = "https://market.example/api/v3/"
api_key_env = "MARKET_KEY"
api_key_header = "X-Cg-Pro-Api-Key"
[tools.chains.ethereum]
rpc_url_env = "ETHEREUM_URL"
[tools.chains.polygon]
rpc_url = "https://node.example/v2?key=secret-key"
symbol = "POL"
"#;

const VARIABLES: [(&str, &str); 2] = [
    ("MARKET_KEY", "market-key"),
    ("ETHEREUM_URL", " https://node.example/v3/secret-key\n"),
];

fn with(more: &str) -> String {
    format!("{SMALL}{more}")
}

#[test]
fn a_full_section() {
    let config = parse(&with(TOOLS), &VARIABLES);
    let tools = &config.tools;
    assert_eq!((tools.enabled, tools.max_steps), (true, 4));
    assert_eq!(tools.timeout, Duration::from_secs(20));
    let market = tools.market.as_ref().unwrap();
    assert_eq!(market.base_url, "https://market.example/api/v3");
    assert!(market.api_key.as_ref().unwrap().matches("market-key"));
    assert_eq!(market.api_key_header, "x-cg-pro-api-key");
    let chain = |name: &str| {
        let chain = &tools.chains[name];
        (chain.rpc_url.reveal(), chain.symbol.as_str())
    };
    assert_eq!(
        chain("ethereum"),
        ("https://node.example/v3/secret-key", "ETH")
    );
    assert_eq!(
        chain("polygon"),
        ("https://node.example/v2?key=secret-key", "POL")
    );
    let printed = format!("{config:?}");
    assert!(!printed.contains("secret-key") && !printed.contains("market-key"));
}

#[test]
fn without_a_section_there_are_tools_and_no_sources() {
    let Config { tools, .. } = parse(SMALL, &[]);
    assert_eq!((tools.enabled, tools.max_steps), (true, 8));
    assert_eq!(tools.timeout, Duration::from_secs(10));
    assert!(tools.market.is_none() && tools.chains.is_empty());
    let Config { tools, .. } = parse(&with("[tools.market]\nbase_url = \"http://x/y\""), &[]);
    let market = tools.market.unwrap();
    assert!(market.api_key.is_none());
    assert_eq!(market.api_key_header, "x-cg-demo-api-key");
}

#[test]
fn the_environment_replaces_and_adds() {
    let more = [
        ("TOLLGATE__TOOLS__ENABLED", "false"),
        ("TOLLGATE__TOOLS__MAX_STEPS", "2"),
        ("TOLLGATE__TOOLS__MARKET__BASE_URL", "http://127.0.0.1:1"),
        (
            "TOLLGATE__TOOLS__CHAINS__POLYGON__RPC_URL",
            "http://127.0.0.1:2",
        ),
        (
            "TOLLGATE__TOOLS__CHAINS__BASE__RPC_URL",
            "http://127.0.0.1:3",
        ),
    ];
    let variables = [&VARIABLES[..], &more].concat();
    let Config { tools, .. } = parse(&with(TOOLS), &variables);
    assert_eq!((tools.enabled, tools.max_steps), (false, 2));
    assert_eq!(tools.market.unwrap().base_url, "http://127.0.0.1:1");
    assert_eq!(
        tools.chains["polygon"].rpc_url.reveal(),
        "http://127.0.0.1:2"
    );
    assert_eq!(tools.chains["base"].rpc_url.reveal(), "http://127.0.0.1:3");
}

#[test]
fn every_mistake_is_reported_at_once() {
    let bad = r#"
[tools]
enabled = "perhaps"
max_steps = 33
timeout_seconds = 0
tiemout_seconds = 1
[tools.market]
base_url = "ftp://market.example"
api_key_env = "NOT_SET"
api_key_header = "a b"
[tools.chains.both]
rpc_url = "http://node.example/secret-key"
rpc_url_env = "ETHEREUM_URL"
[tools.chains.neither]
symbol = ""
[tools.chains.wrong]
rpc_url = "node.example/secret-key"
[tools.chains.user]
rpc_url = "http://me:secret-key@node.example"
[tools.chains.unset]
rpc_url_env = "NOT_SET"
[tools.chains.odd]
rpc_url_env = "ODD_URL"
"#;
    let odd = [VARIABLES[0], VARIABLES[1], ("ODD_URL", "secret-key")];
    let message = refused(&with(bad), &odd);
    insta::assert_snapshot!(message, @r#"
    tollgate.toml cannot be used: 14 mistakes
    - line 8: `tools.enabled` is "perhaps"; expected true or false
    - line 9: `tools.max_steps` is 33; expected a number from 1 to 32
    - line 10: `tools.timeout_seconds` is 0; expected a number of seconds from 1 to 120
    - line 13: `tools.market.base_url` is "ftp://market.example"; expected a URL, e.g. `https://api.coingecko.com/api/v3`
    - line 12: `tools.market.api_key_env` names the variable NOT_SET, which is not set; export it, or name another variable
    - line 15: `tools.market.api_key_header` is "a b"; expected the name of a header, e.g. `x-cg-pro-api-key`
    - line 16: `tools.chains.both.rpc_url` is there, and so is `rpc_url_env`; expected one of the two
    - line 19: `tools.chains.neither.rpc_url` is missing; expected a URL that begins with `http://` or `https://` and has no user in it, or `rpc_url_env`
    - line 20: `tools.chains.neither.symbol` is ""; expected the name of its native coin, e.g. `ETH`
    - line 27: `tools.chains.odd.rpc_url_env` names the variable ODD_URL, which does not hold a URL that begins with `http://` or `https://` and has no user in it
    - line 25: `tools.chains.unset.rpc_url_env` names the variable NOT_SET, which is not set; export it, or name another variable
    - line 24: `tools.chains.user.rpc_url` cannot be used; expected a URL that begins with `http://` or `https://` and has no user in it
    - line 22: `tools.chains.wrong.rpc_url` cannot be used; expected a URL that begins with `http://` or `https://` and has no user in it
    - line 11: `tools.tiemout_seconds` is not a setting; did you mean `timeout_seconds`?
    "#);
    assert!(!message.contains("secret-key"), "{message}");
    let message = refused(&with("[tools.market]\n"), &[]);
    assert!(
        message.contains("`tools.market.base_url` is missing"),
        "{message}"
    );
}
