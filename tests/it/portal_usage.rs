//! Portal pages with sums and prices: usage, its CSV export, plan and models.

use reqwest::Method;
use serde_json::json;
use tollgate::base::timestamp;

use crate::support::{
    Plan, TestGateway,
    admin::{Admin, not_at_midnight, rows},
    gateway::hello,
    models::MODELS,
    portal::{Browser, PASSWORD},
    stores,
};

const MODEL: &str = "svc-standard";

#[tokio::test]
async fn usage_adds_up_by_model_by_key_and_by_day() {
    not_at_midnight().await;
    let admin = Admin::open().await;
    admin.gateway.upstream.answer_using(1_000, 400, 60, 50);
    let (_, second) = admin.new_key("server").await;
    admin
        .gateway
        .chat_as(&admin.key, &hello(MODEL))
        .await
        .assert_ok();
    admin
        .gateway
        .chat_as(&second, &hello(MODEL))
        .await
        .assert_ok();
    // 600 × 5,000 + 400 × 500 + 60 × 30,000 nano-dollars.
    admin
        .gateway
        .chat_as(&second, &hello("svc-basic"))
        .await
        .assert_ok();
    admin.gateway.upstream.answer(500, "text/plain", "no");
    assert_eq!(
        admin
            .gateway
            .chat_as(&admin.key, &hello(MODEL))
            .await
            .status,
        502
    );
    admin.gateway.idle().await;
    let page = admin.page("/portal/usage").await;
    let by_model = rows(&page, "Usage by model");
    let expected = [
        ["svc-basic", "1", "0.0 %", "1,000", "400", "60", "$0.005"],
        [MODEL, "3", "33.3 %", "2,000", "800", "120", "$0.00364"],
    ];
    // Latencies come last.
    assert_eq!(by_model[1][..7], expected[0]);
    assert_eq!(by_model[2][..7], expected[1]);
    assert!(by_model[1][8].ends_with(" ms"), "{by_model:?}");
    let by_day = rows(&page, "Usage by day");
    assert_eq!(by_day.len(), 2, "one day was busy: {by_day:?}");
    assert_eq!(
        by_day[1][1..],
        ["4", "25.0 %", "3,000", "1,200", "180", "$0.00864"]
    );
    for told in [
        "1 failed (25.0 %), 3 charged",
        "150 of them reasoning",
        "Daily cost",
        "<svg",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    let by_key = rows(
        &admin.page("/portal/usage?days=7&by=key").await,
        "Usage by key",
    );
    let told = |name: &str, key: &str| format!("{name} {}…", &key[..12]);
    assert_eq!(by_key[1][0], told("server", &second));
    let server = ["2", "0.0 %", "2,000", "800", "120", "$0.00682"];
    assert_eq!(by_key[1][1..7], server);
    assert_eq!(by_key[2][0], told("laptop", &admin.key));
    let laptop = ["2", "50.0 %", "1,000", "400", "60", "$0.00182"];
    assert_eq!(by_key[2][1..7], laptop);
    let of_service = [
        "Service keys",
        "4",
        "25.0 %",
        "3,000",
        "1,200",
        "180",
        "$0.00864",
    ];
    let page = admin.page("/portal/usage?by=member").await;
    assert_eq!(rows(&page, "Usage by member")[1][..7], of_service);
    for query in [
        "?days=31",
        "?days=-7",
        "?by=colour",
        "?days=7&days=30",
        "?range=2h",
        "?from=2026-01-01",
        "?from=2026-01-02&to=2026-01-01",
        "?from=2020-01-01&to=2026-01-01",
    ] {
        let page = admin.browser.get(&format!("/portal/usage{query}")).await;
        assert_eq!(page.status, 400, "{query}");
    }
}

#[tokio::test]
async fn usage_is_told_by_project_and_by_member() {
    not_at_midnight().await;
    let admin = Admin::open().await;
    let path = format!("/operator/accounts/{}/projects", admin.account_id);
    let project = admin
        .operate(Method::POST, &path, json!({ "name": "Website" }))
        .await;
    let project = project["id"].as_str().unwrap();
    admin.browser.get("/portal/keys").await;
    let form = [("name", "hers"), ("project", project)];
    let made = admin.browser.post("/portal/keys", &form).await;
    let hers = made.between("id=\"new-key\">", "<").to_owned();
    let of_left = json!({ "name": "of one who left", "member": "person_gone" });
    let path = format!("/operator/accounts/{}/keys", admin.account_id);
    let of_left = admin.operate(Method::POST, &path, of_left).await;
    let of_left = of_left["key"].as_str().unwrap();
    admin.gateway.upstream.answer_using(1_000, 0, 60, 0);
    for (key, times) in [(hers.as_str(), 4), (of_left, 2), (admin.key.as_str(), 1)] {
        for _ in 0..times {
            admin.gateway.chat_as(key, &hello(MODEL)).await.assert_ok();
        }
    }
    // The project of a call is that of its key at the time.
    let key_id = admin.browser.get("/portal/keys").await;
    let key_id = format!("key_{}", key_id.between("/portal/keys/key_", "\""));
    admin.gateway.idle().await;
    let told = |rows: &[Vec<String>]| -> Vec<(String, String)> {
        let rows = rows[1..].iter();
        rows.map(|row| (row[0].clone(), row[1].clone())).collect()
    };
    let pair = |name: &str, calls: &str| (name.to_owned(), calls.to_owned());
    let by_project = rows(
        &admin.page("/portal/usage?by=project").await,
        "Usage by project",
    );
    assert_eq!(
        told(&by_project),
        [pair("Website", "4"), pair("Default", "3")]
    );
    let by_member = rows(
        &admin.page("/portal/usage?by=member").await,
        "Usage by member",
    );
    let expected = [
        pair(&admin.browser.email, "4"),
        pair("person_gone", "2"),
        pair("Service keys", "1"),
    ];
    assert_eq!(told(&by_member), expected);
    let csv = admin.browser.get("/portal/usage.csv").await;
    for end in [
        format!(",Website,{}", admin.browser.email),
        ",Default,person_gone".to_owned(),
        ",Default,".to_owned(),
    ] {
        let ends = csv.text.lines().filter(|line| line.ends_with(&end));
        assert_eq!(ends.count(), 1, "{end}: {}", csv.text);
    }
    let moved = json!({ "project": null });
    let path = format!("/operator/keys/{key_id}");
    admin.operate(Method::PATCH, &path, moved).await;
    let page = admin.page("/portal/usage?by=project").await;
    assert_eq!(told(&rows(&page, "Usage by project")), told(&by_project));
}

#[tokio::test]
async fn an_account_without_requests_has_pages_that_say_so() {
    let admin = Admin::open().await;
    for (path, told) in [
        ("/portal/usage", "No usage in this period."),
        ("/portal/usage?range=1h&by=key", "No usage in this period."),
        ("/portal/requests", "There are no requests yet."),
        ("/portal/requests?model=x", "No matching requests."),
    ] {
        let page = admin.page(path).await;
        assert!(page.contains(told), "{path}: {page}");
    }
    let csv = admin.browser.get("/portal/usage.csv").await;
    assert_eq!(csv.text.lines().count(), 1, "{}", csv.text);
}

#[tokio::test]
async fn an_account_with_refused_requests_alone_sees_them_on_its_overview() {
    let admin = Admin::open().await;
    let page = admin.page("/portal").await;
    assert!(page.contains("Your first request"), "{page}");
    let refused = admin.gateway.chat_as(&admin.key, &hello("nope")).await;
    assert_eq!(refused.status, 404);
    let page = admin.page("/portal").await;
    assert!(!page.contains("Your first request"), "{page}");
    let latest = rows(&page, "Requests, newest first");
    assert_eq!((latest.len(), &*latest[1][2]), (2, "nope"), "{latest:?}");
    assert!(latest[1][7].contains("Unknown model"), "{latest:?}");
}

#[tokio::test]
async fn credit_lasts_until_it_is_spent_or_expires() {
    not_at_midnight().await;
    let gateway = TestGateway::start().await;
    let mut browser = Browser::new(&gateway);
    browser.email = "days@example.com".into();
    let signed_up = browser.sign_up(&browser.email).await;
    signed_up.assert_sent_to("/portal");
    let settings = browser.get("/portal/settings").await;
    let account = format!("acct_{}", settings.between(">acct_", "<"));
    let path = format!("/operator/accounts/{account}");
    let in_two_days = timestamp::shown(timestamp::now() + 2 * 86_400 + 3_600);
    let expiring = json!({ "amount": "5", "reason": "trial", "expires_at": in_two_days });
    let operate = async |method, path: &str, body| {
        let answer = gateway.operate(method, path, Some(body)).await;
        answer.assert_ok().clone()
    };
    let flex = json!({ "track": "business", "tier": "flex" });
    operate(Method::PATCH, &path, flex).await;
    operate(Method::POST, &format!("{path}/grants"), expiring).await;
    let key = json!({ "name": "laptop" });
    let key = operate(Method::POST, &format!("{path}/keys"), key).await;
    let key = key["key"].as_str().unwrap();
    gateway.chat_as(key, &hello(MODEL)).await.assert_ok();
    gateway.idle().await;
    // An account of today has no pace yet.
    let page = browser.get("/portal").await;
    assert!(
        !page.assert_page().contains("At this pace"),
        "{}",
        page.text
    );

    // As if it had made the call five days ago.
    let data = gateway.stop().await;
    let day = timestamp::shown(timestamp::now() - 5 * 86_400);
    let day = &day[..10];
    let earlier = format!("UPDATE usage_days SET day = '{day}' WHERE account_id = '{account}'");
    stores::execute(data.path(), &earlier).await;
    let gateway = TestGateway::start_in(data, "").await;
    let browser = Browser::new(&gateway);
    let signed_in = browser.sign_in("days@example.com", PASSWORD).await;
    signed_in.assert_sent_to("/portal");
    let page = browser.get("/portal").await;
    let text = page.assert_page();
    assert!(text.contains("At this pace, about 2 days"), "{text}");
    // What does not expire lasts longer.
    let grants = format!("{path}/grants");
    let lasting = Some(json!({ "amount": "5" }));
    gateway
        .operate(Method::POST, &grants, lasting)
        .await
        .assert_ok();
    let page = browser.get("/portal").await;
    let text = page.assert_page();
    assert!(text.contains("At this pace, more than a year"), "{text}");
}

#[tokio::test]
async fn csv_has_one_line_per_row_and_no_formulas() {
    let admin = Admin::open().await;
    let names = [
        "=HYPERLINK(\"http://evil.example\",\"x\")",
        "+1",
        "-1",
        "@SUM(A1)",
        "\tx",
        "a,b",
    ];
    let mut keys = Vec::new();
    for name in names {
        let (_, key) = admin.new_key(name).await;
        admin.gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
        keys.push(key);
    }
    admin.gateway.idle().await;
    let csv = admin.browser.get("/portal/usage.csv?days=7").await;
    assert_eq!(csv.status, 200);
    assert_eq!(csv.headers["content-type"], "text/csv; charset=utf-8");
    let disposition = csv.headers["content-disposition"].to_str().unwrap();
    assert!(
        disposition.starts_with("attachment; filename=\"usage-20"),
        "{disposition}"
    );
    assert!(disposition.ends_with(".csv\""), "{disposition}");
    let lines: Vec<_> = csv.text.split_terminator("\r\n").collect();
    assert_eq!(
        lines[0],
        "day,key name,key prefix,model,requests,charged requests,prompt tokens,cached tokens,\
         completion tokens,reasoning tokens,cost USD,project,member"
    );
    assert_eq!(lines.len(), 1 + names.len());
    let fields = [
        "\"'=HYPERLINK(\"\"http://evil.example\"\",\"\"x\"\")\"",
        "'+1",
        "'-1",
        "'@SUM(A1)",
        "'\tx",
        "\"a,b\"",
    ];
    for (field, key) in fields.iter().zip(&keys) {
        let rest = format!(
            ",{field},{},{MODEL},1,1,11,0,3,0,0.000049,Default,",
            &key[..12]
        );
        let found = lines.iter().filter(|line| line.ends_with(&rest)).count();
        assert_eq!(found, 1, "{rest}: {lines:?}");
    }
}

#[tokio::test]
async fn names_are_escaped_on_every_page() {
    let admin = Admin::open().await;
    let (_, key) = admin.new_key("<script>alert('1')</script>").await;
    admin.gateway.chat_as(&key, &hello(MODEL)).await.assert_ok();
    admin.gateway.idle().await;
    let details = admin.listed("/portal/requests").await.remove(0);
    for path in ["/portal/usage?by=key", "/portal/requests", &details] {
        let page = admin.page(path).await;
        assert!(page.contains("&lt;script&gt;alert("), "{path}: {page}");
        assert!(!page.contains("<script>"), "{path}: {page}");
    }
    let page = admin
        .page("/portal/requests?model=%22%3E%3Cscript%3E")
        .await;
    assert!(!page.contains("<script>"), "{page}");
}

#[tokio::test]
async fn models_are_listed_with_their_prices_and_the_plan_that_has_them() {
    let admin = Admin::open().await;
    admin.subscribe(Plan::FREE).await;
    let models = |model: &str| format!("/operator/models/{model}");
    let disabled = json!({ "enabled": false });
    admin
        .operate(Method::PUT, &models("svc-pro"), disabled)
        .await;
    let unlisted = json!({ "unlisted": true });
    admin
        .operate(Method::PUT, &models("svc-basic"), unlisted)
        .await;
    let page = admin.page("/portal/models").await;
    let listed = rows(&page, "Models and their prices per million tokens");
    let ids: Vec<_> = MODELS
        .into_iter()
        .filter(|id| !["svc-pro", "svc-basic"].contains(id))
        .collect();
    assert_eq!(listed.len(), 1 + ids.len());
    for (row, id) in listed[1..].iter().zip(&ids) {
        assert!(row[1].starts_with(id), "{row:?} is not {id}");
    }
    let told = |id: &str| {
        let at = ids.iter().position(|listed| *listed == id).unwrap();
        listed[1 + at][2..].to_vec()
    };
    let fast = ["$0.20", "$0.02", "$0.80", "1,050,000", "66,000", "Included"];
    assert_eq!(told("svc-native-fast"), fast);
    assert_eq!(told(MODEL)[..3], ["$2.00", "$0.20", "$9.00"]);
    assert_eq!(told(MODEL)[5], "Needs Standard");
    assert_eq!(told("svc-flex-alpha-5.6")[5], "Needs Flex");
    assert!(told("svc-hybrid-cost")[0].starts_with("up to $"));
}

#[tokio::test]
async fn the_plan_page_shows_models_and_limits() {
    let admin = Admin::open().await;
    admin.subscribe(Plan::MAX).await;
    let limit = json!({ "account": admin.account_id, "rpm": 70, "tpm": 7_000_000 });
    admin.operate(Method::PUT, "/operator/limits", limit).await;
    let own = json!({ "account": admin.account_id, "model": MODEL, "rpm": 5 });
    admin.operate(Method::PUT, "/operator/limits", own).await;
    let page = admin.page("/portal/plan").await;
    let limits = rows(&page, "Limits per minute");
    let expected = [
        vec![MODEL, "5", "7,000,000"],
        vec!["Every other model", "70", "7,000,000"],
    ];
    assert_eq!(limits[1..], expected);
    let plans = rows(
        &page,
        "Each plan also includes the models of the plans above it",
    );
    assert_eq!(plans.len(), 7);
    assert_eq!(plans[5][..2], ["Max your plan", "Personal"]);
    assert_eq!(plans[6][..2], ["Flex", "Business"]);
    assert!(
        page.contains("Ask your provider for another plan."),
        "{page}"
    );
}
