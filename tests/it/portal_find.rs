//! Finding requests by filters, their CSV, and sums of hours: all amounts are those of the ledger.

use serde_json::json;
use tollgate::base::money::NanoUsd;

use crate::support::{
    admin::{Admin, links, not_at_midnight, rows},
    bodies::hello_with,
    console::with_token,
    gateway::hello,
    upstream::{chunk, usage_chunk},
};

const MODEL: &str = "svc-standard";

/// An account with four requests: a stream of another model, one of a session, one with an odd ID, and one that failed.
async fn used() -> Admin {
    let admin = Admin::open().await;
    let hi = chunk(json!({ "content": "Hi" }), Some("stop"));
    admin
        .gateway
        .upstream
        .answer_chunks(&[hi, usage_chunk(11, 3)]);
    for (header, value, model) in [
        ("x-request-id", "plain", "svc-basic"),
        ("session-id", "s-1", MODEL),
        ("x-request-id", "=1+1", MODEL),
    ] {
        let url = admin.gateway.url("/v1/chat/completions");
        let request = admin.gateway.client.post(url).bearer_auth(&admin.key);
        let body = hello_with(model, json!({ "stream": model == "svc-basic" }));
        let request = request.header(header, value).json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.bytes().await.unwrap();
        admin.gateway.idle().await;
        admin.gateway.upstream.answer_using(1_000, 400, 60, 50);
    }
    admin.gateway.upstream.answer(500, "text/plain", "no");
    let failed = admin.gateway.chat_as(&admin.key, &hello(MODEL)).await;
    assert_eq!(failed.status, 502);
    admin.gateway.idle().await;
    admin
}

/// What the ledger has charged the account, in nano-dollars.
async fn charged(admin: &Admin) -> i64 {
    let ledger = &admin.gateway.inside().ledger;
    let calls = ledger.usage(&admin.account_id, 0, i64::MAX).await.unwrap();
    let costs = calls.iter().filter_map(|call| call.charged);
    costs.map(|charged| charged.cost.nanos()).sum()
}

/// The lines of a CSV without quotes, as fields.
fn fields(csv: &str) -> Vec<Vec<&str>> {
    let lines = csv.split_terminator("\r\n");
    lines.map(|line| line.split(',').collect()).collect()
}

fn nanos(dollars: &str) -> i64 {
    let amount = |text: &str| NanoUsd::parse(text).unwrap().nanos();
    let negative = dollars.strip_prefix('-').map(|text| -amount(text));
    negative.unwrap_or_else(|| amount(dollars))
}

#[tokio::test]
async fn requests_are_found_by_time_errors_project_and_session() {
    let admin = used().await;
    for (query, expected) in [
        ("last=1h", 4),
        ("last=today&outcome=errors", 1),
        ("outcome=errors", 1),
        ("outcome=errors&model=svc-basic", 0),
        ("from=2020-01-01&to=2020-12-31T23:59", 0),
        ("from=2020-01-01T00:00:00Z", 4),
        ("to=2020-01-01", 0),
        ("session=s-1", 1),
        ("session=s-1&outcome=errors", 0),
        ("project=default", 4),
        ("project=proj_none", 0),
        ("member=person_none", 0),
        // Not for customers: they do not know providers.
        ("upstream=nobody", 4),
        ("account=acct_0", 4),
    ] {
        let listed = admin.listed(&format!("/portal/requests?{query}")).await;
        assert_eq!(listed.len(), expected, "{query}");
    }
    let failed = admin.listed("/portal/requests?outcome=errors").await;
    let details = admin.page(&failed[0]).await;
    assert!(details.contains("The model could not answer"), "{details}");
    // The filter stays in the form and in the links.
    let path = "/portal/requests?session=s-1&outcome=errors&from=2020-01-01T08:00";
    let page = admin.page(path).await;
    for told in [
        "value=\"s-1\"",
        "value=\"2020-01-01T08:00:00\"",
        "<option value=\"errors\" selected>",
        "session=s%2D1&amp;outcome=errors&amp;last=24h",
        "/portal/requests.csv?session=s%2D1",
        "No matching requests",
    ] {
        assert!(page.contains(told), "{told}: {page}");
    }
    for query in [
        "last=2h",
        "from=soon",
        "from=2027-01-02&to=2027-01-01",
        "outcome=bad",
    ] {
        for list in ["/portal/requests", "/portal/requests.csv"] {
            let page = admin.browser.get(&format!("{list}?{query}")).await;
            assert_eq!(page.status, 400, "{list}?{query}");
        }
    }
}

