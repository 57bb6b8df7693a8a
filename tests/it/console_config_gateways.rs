//! Changes of the configuration at several gateways, at the start, by the operator API and on the command line.

use std::{path::Path, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    TestGateway,
    process::{run, text},
    stores,
};

const MODEL: &str = "svc-standard";
const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

async fn put(gateway: &TestGateway, changes: Value, based_on: i64) -> Value {
    let body = json!({ "changes": changes, "based_on": based_on, "note": "test" });
    let answer = gateway
        .operate(Method::PUT, "/operator/config", Some(body))
        .await;
    answer.assert_ok().clone()
}

fn price(output: &str) -> Value {
    let model = format!("min_tier = \"standard\"\ninput = \"2.00\"\noutput = \"{output}\"");
    json!({ "models": { MODEL: { "set": model } } })
}

async fn shown_price(gateway: &TestGateway) -> String {
    let model = gateway.get(&format!("/v1/models/{MODEL}")).await;
    model.assert_ok()["pricing"]["completion"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn until_price(gateway: &TestGateway, expected: &str) {
    for _ in 0..100 {
        if shown_price(gateway).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it is {} and not {expected}", shown_price(gateway).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_gateway_of_a_store_follows_within_seconds() {
    if !stores::are_shared() {
        return;
    }
    let data = TempDir::new().unwrap();
    let database = stores::database(data.path());
    let one = TestGateway::start_on_servers(data, &database, "").await;
    // The second one's file has no provider for what the third version needs.
    let two = TestGateway::start_on_servers(
        TempDir::new().unwrap(),
        &database,
        "[providers.more]\nkind = \"simulator\"\n",
    )
    .await;
    put(&one, price("90.00"), 0).await;
    assert_eq!(shown_price(&one).await, "0.00009");
    until_price(&two, "0.00009").await;
    let mut needs = price("91.00");
    needs["deployments"] = json!({ "new": { "set": "model = \"svc-pro\"\nprovider = \"more\"" } });
    put(&two, needs, 1).await;
    assert_eq!(shown_price(&two).await, "0.000091");
    for _ in 0..100 {
        let shown = one.operate(Method::GET, "/operator/config", None).await;
        let shown = shown.assert_ok();
        if shown["problem"]
            .to_string()
            .contains("deployment `new`: `deployments[1].provider` is")
        {
            assert_eq!(shown["version"], 1, "it keeps what it has");
            assert_eq!(shown_price(&one).await, "0.00009");
            let gateways = shown["gateways"].as_array().unwrap();
            if gateways
                .iter()
                .any(|gateway| gateway["problem"].is_string() && gateway["version"] == 1)
                && gateways
                    .iter()
                    .any(|gateway| gateway["problem"].is_null() && gateway["version"] == 2)
            {
                let metrics = metrics(&one).await;
                assert!(metrics.contains("tollgate_config_version 1\n"), "{metrics}");
                assert!(
                    metrics.contains("tollgate_config_rejected 1\n"),
                    "{metrics}"
                );
                assert_eq!(gateways.len(), 2, "{shown}");
                let back = one
                    .operate(
                        Method::POST,
                        "/operator/config/rollback",
                        Some(json!({ "to": 1 })),
                    )
                    .await;
                assert_eq!(back.assert_ok()["version"], 3);
                until_price(&two, "0.00009").await;
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the problem is not reported");
}

async fn metrics(gateway: &TestGateway) -> String {
    let url = format!("http://{}/metrics", gateway.operator);
    let request = gateway
        .client
        .get(url)
        .bearer_auth(crate::support::gateway::OPERATOR_TOKEN);
    request.send().await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_api_and_the_command_line_show_apply_and_roll_back() {
    let gateway = TestGateway::start().await;
    let shown = put(&gateway, price("90.00"), 0).await;
    assert_eq!(shown["version"], 1);
    assert_eq!(shown["entries"][0]["source"], "changed");
    assert!(
        shown["entries"][0]["before"]
            .as_str()
            .unwrap()
            .contains("output = \"9.00\"")
    );
    put(&gateway, price("91.00"), 1).await;
    let versions = gateway
        .operate(Method::GET, "/operator/config/versions", None)
        .await;
    let versions = &versions.assert_ok()["data"];
    assert_eq!(
        (&versions[0]["version"], &versions[1]["note"]),
        (&json!(2), &json!("test"))
    );
    let wrong =
        json!({ "changes": { "models": { MODEL: { "set": "output = 1" } } }, "based_on": 2 });
    let wrong = gateway
        .operate(Method::PUT, "/operator/config", Some(wrong))
        .await;
    wrong.assert_error(
        400,
        "invalid_request_error",
        Some("invalid_configuration"),
        Some("changes"),
    );
    assert!(
        wrong.error()["mistakes"][0]
            .as_str()
            .unwrap()
            .contains("model `svc-standard`: `models[0].output` is 1")
    );
    let mut big = String::new();
    for _ in 0..2_000 {
        big.push_str("# 456789\n");
    }
    for changes in [
        json!({ "models": { MODEL: { "set": big } } }),
        json!({ "models": { "a\nb": { "set": "" } } }),
        json!({ "models": { "x".repeat(300): { "set": null } } }),
        json!({ "models": { MODEL: { "set": "input = \"1\"\noutput = \"1\"\ntop_k = 99999999999999999999" } } }),
    ] {
        let body = json!({ "changes": changes, "based_on": 2 });
        let refused = gateway
            .operate(Method::PUT, "/operator/config", Some(body))
            .await;
        assert!(refused.status == 400, "{changes}");
    }
    let missing = gateway
        .operate(Method::GET, "/operator/config/versions/9", None)
        .await;
    assert_eq!(missing.status, 404);

    let command = |arguments: &[&str]| {
        let url = format!("http://{}", gateway.operator);
        let environment = [
            (
                "TOLLGATE_OPERATOR_TOKEN",
                crate::support::gateway::OPERATOR_TOKEN,
            ),
            ("TOLLGATE_OPERATOR_URL", &*url),
        ];
        let output = run(&[&["config"], arguments].concat(), &environment);
        (
            output.status.success(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let (ok, said) = tokio::task::block_in_place(|| command(&["show"]));
    assert!(
        ok && said.contains("version 2") && said.contains("+ output = \"91.00\""),
        "{said}"
    );
    let (ok, said) = tokio::task::block_in_place(|| command(&["history"]));
    assert!(
        ok && said.contains("VERSION") && said.contains("operator token"),
        "{said}"
    );
    let (ok, said) = tokio::task::block_in_place(|| command(&["rollback"]));
    assert!(!ok && said.contains("--to <VERSION>"), "{said}");
    let (ok, said) = tokio::task::block_in_place(|| command(&["rollback", "--to", "1"]));
    assert!(ok, "{said}");
    assert_eq!(shown_price(&gateway).await, "0.00009");
    let (ok, said) = tokio::task::block_in_place(|| command(&["rollback", "--to", "1"]));
    assert!(
        !ok && said.contains("already says what version 1 says"),
        "{said}"
    );
    for to in [json!(1), json!(3)] {
        let body = json!({ "to": to });
        let path = "/operator/config/rollback";
        let again = gateway.operate(Method::POST, path, Some(body)).await;
        again.assert_error(
            409,
            "invalid_request_error",
            Some("configuration_unchanged"),
            Some("to"),
        );
    }
    assert_eq!(shown_price(&gateway).await, "0.00009");
    gateway.stop().await;
}

fn file(folder: &Path, catalog: &str) -> String {
    format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n{}catalog.file = \"{catalog}\"\n\
         providers.play.kind = \"simulator\"\ndeployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        stores::lines(folder)
    )
}

/// A file that does not fit the changes any more fails the start, and says how to go on.
#[test]
fn a_file_that_does_not_fit_fails_the_start_until_it_is_rolled_back() {
    let folder = TempDir::new().unwrap();
    let catalog = folder.path().join("catalog.toml");
    let more = "[[models]]\nid = \"house\"\ninput = \"1\"\noutput = \"2\"\n";
    std::fs::write(&catalog, more).unwrap();
    let config = folder.path().join("tollgate.toml");
    std::fs::write(&config, file(folder.path(), catalog.to_str().unwrap())).unwrap();
    let config = config.to_str().unwrap();
    let command = |arguments: &[&str]| {
        let output = run(arguments, &[("TOLLGATE_OPERATOR_TOKEN", TOKEN)]);
        (
            output.status.success(),
            text(&output.stdout) + &text(&output.stderr),
        )
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
        let (process, _, operator) =
            crate::support::Process::serve(Path::new(config), &environment).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let changes = json!({ "aliases": { "gpt-*": { "set": "model = \"house\"" } } });
        let body = json!({ "changes": changes, "based_on": 0 });
        let url = format!("http://{operator}/operator/config");
        let put = client
            .put(url)
            .bearer_auth(TOKEN)
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(put.status(), 200, "{}", put.text().await.unwrap());
        assert_eq!(process.terminated().await.code, Some(0));
    });
    let (_, said) = command(&["check", "--config", config]);
    assert!(
        said.contains("ok    changes of the console: version 1; 1 entry differs from the file"),
        "{said}"
    );
    assert!(said.contains("alias `gpt-*`: `house`"), "{said}");

    std::fs::write(&catalog, more.replace("house", "hut")).unwrap();
    let told = [
        "the file does not fit the changes that were made in the console (version 1)",
        "alias `gpt-*`: `models.aliases.gpt-*` is \"house\"; expected the ID of a model",
        "tollgate config rollback --config FILE",
    ];
    for arguments in [["serve", "--config", config], ["check", "--config", config]] {
        let (ok, said) = command(&arguments);
        assert!(!ok, "{said}");
        for words in told {
            assert!(said.contains(words), "{words} in {said}");
        }
    }
    let (ok, said) = command(&["config", "rollback", "--config", config, "--to", "7"]);
    assert!(!ok && said.contains("there is no version 7"), "{said}");
    let (ok, said) = command(&["config", "rollback", "--config", config]);
    assert!(!ok && said.contains("--to <VERSION>"), "{said}");
    let back = ["config", "rollback", "--config", config, "--to", "0"];
    let (ok, said) = command(&back);
    assert!(ok && said.contains("Version 2 is the file again"), "{said}");
    let (ok, said) = command(&back);
    assert!(
        !ok && said.contains("version 2, the newest, already says what the file says"),
        "{said}"
    );
    runtime.block_on(async {
        let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
        let (process, _, _) = crate::support::Process::serve(Path::new(config), &environment).await;
        assert_eq!(process.terminated().await.code, Some(0));
    });
    if !stores::are_shared() {
        let store = rusqlite::Connection::open(folder.path().join("tollgate.portal.db")).unwrap();
        store
            .execute_batch("DROP TABLE backoffice_actions")
            .unwrap();
        let (ok, said) = command(&["config", "rollback", "--config", config, "--to", "1"]);
        assert!(
            ok && said.contains("Version 3 is version 1 again")
                && said.contains("recording it failed")
                && said.contains("config.change by command line"),
            "{said}"
        );
    }
}
