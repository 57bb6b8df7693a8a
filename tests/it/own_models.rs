//! Models that operators define in `[[models]]`.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tollgate::config::Config;

use crate::support::{TestGateway, upstream::completion};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

fn parsed(text: &str) -> Result<Config, String> {
    let environment = BTreeMap::from([
        ("TOLLGATE_OPERATOR_TOKEN".to_owned(), TOKEN.to_owned()),
        ("OPENAI_API_KEY".to_owned(), "sk-of-a-vendor".to_owned()),
    ]);
    Config::parse("tollgate.toml", text, &environment).map_err(|error| error.to_string())
}

const OPENAI: &str = r#"
[providers.openai]
kind = "openai"
base_url = "https://api.openai.com/v1"
api_key_env = "OPENAI_API_KEY"
"#;

#[tokio::test]
async fn an_own_model_is_served_at_its_price_as_it_is_asked_for() {
    let own = r#"
        [[models]]
        id = "house-model"
        provider = "fake"
        upstream_model = "vendor/house"
        input = "1.00"
        output = "2.00"
        aliases = ["gpt-*"]

        [[models]]
        id = "named-model"
        name = "Named Model"
        provider = "fake"
        input = "1.00"
        output = "2.00"
        identity_prompt = true
    "#;
    let gateway = TestGateway::start_with(own).await;
    gateway.upstream.answer_json(200, &completion("Hi"));
    for (name, expected) in [("house-model", "house-model"), ("gpt-9", "gpt-9")] {
        let body = json!({ "model": name, "messages": [{ "role": "user", "content": "hi" }] });
        let answer = gateway.chat(&body).await;
        assert_eq!(answer.assert_ok()["model"], expected);
        let sent = gateway.upstream.last_body();
        assert_eq!(sent["model"], "vendor/house");
        assert_eq!(
            sent["messages"], body["messages"],
            "no system prompt of ours"
        );
        assert_eq!(sent.get("tools"), None, "no tools of ours");
    }
    assert_eq!(gateway.upstream.calls(), 2, "one call each");
    // 11 tokens at a micro-dollar and 3 at two, twice.
    let path = format!("/operator/accounts/{}/usage", gateway.account_id);
    let usage = gateway.operate(Method::GET, &path, None).await;
    let usage = usage.assert_ok();
    for call in usage["data"].as_array().unwrap() {
        assert_eq!(
            (&call["model"], &call["cost"]),
            (&json!("house-model"), &json!("0.000017"))
        );
    }
    // A model that says so has the identity prompt, and still no tools.
    let body = json!({ "model": "named-model", "messages": [{ "role": "user", "content": "hi" }] });
    gateway.chat(&body).await.assert_ok();
    let sent = gateway.upstream.last_body();
    let prompt = &sent["messages"][0];
    assert_eq!(prompt["role"], "system", "{sent}");
    assert!(
        prompt["content"]
            .as_str()
            .unwrap()
            .starts_with("You are Named Model"),
        "{sent}"
    );
    assert_eq!(sent["messages"][1], body["messages"][0]);
    assert_eq!(sent.get("tools"), None);
    let listed = gateway.get("/v1/models/house-model").await;
    assert_eq!(listed.assert_ok()["pricing"]["prompt"], "0.000001");
}

#[tokio::test]
async fn a_catalog_that_replaces_the_built_in_one_sends_no_empty_prompt() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("catalog.toml");
    let own = "[[models]]\nid = \"own\"\nname = \"Own\"\ninput = \"1\"\noutput = \"2\"\nmin_tier = \"free\"\n";
    std::fs::write(&file, own).unwrap();
    let catalog = format!("[catalog]\nfile = {:?}\nextends = false", file.display());
    let gateway = TestGateway::start_with(&catalog).await;
    gateway.upstream.answer_json(200, &completion("Hi"));
    let messages = json!([{ "role": "user", "content": "hi" }]);
    let body = json!({ "model": "own", "messages": messages });
    gateway.chat(&body).await.assert_ok();
    assert_eq!(gateway.upstream.last_body()["messages"], messages);
}