#[tokio::test]
async fn csv_of_requests_and_of_entries_adds_up_to_the_ledger() {
    let admin = used().await;
    let csv = admin.browser.get("/portal/requests.csv").await;
    assert_eq!(csv.status, 200);
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    let name = csv.header("content-disposition");
    assert!(
        name.starts_with("attachment; filename=\"requests-20"),
        "{name}"
    );
    let lines = fields(&csv.text);
    let column = |name: &str| lines[0].iter().position(|one| *one == name).unwrap();
    assert_eq!(lines.len(), 5, "{}", csv.text);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    let of = |name: &str| {
        lines[1..]
            .iter()
            .map(|line| line[column(name)])
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of("outcome"),
        ["provider_failed", "answered", "answered", "answered"]
    );
    assert_eq!(of("model"), [MODEL, MODEL, MODEL, "svc-basic"]);
    assert_eq!(of("session"), ["", "", "s-1", ""]);
    assert_eq!(
        (of("request ID")[1], of("request ID")[3]),
        ("'=1+1", "plain")
    );
    assert_eq!(of("input tokens")[..3], ["0", "1000", "1000"]);
    assert_eq!(of("key name"), ["laptop"; 4]);
    let streamed: Vec<_> = of("ms to first token")
        .iter()
        .map(|ms| !ms.is_empty())
        .collect();
    assert_eq!(streamed, [false, false, false, true]);
    let cost: i64 = of("cost USD").into_iter().map(nanos).sum();
    assert_eq!(cost, charged(&admin).await);
    // A refused request, which cost nothing.
    let path = admin.gateway.url("/v1/chat/completions");
    let nope = admin.gateway.client.post(path).bearer_auth(&admin.key);
    let nope = nope.header("x-request-id", "=1+2").json(&hello("=nope"));
    assert_eq!(nope.send().await.unwrap().status(), 404);
    for query in ["", "?outcome=errors", "?outcome=refused", "?status=404"] {
        let csv = admin
            .browser
            .get(&format!("/portal/requests.csv{query}"))
            .await;
        let lines = fields(&csv.text);
        assert_eq!(lines[0][20..], ["status", "code", "message"]);
        assert!(
            lines.iter().all(|line| line.len() >= lines[0].len()),
            "{}",
            csv.text
        );
        let first = &lines[1];
        assert_eq!(
            (first[2], first[4], first[10]),
            ("'=1+2", "laptop", "refused")
        );
        assert_eq!((first[8], nanos(first[16])), ("'=nope", 0));
        assert_eq!(first[20..22], ["404", "model_not_found"]);
        assert!(first[22].contains("`=nope`"), "{}", csv.text);
        let calls = lines[1..]
            .iter()
            .filter(|line| line[1].starts_with("call_"));
        let expected = match query {
            "" => 4,
            "?outcome=errors" => 1,
            _ => 0,
        };
        assert_eq!(
            (calls.count(), lines.len()),
            (expected, expected + 2),
            "{query}"
        );
    }
    for (query, count) in [
        ("outcome=errors&model=svc-standard", 1),
        ("outcome=provider_failed", 1),
        ("model=svc-basic", 1),
        ("to=2020-01-01", 0),
    ] {
        let csv = admin
            .browser
            .get(&format!("/portal/requests.csv?{query}"))
            .await;
        assert_eq!(fields(&csv.text).len(), 1 + count, "{query}: {}", csv.text);
    }

    admin
        .grant(json!({ "amount": "2.50", "reason": "=cmd()" }))
        .await;
    let billing = admin.browser.get("/portal/billing.csv").await;
    let lines = fields(&billing.text);
    assert_eq!(lines[0][5..], ["amount USD", "balance after USD"]);
    assert_eq!(lines.len(), 1 + 3 + 2, "{}", billing.text);
    assert_eq!(lines[1][2], "grant");
    assert_eq!(lines[1][4..6], ["'=cmd()", "2.500000"]);
    let balance: i64 = lines[1..].iter().map(|line| nanos(line[5])).sum();
    assert_eq!(balance, nanos(lines[1][6]));
    let spent = lines[1..].iter().filter(|line| line[2] == "charge");
    assert_eq!(spent.map(|line| -nanos(line[5])).sum::<i64>(), cost);
    let rest = format!("/portal/billing.csv?before={}", lines[2][1]);
    let rest = admin.browser.get(&rest).await;
    assert_eq!(fields(&rest.text).len(), lines.len() - 2);
}

