//! A version of the configuration that a gateway cannot use: it is tried again, and the console goes on from it.

use std::{path::Path, time::Duration};

use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    Process,
    console::{give_token, until_shown},
    portal::Browser,
    process::{run, text},
    stores,
};

const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";
const PAGE: &str = "/portal/console/config";

fn write_config(folder: &Path) -> String {
    let config = folder.join("tollgate.toml");
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\n\
         operator.provider_secrets = [\"{}/*\"]\n{}providers.play.kind = \"simulator\"\n\
         deployments = [{{ model = \"*\", provider = \"play\" }}]\n",
        folder.display(),
        stores::lines(folder),
    );
    std::fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

/// Goes back to a version in the store itself, as another gateway would that can use it.
fn roll_back(config: &str, to: &str) {
    let arguments = ["config", "rollback", "--config", config, "--to", to];
    let done =
        tokio::task::block_in_place(|| run(&arguments, &[("TOLLGATE_OPERATOR_TOKEN", TOKEN)]));
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_cannot_be_used_is_tried_again_and_can_be_changed() {
    let folder = TempDir::new().unwrap();
    let config = write_config(folder.path());
    let environment = [("TOLLGATE_OPERATOR_TOKEN", TOKEN)];
    let (mut process, public, operator) = Process::serve(Path::new(&config), &environment).await;
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "sk-1").unwrap();
    let provider = format!(
        "kind = \"openai\"\nbase_url = \"http://127.0.0.1:9/v1\"\napi_key_file = \"{}\"",
        secret.display()
    );
    let changes = json!({ "providers": { "more": { "set": provider } } });
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let put = client
        .put(format!("http://{operator}/operator/config"))
        .bearer_auth(TOKEN)
        .json(&json!({ "changes": changes, "based_on": 0 }));
    let put = put.send().await.unwrap();
    assert_eq!(put.status(), 200, "{}", put.text().await.unwrap());

    // Version 3 needs a file that is gone.
    roll_back(&config, "0");
    process
        .until(|process| {
            process
                .stderr()
                .contains("version 2 of the configuration is in use")
        })
        .await;
    std::fs::remove_file(&secret).unwrap();
    roll_back(&config, "1");
    let refused = "version 3 of the configuration cannot be used here";
    process
        .until(|process| process.stderr().contains(refused))
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(
        process.stderr().matches(refused).count(),
        1,
        "it is logged once"
    );

    let browser = Browser::at(public);
    give_token(&browser, TOKEN)
        .await
        .assert_sent_to("/portal/console");
    let problem = "This gateway cannot use the newest version and keeps version 2.";
    for (path, also) in [
        ("", "Version 3"),
        ("/providers/edit?name=more", "name=\"based_on\" value=\"3\""),
        ("/aliases/new", "name=\"based_on\" value=\"3\""),
        ("/history", "name=\"based_on\" value=\"3\""),
        ("/history/2", "name=\"to\" value=\"2\""),
        ("/history/3", "Changes from the version before"),
    ] {
        let page = browser.get(&format!("{PAGE}{path}")).await;
        let page = page.assert_page();
        for text in [problem, "providers.more.api_key_file", also] {
            assert!(page.contains(text), "{text} in {path}: {page}");
        }
        assert!(
            !page.contains("name=\"to\" value=\"3\""),
            "{path}: it is the newest"
        );
    }

    std::fs::write(&secret, "sk-2").unwrap();
    process
        .until(|process| {
            process
                .stderr()
                .contains("version 3 of the configuration is in use")
        })
        .await;
    let page = browser.get(PAGE).await;
    assert!(!page.assert_page().contains("cannot use"), "{}", page.text);

    // What cannot be used here is mended here, without what else the version says being lost.
    roll_back(&config, "0");
    process
        .until(|process| {
            process
                .stderr()
                .contains("version 4 of the configuration is in use")
        })
        .await;
    std::fs::remove_file(&secret).unwrap();
    roll_back(&config, "3");
    until_shown(
        &browser,
        PAGE,
        "cannot use the newest version and keeps version 4",
    )
    .await;
    let gone = [
        ("name", "more"),
        ("intent", "revert"),
        ("based_on", "5"),
        ("do", "apply"),
    ];
    let gone = browser.post(&format!("{PAGE}/providers"), &gone).await;
    gone.assert_sent_to(PAGE);
    let page = browser.get(PAGE).await;
    assert!(
        page.assert_page()
            .contains("Version 6 of the configuration is in use"),
        "{}",
        page.text
    );
    assert!(!page.text.contains("cannot use"), "{}", page.text);
    assert_eq!(process.terminated().await.code, Some(0));
}
