//! Files with secrets that the changes of the console name.

use std::{path::Path, time::Duration};

use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{FakeUpstream, Process, stores, upstream::completion};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

/// Replaces the file atomically, so that no half-written one is read.
fn write(path: &Path, content: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content).unwrap();
    std::fs::rename(beside, path).unwrap();
}

/// They are watched like those of the file, and no more once no change names them.
#[tokio::test]
async fn a_replaced_key_file_that_only_the_console_names_is_used() {
    let upstream = FakeUpstream::start().await;
    upstream.answer_json(200, &completion("Hi"));
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("tollgate.toml");
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         operator.provider_secrets = [\"{}/*\"]\n{}providers.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        folder.path().display(),
        stores::lines(folder.path()),
    );
    std::fs::write(&config, text).unwrap();
    let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
    let (mut process, public, operator) = Process::serve(&config, &environment).await;
    let client = Client::builder().no_proxy().build().unwrap();
    let operate = async |method: Method, path: &str, body: Value| -> Value {
        let url = format!("http://{operator}/operator/{path}");
        let request = client.request(method, url).bearer_auth(TOKEN).json(&body);
        let done = request.send().await.unwrap().error_for_status();
        done.unwrap().json().await.unwrap()
    };
    let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
    let account = operate(Method::POST, "accounts", account).await;
    let account = format!("accounts/{}", account["id"].as_str().unwrap());
    let grant = json!({ "amount": "100" });
    operate(Method::POST, &format!("{account}/grants"), grant).await;
    let named = json!({ "name": "test" });
    let key = operate(Method::POST, &format!("{account}/keys"), named).await;

    let secret = folder.path().join("play.key");
    write(&secret, "first");
    let provider = format!(
        "kind = \"openai\"\nbase_url = \"http://{}/v1\"\napi_key_file = \"{}\"",
        upstream.address,
        secret.display()
    );
    let changes = json!({ "providers": { "play": { "set": provider } } });
    let change = json!({ "changes": changes, "based_on": 0 });
    operate(Method::PUT, "config", change).await;
    // The key that the provider got with a call.
    let sent = async || {
        let hello = json!({
            "model": "svc-standard", "messages": [{ "role": "user", "content": "Hello" }],
        });
        let url = format!("http://{public}/v1/chat/completions");
        let key = key["key"].as_str().unwrap();
        let call = client.post(url).bearer_auth(key).json(&hello).send().await;
        assert_eq!(call.unwrap().status(), 200);
        let last = upstream.received().pop().unwrap();
        last.header("authorization").unwrap().to_owned()
    };
    let reloads = |process: &Process| process.stderr().matches("configuration reloaded").count();
    // A file that was not watched when it was read is read once more.
    process.until(|process| reloads(process) == 1).await;
    assert_eq!(sent().await, "Bearer first");
    write(&secret, "the second");
    process.until(|process| reloads(process) == 2).await;
    assert_eq!(sent().await, "Bearer the second");

    let back = json!({ "changes": {}, "based_on": 1 });
    operate(Method::PUT, "config", back).await;
    process
        .until(|process| {
            process
                .stderr()
                .contains("version 2 of the configuration is in use")
        })
        .await;
    std::fs::remove_file(&secret).unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let log = process.stderr();
    assert!(!log.contains("not reloaded"), "{log}");
    assert_eq!(process.terminated().await.code, Some(0));
}