#[tokio::test]
async fn usage_of_hours_and_minutes_is_that_of_the_ledger() {
    not_at_midnight().await;
    let admin = used().await;
    let dollars = |text: &str| nanos(&text.replace(['$', ','], ""));
    let spent = charged(&admin).await;
    for (range, table) in [
        ("range=1h", "Usage by minute"),
        ("range=24h", "Usage by hour"),
        ("range=today", "Usage by hour"),
        ("days=7", "Usage by day"),
    ] {
        let page = admin.page(&format!("/portal/usage?{range}")).await;
        let by_time = rows(&page, table);
        let calls: u64 = by_time[1..]
            .iter()
            .map(|row| row[1].parse::<u64>().unwrap())
            .sum();
        let cost: i64 = by_time[1..].iter().map(|row| dollars(&row[6])).sum();
        assert_eq!((calls, cost), (4, spent), "{range}");
        let by_model = rows(&page, "Usage by model");
        let cost: i64 = by_model[1..].iter().map(|row| dollars(&row[6])).sum();
        assert_eq!(cost, spent, "{range}");
        assert!(
            page.contains("1 failed (25.0 %), 3 charged"),
            "{range}: {page}"
        );
        assert!(
            page.contains("Time to first token") && page.contains("<svg"),
            "{range}"
        );
        let begun = by_time[1][0].ends_with(" UTC");
        assert_eq!(begun, range.starts_with("range"), "{:?}", by_time[1]);
        if begun {
            // A script shows it in the time zone of the reader.
            assert!(page.contains("data-to=\"minute\"") && page.contains("data-time=\""));
        }
        assert!(page.contains("Today (UTC)"));
        let csv = admin
            .browser
            .get(&format!("/portal/usage.csv?{range}"))
            .await;
        let lines = fields(&csv.text);
        let cost: i64 = lines[1..].iter().map(|line| nanos(line[10])).sum();
        assert_eq!(cost, spent, "{range}");
    }
    let overview = admin.page("/portal").await;
    for told in [
        "Spent today",
        "in 7 days",
        "this month",
        "Daily cost",
        "<svg",
    ] {
        assert!(overview.contains(told), "{told}: {overview}");
    }
    // The account is new.
    assert!(!overview.contains("At this pace"), "{overview}");
}

#[tokio::test]
async fn operators_find_requests_by_email_and_upstream() {
    let admin = used().await;
    let operator = with_token(&admin.gateway).await;
    let email = admin.browser.email.replace('@', "%40");
    for (query, expected) in [
        (format!("account={email}"), 4),
        (format!("account={}&outcome=errors", admin.account_id), 1),
        ("upstream=fake".into(), 4),
        ("upstream=nobody".into(), 0),
        (format!("account={email}&session=s-1&last=24h"), 1),
    ] {
        let list = operator
            .get(&format!("/portal/console/requests?{query}"))
            .await;
        let listed = links(list.assert_page(), "/portal/console/requests/call_");
        assert_eq!(listed.len(), expected, "{query}");
        let csv = operator
            .get(&format!("/portal/console/requests.csv?{query}"))
            .await;
        assert_eq!(
            fields(&csv.text).len(),
            1 + expected,
            "{query}: {}",
            csv.text
        );
    }
    let csv = operator.get("/portal/console/requests.csv").await;
    let lines = fields(&csv.text);
    let last = [
        "account ID",
        "upstream",
        "failure",
        "status",
        "code",
        "message",
    ];
    assert_eq!(lines[0][20..], last);
    assert_eq!(lines[1][20..22], [admin.account_id.as_str(), "fake"]);
    let none = operator
        .get("/portal/console/requests?account=nobody%40example.com")
        .await;
    assert!(
        none.assert_page()
            .contains("No account has the ID or email")
    );
    let none = operator
        .get("/portal/console/requests.csv?account=nobody%40example.com")
        .await;
    assert_eq!(none.status, 400);
    // For customers it does not exist.
    let customer = admin.browser.get("/portal/console/requests.csv").await;
    assert_eq!(customer.status, 404);
}
