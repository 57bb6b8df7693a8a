//! The page of one key in the portal: its terms, rotation, and the projects that keys belong to.

use serde_json::json;

use crate::support::{
    TestGateway,
    gateway::hello,
    portal::{Browser, SCRIPT, Seen},
};

const MODEL: &str = "svc-standard";

async fn new_project(browser: &Browser, name: &str) -> String {
    browser.get("/portal/projects").await.assert_page();
    let made = browser.post("/portal/projects", &[("name", name)]).await;
    made.assert_sent_to("/portal/projects");
    let list = browser.get("/portal/projects").await;
    let (_, row) = list.text.rsplit_once("<code>proj_").unwrap();
    format!("proj_{}", row.split('<').next().unwrap())
}

fn secret(page: &Seen) -> String {
    page.assert_page();
    page.between("id=\"new-key\">", "<").to_owned()
}

#[tokio::test]
async fn a_key_can_be_created_with_project_expiry_and_models() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let project = new_project(&browser, "Website").await;
    browser.get("/portal/keys").await;
    let form = [
        ("name", "bound"),
        ("project", project.as_str()),
        ("expires", "2099-01-31"),
        ("model:svc-standard", "on"),
        ("model:svc-pro", "on"),
    ];
    let key = secret(&browser.post("/portal/keys", &form).await);
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let refused = gateway.chat_as(&key, &hello("svc-basic")).await;
    assert_eq!(refused.status, 403);
    let list = browser.get("/portal/keys").await;
    for told in ["Website", "2099-02-01T00:00:00Z"] {
        assert!(list.assert_page().contains(told), "{told}: {}", list.text);
    }
    let path = format!(
        "/portal/keys/key_{}",
        list.between("/portal/keys/key_", "\"")
    );
    let page = browser.get(&path).await;
    for told in [
        "value=\"2099-01-31\"",
        "svc-pro, svc-standard",
        &format!("value=\"{project}\" selected"),
        "name=\"model:svc-pro\" checked",
        "name=\"model:svc-basic\">",
    ] {
        assert!(page.assert_page().contains(told), "{told}: {}", page.text);
    }
    // The maker is a member, so that usage can be told by person.
    let keys = format!("/operator/accounts/{}/keys", browser.account_id);
    let keys = gateway.operate(reqwest::Method::GET, &keys, None).await;
    let member = keys.assert_ok()["data"][0]["member"].as_str();
    assert!(member.is_some_and(|id| id.starts_with("person_")));
}

#[tokio::test]
async fn the_terms_of_a_key_are_changed_and_removed() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let project = new_project(&browser, "Website").await;
    let (id, key) = browser.new_key("plain").await;
    let path = format!("/portal/keys/{id}");
    let shown = async || {
        let keys = format!("/operator/accounts/{}/keys", browser.account_id);
        let keys = gateway.operate(reqwest::Method::GET, &keys, None).await;
        let key = &keys.assert_ok()["data"][0];
        ["name", "project", "expires_at", "models", "rpm", "tpm"].map(|field| key[field].clone())
    };
    browser.get(&path).await.assert_page();
    let form = [
        ("name", "bound"),
        ("project", project.as_str()),
        ("expires", "2099-01-31"),
        ("rpm", "7"),
        ("tpm", "9000"),
        ("model:svc-pro", "on"),
    ];
    let saved = browser.post(&path, &form).await;
    saved.assert_sent_to("/portal/keys");
    let bound = [
        json!("bound"),
        json!(project),
        json!("2099-02-01T00:00:00Z"),
        json!(["svc-pro"]),
        json!(7),
        json!(9000),
    ];
    assert_eq!(shown().await, bound);
    assert_eq!(gateway.chat_as(&key, &hello(MODEL)).await.status, 403);
    for (field, wrong, problem) in [
        ("name", " ", "A key needs a name"),
        ("project", "proj_0", "There is no such project."),
        ("expires", "2020-01-31", "The last day of a key"),
        ("expires", "soon", "The last day of a key"),
        ("rpm", "0", "Requests per minute: enter a whole number"),
        ("tpm", "many", "Tokens per minute: enter a whole number"),
        ("model:svc-unknown", "on", "There is no such model."),
    ] {
        let mut form: Vec<_> = form.to_vec();
        form.retain(|(name, _)| *name != field);
        form.push((field, wrong));
        let refused = browser.post(&path, &form).await;
        assert!(
            refused.assert_page().contains(problem),
            "{field}: {}",
            refused.text
        );
        assert_eq!(shown().await, bound, "{field}");
    }
    // A refused form keeps what was typed.
    let typed = [
        ("name", "a <b> name"),
        ("project", "default"),
        ("expires", "2020-01-31"),
        ("rpm", "8"),
        ("tpm", "1"),
        ("model:svc-basic", "on"),
    ];
    let refused = browser.post(&path, &typed).await;
    let form = refused.between(&format!("action=\"{path}\""), "</form>");
    for told in [
        "value=\"a &lt;b&gt; name\"",
        "<option value=\"default\" selected>",
        "value=\"2020-01-31\"",
        "value=\"8\"",
        "value=\"1\"",
        "name=\"model:svc-basic\" checked",
        "name=\"model:svc-pro\">",
    ] {
        assert!(form.contains(told), "{told}: {form}");
    }
    assert_eq!(shown().await, bound);
    let removed = browser.post(&path, &[("name", "free")]).await;
    removed.assert_sent_to("/portal/keys");
    let mut free = [
        json!("free"),
        json!("default"),
        json!(null),
        json!(null),
        json!(null),
        json!(null),
    ];
    assert_eq!(shown().await, free);
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    // A name is only a name.
    browser.post(&path, &[("name", SCRIPT)]).await;
    free[0] = json!(SCRIPT);
    assert_eq!(shown().await, free);
    let page = browser.get(&path).await;
    assert!(!page.assert_page().contains(SCRIPT));
}