#[test]
fn list_prices_fill_in_what_an_entry_leaves_out() {
    let config = parsed(&format!(
        "{OPENAI}[[models]]\nid = \"gpt-4o\"\nprovider = \"openai\"\n"
    ));
    let config = config.unwrap();
    let model = config.catalog.find("gpt-4o").unwrap();
    assert_eq!(model.prices.rates.input.to_string(), "0.0000025");
    assert_eq!(model.prices.rates.output.to_string(), "0.00001");
    assert_eq!((model.context_length, model.max_output), (128_000, 16_384));
    assert!(
        config.deployments[0].cost.is_some(),
        "what the vendor charges is known"
    );
    // One's own price stays, and what the vendor charges is still known.
    let own =
        "[[models]]\nid = \"gpt-4o\"\nprovider = \"openai\"\ninput = \"9\"\noutput = \"10\"\n";
    let config = parsed(&format!("{OPENAI}{own}")).unwrap();
    let model = config.catalog.find("gpt-4o").unwrap();
    assert_eq!(model.prices.rates.input.to_string(), "0.000009");
    assert!(config.deployments[0].cost.is_some());
}

#[test]
fn every_deployment_of_an_own_model_has_the_cost_of_its_vendor() {
    let config = parsed(&format!(
        r#"{OPENAI}
        [providers.azure]
        kind = "openai"
        base_url = "https://mine.openai.azure.com/openai/v1"
        [providers.openrouter]
        kind = "openai"
        base_url = "https://openrouter.ai/api/v1"
        [providers.rack]
        kind = "openai"
        base_url = "http://127.0.0.1:9/v1"

        [[models]]
        id = "gpt-4o"
        provider = "openai"

        [[deployments]]
        model = "gpt-4o"
        provider = "azure"
        priority = 2
        cost = {{ input = "2.00", output = "8.00" }}
        [[deployments]]
        model = "gpt-4o"
        provider = "openrouter"
        upstream_model = "openai/gpt-4o"
        priority = 3
        [[deployments]]
        model = "gpt-4o"
        provider = "rack"
        priority = 4
        "#
    ));
    let config = config.unwrap();
    let cost_at = |provider: &str| {
        let mut deployments = config.deployments.iter();
        let found = deployments.find(|one| one.provider == provider).unwrap();
        found.cost.as_ref().map(|cost| cost.rates.input.to_string())
    };
    for (provider, cost) in [
        ("openai", Some("0.0000025")),
        ("azure", Some("0.000002")),
        ("openrouter", Some("0.0000025")),
        ("rack", None),
    ] {
        assert_eq!(cost_at(provider).as_deref(), cost, "{provider}");
    }
}

#[test]
fn mistakes_name_the_entry() {
    let model =
        "[[models]]\nid = \"first\"\nprovider = \"openai\"\ninput = \"1\"\noutput = \"2\"\n";
    for (second, words) in [
        ("id = \"second\"\nprovider = \"openai\"\n", "models[1]"),
        (
            "id = \"second\"\nprovider = \"nobody\"\ninput = \"1\"\noutput = \"2\"\n",
            "nobody",
        ),
        (
            "id = \"first\"\nprovider = \"openai\"\ninput = \"1\"\noutput = \"2\"\n",
            "first",
        ),
        (
            "provider = \"openai\"\ninput = \"1\"\noutput = \"2\"\n",
            "models[1]",
        ),
        (
            "id = \"second\"\nprovider = \"openai\"\ninput = \"1\"\noutput = \"2\"\ncolour = \"red\"\n",
            "colour",
        ),
        (
            "id = \"second\"\nprovider = \"openai\"\ninput = \"1\"\noutput = \"2\"\nweight = \"heavy\"\n",
            "models[1]",
        ),
    ] {
        let mistakes = parsed(&format!("{OPENAI}{model}[[models]]\n{second}")).unwrap_err();
        assert!(mistakes.contains(words), "{second}: {mistakes}");
    }
}
