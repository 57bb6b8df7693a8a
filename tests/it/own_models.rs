//! Models that operators define in `[[models]]`, and the files that `tollgate init` writes.

use std::{collections::BTreeMap, os::unix::fs::PermissionsExt as _, path::Path};

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tollgate::config::Config;

use crate::support::{
    TestGateway,
    process::{run, text},
    upstream::completion,
};

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

/// The variables in which the providers' keys usually are.
const KEYS: [&str; 9] = [
    "ANTHROPIC_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "OPENAI_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
];

/// Runs the program in a folder, where nothing of the tests' environment leads to a provider.
fn init(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = folder.to_str().unwrap();
    let arguments = [&["init", "--folder", folder][..], arguments].concat();
    let output = run(&arguments, environment);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn each_provider_gets_a_configuration_that_works_as_it_is() {
    let providers = text(&run(&["init"], &[]).stderr);
    let (_, names) = providers.split_once("--provider: ").expect(&providers);
    let names: Vec<_> = names.trim().split(", ").collect();
    assert!(names.len() >= 15 && names.contains(&"ollama"), "{names:?}");
    for name in names {
        let data = TempDir::new().unwrap();
        let folder = data.path().join("new");
        let mut options = vec!["--provider", name, "--model", "gpt-4o"];
        if name == "simulator" {
            let url = [&options[..], &["--base-url", "http://127.0.0.1:9/v1"]].concat();
            assert_eq!(init(&folder, &url, &[]).0, Some(1), "it has no URL");
        } else {
            options.extend(["--base-url", "http://127.0.0.1:9/v1"]);
        }
        let key = KEYS.map(|variable| (variable, "sk-of-a-vendor"));
        let (code, stderr) = init(&folder, &options, &key);
        assert_eq!(code, Some(0), "{name}: {stderr}");
        for file in std::fs::read_dir(&folder).unwrap() {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name}: {:?}", file.path());
            let written = std::fs::read_to_string(file.path()).unwrap();
            let is_config = file.file_name() == "tollgate.toml";
            assert!(
                !(is_config && written.contains("sk-of-a-vendor")),
                "{name}: {written}"
            );
        }
        let config = folder.join("tollgate.toml");
        let checked = run(
            &["check", "--offline", "--config", config.to_str().unwrap()],
            &[],
        );
        let (stdout, stderr) = (text(&checked.stdout), text(&checked.stderr));
        assert!(checked.status.success(), "{name}: {stdout}{stderr}");
        let (code, stderr) = init(&folder, &options, &key);
        assert_eq!(code, Some(1), "{name} was overwritten");
        assert!(stderr.contains("tollgate.toml"), "{stderr}");
    }
}

#[test]
fn prices_are_suggested_with_a_margin() {
    let data = TempDir::new().unwrap();
    let key = [("OPENAI_API_KEY", "sk-of-a-vendor")];
    let (code, stderr) = init(
        data.path(),
        &[
            "--provider",
            "openai",
            "--model",
            "gpt-4o",
            "--margin",
            "50%",
        ],
        &key,
    );
    assert_eq!(code, Some(0), "{stderr}");
    let config = data.path().join("tollgate.toml");
    let written = std::fs::read_to_string(&config).unwrap();
    assert!(
        written.contains("input = \"3.75\"") && written.contains("output = \"15.00\""),
        "{written}"
    );
    let config = config.to_str().unwrap();
    let suggested = run(
        &["model", "suggest", "--margin", "20%", "--config", config],
        &[],
    );
    let suggested = text(&suggested.stdout);
    let entry = suggested
        .split("[[models]]")
        .find(|entry| entry.contains("\"gpt-5.6\""));
    let entry = entry.expect(&suggested);
    assert!(
        entry.contains("input = \"6.00\"") && entry.contains("output = \"36.00\""),
        "{entry}"
    );
    let document: toml::Table = suggested.parse().expect("it is TOML");
    assert!(document["models"].as_array().unwrap().len() > 5);
}