#[tokio::test]
async fn a_refused_form_of_a_new_key_keeps_what_was_typed() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let project = new_project(&browser, "Website").await;
    let page = browser.get("/portal/keys").await;
    let empty = page.between("action=\"/portal/keys\"", "</form>");
    assert!(empty.contains("<details><summary>Project"), "{empty}");
    let typed = [
        ("name", "a <b> name"),
        ("maker", "service"),
        ("project", project.as_str()),
        ("expires", "2020-01-31"),
        ("model:svc-pro", "on"),
    ];
    let refused = browser.post("/portal/keys", &typed).await;
    assert!(refused.assert_page().contains("The last day of a key"));
    let form = refused.between("action=\"/portal/keys\"", "</form>");
    for told in [
        "value=\"a &lt;b&gt; name\"",
        "<option value=\"service\" selected>",
        "<details open><summary>Project",
        &format!("<option value=\"{project}\" selected>"),
        "value=\"2020-01-31\"",
        "name=\"model:svc-pro\" checked",
        "name=\"model:svc-basic\">",
    ] {
        assert!(form.contains(told), "{told}: {form}");
    }
    let list = browser.get("/portal/keys").await;
    assert!(list.assert_page().contains("No API keys yet."));
    gateway.stop().await;
}

#[tokio::test]
async fn a_key_is_rotated_and_the_new_secret_is_shown_once() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let (id, old) = browser.new_key("work-horse").await;
    let path = format!("/portal/keys/{id}");
    let rotate = format!("{path}/rotate");
    let page = browser.get(&path).await;
    let once = page.between("name=\"once\" value=\"", "\"").to_owned();
    let form = [("grace", "86400"), ("once", once.as_str())];
    let rotated = browser.post(&rotate, &form).await;
    let new = secret(&rotated);
    assert!(rotated.text.contains("is valid until"), "{}", rotated.text);
    for key in [&old, &new] {
        gateway.chat_as(key, &hello(MODEL)).await.assert_ok();
    }
    let page = browser.get(&path).await;
    assert!(page.assert_page().contains("Previous secret"));
    assert!(page.text.contains(&new[..12]) && !page.text.contains(&new));
    // A form that is sent again rotates nothing.
    let again = [form[0], form[1], ("confirmed", "yes")];
    let again = browser.post(&rotate, &again).await;
    assert!(again.assert_page().contains("was sent before"));
    gateway.chat_as(&old, &hello(MODEL)).await.assert_ok();
    let wrong = browser.post(&rotate, &[("grace", "5")]).await;
    assert!(wrong.assert_page().contains("one of the times"));
    gateway.chat_as(&old, &hello(MODEL)).await.assert_ok();

    // Secrets that would end at once are asked about first: the previous one, and without a grace the current one.
    for (grace, ending) in [("3600", vec![&old]), ("0", vec![&old, &new])] {
        let asked = browser.post(&rotate, &[("grace", grace)]).await;
        assert!(asked.assert_page().contains("Rotate work-horse now?"));
        for key in [&old, &new] {
            let is_named = asked.text.contains(&format!("{}…", &key[..12]));
            assert_eq!(is_named, ending.contains(&key), "{grace}: {}", asked.text);
        }
    }
    for key in [&old, &new] {
        gateway.chat_as(key, &hello(MODEL)).await.assert_ok();
    }
    let confirmed = [("grace", "0"), ("confirmed", "yes")];
    let last = secret(&browser.post(&rotate, &confirmed).await);
    for (key, expected) in [(&old, 401), (&new, 401), (&last, 200)] {
        assert_eq!(gateway.chat_as(key, &hello(MODEL)).await.status, expected);
    }
    let page = browser.get(&path).await;
    assert!(!page.assert_page().contains("Previous secret"));
}

