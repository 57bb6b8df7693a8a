//! Changes of the configuration in the console that are refused: mistakes, other secrets, and people who are no operators.

use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::support::{
    TestGateway,
    config_form::{FORM, MODELS, PAGE, filled, post},
    console::{actions, person},
    portal::Browser,
};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn what_check_would_refuse_changes_nothing_and_is_kept_in_the_form() {
    let gateway = TestGateway::start().await;
    let browser = person(&gateway).await;
    for (field, value, told) in [
        (
            "f.output",
            "cheap",
            "model `svc-standard`: `models[0].output` is &quot;cheap&quot;; expected US dollars",
        ),
        (
            "f.output",
            "0,15",
            "“Output price” is 0,15. Write decimals after a point, e.g. 0.15, and no comma.",
        ),
        ("f.output", "", "`models[0].output` is missing"),
        ("f.min_output", "900000", "is above `max_output`"),
        (
            "f.context_length",
            "-5",
            "expected a number of tokens above zero",
        ),
        (
            "rest",
            "outptu = \"9.00\"",
            "`models[0].outptu` is not a setting",
        ),
        (
            "rest",
            "a = 1\nb = ",
            "Other settings, line 2: this is not TOML",
        ),
        (
            "rest",
            "top_k = 99999999999999999999",
            "Other settings cannot be read: ",
        ),
        (
            "rest",
            "name = \"Two\"",
            "`name` has the field “Display name”",
        ),
    ] {
        for step in ["preview", "apply"] {
            let page = browser.get(FORM).await;
            let fields = filled(
                page.assert_page(),
                &[(field, value), ("note", "kept & shown")],
            );
            let refused = post(&browser, MODELS, &fields, step).await;
            assert_eq!(refused.status, 400, "{value}");
            assert!(refused.text.contains(told), "{told} in {}", refused.text);
            assert!(refused.text.contains("kept &amp; shown"));
        }
    }
    for (path, fields, told) in [
        (
            "aliases",
            vec![
                ("name", "gpt-*"),
                ("new", "yes"),
                ("f.model", "svc-nothing"),
            ],
            "expected the ID of a model",
        ),
        (
            "aliases",
            vec![("name", "*"), ("new", "yes"), ("f.model", MODEL)],
            "matches every name",
        ),
        (
            "models",
            vec![("name", MODEL), ("new", "yes"), ("f.input", "1")],
            "There is a model `svc-standard` already",
        ),
        (
            "models",
            vec![("name", ""), ("new", "yes"), ("f.input", "1")],
            "Enter a name for the model",
        ),
        (
            "models",
            vec![("name", "nothing"), ("f.input", "1")],
            "There is no model `nothing` any more",
        ),
        (
            "providers",
            vec![("name", "fake"), ("intent", "remove")],
            "expected the name of a provider above",
        ),
        (
            "deployments",
            vec![("new", "yes"), ("f.model", MODEL), ("f.provider", "none")],
            "expected the name of a provider above (`fake`)",
        ),
    ] {
        let mut all = vec![("based_on", "0"), ("do", "apply")];
        all.extend(fields);
        let refused = browser.post(&format!("{PAGE}/{path}"), &all).await;
        assert_eq!(refused.status, 400, "{told}: {}", refused.text);
        assert!(refused.text.contains(told), "{told} in {}", refused.text);
    }
    let listed = gateway.operate(Method::GET, "/operator/config", None).await;
    assert_eq!(listed.assert_ok()["version"], 0);
    assert_eq!(
        actions(&gateway, None)
            .await
            .iter()
            .filter(|one| one.what == "config.change")
            .count(),
        0
    );
    gateway.stop().await;
}

