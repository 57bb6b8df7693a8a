//! Router weights of the operator, in place of the built-in ones.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::{config::Config, routing::Scorer};

use crate::support::{
    Process,
    process::{run, text},
    stores,
};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn weights(&self) -> PathBuf {
        self.0.path().join("router.bin")
    }

    /// Replaces the file atomically, so that no reader sees a half-written one.
    fn write(&self, weights: &[u8]) {
        let beside = self.0.path().join("router.new");
        std::fs::write(&beside, weights).unwrap();
        std::fs::rename(beside, self.weights()).unwrap();
    }

    fn config(&self) -> PathBuf {
        let file = self.0.path().join("tollgate.toml");
        let listen = "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n";
        let stores = stores::lines(self.0.path());
        std::fs::write(
            &file,
            [listen, &stores, &settings(&self.weights())].concat(),
        )
        .unwrap();
        file
    }

    fn check(&self) -> (Option<i32>, String) {
        let config = self.config();
        let arguments = ["check", "--config", config.to_str().unwrap()];
        let output = run(&arguments, &[("TOLLGATE_OPERATOR_TOKEN", TOKEN)]);
        let said = text(&output.stdout) + &text(&output.stderr);
        (output.status.code(), said)
    }
}

fn settings(weights: &Path) -> String {
    format!(
        "routing.weights = \"{}\"\nproviders.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        weights.display()
    )
}

/// The built-in weights with a changed sharpness, and their version.
fn changed(sharpness: f32) -> (Vec<u8>, String) {
    let mut weights = Scorer::embedded().weights().clone();
    weights.sharpness = sharpness;
    let file = weights.encode();
    let version = Scorer::read(&file).unwrap().version().to_owned();
    (file, version)
}

fn parse(weights: &Path) -> Result<Config, String> {
    let token = ("TOLLGATE_OPERATOR_TOKEN".to_owned(), TOKEN.to_owned());
    let config = Config::parse(
        "tollgate.toml",
        &settings(weights),
        &BTreeMap::from([token]),
    );
    config.map_err(|error| error.to_string())
}

#[test]
fn a_file_that_cannot_be_used_is_a_mistake_that_names_it_and_why() {
    let folder = Folder::new();
    let (good, version) = changed(3.0);
    let edited = |at: usize| {
        let mut file = good.clone();
        file[at] ^= 1;
        Some(file)
    };
    for (file, reason) in [
        (None, "it cannot be read: No such file"),
        (
            Some(b"[models]".to_vec()),
            "this is not a file of router weights",
        ),
        (
            Some(good[..20].to_vec()),
            "the router weights are cut short",
        ),
        (edited(8), "the router weights are of another format than 2"),
        (edited(1_000_000), "the router weights are damaged"),
    ] {
        if let Some(file) = file {
            folder.write(&file);
        }
        let message = parse(&folder.weights()).unwrap_err();
        let path = folder.weights();
        let expected = format!("`routing.weights` names {}: {reason}", path.display());
        assert!(message.contains(&expected), "{message}");
        assert!(message.contains(": 1 mistake\n"), "{message}");
        let (code, said) = folder.check();
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&expected), "{said}");
    }
    folder.write(&good);
    let config = parse(&folder.weights()).unwrap();
    assert_eq!(config.weights.unwrap().scorer.version(), version);
    let (code, said) = folder.check();
    assert_eq!(code, Some(0), "{said}");
    let expected = format!("ok    router weights: {version}");
    assert!(said.contains(&expected), "{said}");
}

#[tokio::test]
async fn the_weights_in_use_are_shown_and_reloaded_when_they_change() {
    let (folder, (first, first_version)) = (Folder::new(), changed(3.0));
    folder.write(&first);
    let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
    let (mut process, _, operator) = Process::serve(&folder.config(), &environment).await;
    let client = Client::builder().no_proxy().build().unwrap();
    let shown = async || -> [Value; 2] {
        let url = |path: &str| format!("http://{operator}/operator/routing{path}");
        let routing = client.get(url("")).bearer_auth(TOKEN).send().await;
        let routing: Value = routing.unwrap().json().await.unwrap();
        let message = json!({ "role": "user", "content": "Hello" });
        let body = json!({ "model": "svc-hybrid-cost", "messages": [message] });
        let request = client.post(url("/explain")).bearer_auth(TOKEN).json(&body);
        let decision: Value = request.send().await.unwrap().json().await.unwrap();
        [routing["weights"].clone(), decision["version"].clone()]
    };
    assert_eq!(shown().await, [json!(first_version), json!(first_version)]);

    let (second, second_version) = changed(4.0);
    folder.write(&second);
    let logged = |words: &'static str| move |process: &Process| process.stderr().contains(words);
    process.until(logged("configuration reloaded")).await;
    assert_eq!(
        shown().await,
        [json!(second_version), json!(second_version)]
    );

    folder.write(&second[..second.len() - 1]);
    process.until(logged("configuration not reloaded")).await;
    let log = process.stderr();
    assert!(log.contains("`routing.weights` names"), "{log}");
    assert!(log.contains("are damaged"), "{log}");
    assert_eq!(
        shown().await,
        [json!(second_version), json!(second_version)]
    );
}