#[tokio::test]
async fn projects_are_created_renamed_and_archived() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let empty = browser.get("/portal/projects").await;
    assert!(empty.assert_page().contains("No projects yet besides"));
    for wrong in ["", "two\nlines", &"x".repeat(101)] {
        let refused = browser.post("/portal/projects", &[("name", wrong)]).await;
        assert!(refused.assert_page().contains("A project needs a name"));
    }
    let id = new_project(&browser, SCRIPT).await;
    let list = browser.get("/portal/projects").await;
    assert!(!list.assert_page().contains(SCRIPT));
    let path = |verb: &str| format!("/portal/projects/{id}/{verb}");
    let renamed = browser.post(&path("rename"), &[("name", "Website")]).await;
    renamed.assert_sent_to("/portal/projects");
    let list = browser.get("/portal/projects").await;
    assert!(list.assert_page().contains("Website"));

    browser.get("/portal/keys").await;
    let form = [("name", "k"), ("project", id.as_str())];
    secret(&browser.post("/portal/keys", &form).await);
    let used = browser.post(&path("archive"), &[]).await;
    assert!(used.assert_page().contains("Keys belong to Website."));
    let list = browser.get("/portal/keys").await;
    let key = format!(
        "/portal/keys/key_{}",
        list.between("/portal/keys/key_", "\"")
    );
    browser.post(&format!("{key}/delete"), &[]).await;
    let archived = browser.post(&path("archive"), &[]).await;
    archived.assert_sent_to("/portal/projects");
    let list = browser.get("/portal/projects").await;
    assert!(list.assert_page().contains("archived"));
    // It gets no keys, and has no name to change.
    let refused = browser.post("/portal/keys", &form).await;
    assert!(refused.assert_page().contains("There is no such project."));
    let refused = browser.post(&path("rename"), &[("name", "Again")]).await;
    assert_eq!(refused.status, 404);
}

#[tokio::test]
async fn keys_and_projects_of_other_accounts_are_not_found() {
    let gateway = TestGateway::start().await;
    let (owner, other) = (
        Browser::signed_in(&gateway).await,
        Browser::signed_in(&gateway).await,
    );
    let project = new_project(&owner, "Theirs").await;
    let (id, key) = owner.new_key("mine").await;
    other.get("/portal/keys").await;
    assert_eq!(other.get(&format!("/portal/keys/{id}")).await.status, 404);
    for (path, fields) in [
        (format!("/portal/keys/{id}"), vec![("name", "taken")]),
        (format!("/portal/keys/{id}/rotate"), vec![("grace", "0")]),
        (
            format!("/portal/projects/{project}/rename"),
            vec![("name", "taken")],
        ),
        (format!("/portal/projects/{project}/archive"), vec![]),
    ] {
        assert_eq!(other.post(&path, &fields).await.status, 404, "{path}");
    }
    let form = [("name", "k"), ("project", project.as_str())];
    let refused = other.post("/portal/keys", &form).await;
    assert!(refused.assert_page().contains("There is no such project."));
    gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    let list = owner.get("/portal/projects").await;
    assert!(list.assert_page().contains("Theirs") && !list.text.contains("archived"));
}