/// A console operator cannot read other secrets of the machine by sending them to a host of their own.
#[tokio::test]
async fn only_secrets_that_the_file_allows_can_be_named() {
    let folder = TempDir::new().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let allowed = format!(
        "EXTRA_*, /run/secrets/*, /dev/zero, {}/*",
        folder.path().display()
    );
    let settings = [("OPERATOR__PROVIDER_SECRETS", &*allowed)];
    let gateway = TestGateway::start_set(&settings).await;
    let put = async |provider: &str| {
        let changes = json!({ "providers": { "fake": { "set": provider } } });
        let body = json!({ "changes": changes, "based_on": 0, "preview": true });
        let checked = gateway
            .operate(Method::PUT, "/operator/config", Some(body))
            .await;
        checked.assert_ok()["mistakes"].to_string()
    };
    let to = |address: &str| format!("kind = \"openai\"\nbase_url = \"http://{address}/v2\"\n");
    let (known, url) = (to(&gateway.upstream.address.to_string()), to("127.0.0.1:9"));
    assert_eq!(
        put(&format!("{known}api_key_env = \"PROVIDER_KEY\"")).await,
        "[]",
        "the file sends it there"
    );
    let mistakes = put("kind = \"openai\"\napi_key_env = \"PROVIDER_KEY\"").await;
    assert!(mistakes.contains("which needs a `base_url`"), "{mistakes}");
    let (named_pipe, bound) = (
        format!("api_key_file = \"{}\"", pipe.display()),
        format!(
            "names PROVIDER_KEY, which the file’s providers send to http://{} and nowhere else",
            gateway.upstream.address
        ),
    );
    for (secret, told) in [
        ("api_key_env = \"PROVIDER_KEY\"", &*bound),
        (
            "api_key_env = \"PROVIDER_KEY\"\nx = 99999999999999999999",
            &*bound,
        ),
        (&*named_pipe, "expected the path of a readable file"),
        (
            "api_key_file = \"/dev/zero\"",
            "expected the path of a readable file",
        ),
        (
            "api_key_env = \"TOLLGATE_OPERATOR_TOKEN\"",
            "names TOLLGATE_OPERATOR_TOKEN, which no provider of the file names",
        ),
        (
            "api_key_env = [\"PROVIDER_KEY\", \"TOLLGATE_OPERATOR_TOKEN\"]",
            "names TOLLGATE_OPERATOR_TOKEN, which",
        ),
        ("api_key_file = \"/etc/passwd\"", "names /etc/passwd, which"),
        (
            "api_key_file = \"/run/secrets/../../etc/passwd\"",
            "which no provider of the file names",
        ),
        (
            "api_key_env = \"EXTRA_KEY\"",
            "names the variable EXTRA_KEY, which is not set",
        ),
        (
            "api_key = \"sk-secret\"",
            "`providers.fake.api_key` does not belong here: use `api_key_env`",
        ),
    ] {
        let mistakes = put(&format!("{url}{secret}")).await;
        assert!(mistakes.contains(told), "{told} in {mistakes}");
        assert!(!mistakes.contains("sk-secret"));
    }
    let mistakes = put("kind = \"openai\"\nbase_url = \"http://u:hunter2@127.0.0.1:9/v1\"").await;
    assert!(
        mistakes.contains("has a user or a password in it") && !mistakes.contains("hunter2"),
        "{mistakes}"
    );
    gateway.stop().await;
}

#[tokio::test]
async fn customers_find_no_configuration() {
    let gateway = TestGateway::start().await;
    let customer = Browser::signed_in(&gateway).await;
    for path in [
        PAGE,
        FORM,
        "/portal/console/config/history",
        "/portal/console/config/history/1",
        "/portal/console/config/aliases/new",
    ] {
        assert_eq!(customer.get(path).await.status, 404, "{path}");
    }
    for path in [MODELS, "/portal/console/config/rollback"] {
        assert_eq!(
            customer
                .post(path, &[("to", "0"), ("based_on", "0")])
                .await
                .status,
            404,
            "{path}"
        );
    }
    let operator = person(&gateway).await;
    for path in [
        "/portal/console/config/nothing/new",
        "/portal/console/config/models/edit?name=nothing",
        "/portal/console/config/history/9",
    ] {
        assert_eq!(operator.get(path).await.status, 404, "{path}");
    }
    operator.get(PAGE).await.assert_page();
    let request = operator
        .request(Method::POST, MODELS)
        .header("content-type", "application/x-www-form-urlencoded")
        .body("token=wrong&name=svc-standard&based_on=0&do=apply");
    assert_eq!(operator.send(request).await.status, 403);
    gateway.stop().await;
}
