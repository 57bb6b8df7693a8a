//! What is the same on all pages: the frame, compression, and accounts by name in the console's lists.

use std::io::Read as _;

use reqwest::{Method, Response};
use serde_json::json;

use crate::support::{
    Answer, TestGateway,
    console::with_token,
    gateway::hello,
    portal::{Browser, FORM, encoded},
    refused::request_id,
    upstream::{chunk, usage_chunk},
};

const CONSOLE: &str = "/portal/console";

#[tokio::test]
async fn a_slash_at_the_end_leads_to_the_start_page() {
    let gateway = TestGateway::start().await;
    let browser = Browser::new(&gateway);
    browser.get("/portal/").await.assert_sent_to("/portal");
    let console = browser.get("/portal/console/").await;
    console.assert_sent_to("/portal/console");
    assert_eq!(browser.get("/portal/nothing/").await.status, 404);
    gateway.stop().await;
}

async fn load(browser: &Browser, path: &str, accepted: Option<&str>) -> Response {
    let mut request = browser.request(Method::GET, path);
    if let Some(accepted) = accepted {
        request = request.header("accept-encoding", accepted);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name);
    value.map_or("", |value| value.to_str().unwrap()).to_owned()
}

/// Decompresses a body, whose announced length must be its own.
async fn unzipped(response: Response) -> String {
    assert_eq!(header(&response, "content-encoding"), "gzip");
    let length = header(&response, "content-length");
    let body = response.bytes().await.unwrap();
    assert_eq!(length, body.len().to_string());
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(body.as_ref());
    decoder.read_to_string(&mut text).unwrap();
    text
}

/// The page without its form tokens, which differ from one response to the next, and the first token.
fn without_tokens(page: &str) -> (String, String) {
    let marker = "name=\"token\" value=\"";
    let mut parts = page.split(marker);
    let mut rest = parts.next().unwrap().to_owned();
    let mut first = None;
    for part in parts {
        let (token, after) = part.split_once('"').unwrap();
        first.get_or_insert(token);
        rest.push_str(after);
    }
    (rest, first.unwrap().to_owned())
}

#[tokio::test]
async fn pages_assets_and_downloads_are_compressed_for_browsers_that_accept_it() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    let plain = load(&browser, "/portal/models", None).await;
    assert_eq!(header(&plain, "content-encoding"), "");
    assert_eq!(header(&plain, "vary"), "accept-encoding");
    let plain = plain.text().await.unwrap();
    let zipped = load(&browser, "/portal/models", Some("br, gzip")).await;
    assert_eq!(header(&zipped, "vary"), "accept-encoding");
    assert_eq!(header(&zipped, "cache-control"), "no-store");
    let length: usize = header(&zipped, "content-length").parse().unwrap();
    assert!(length * 2 < plain.len(), "{length} of {}", plain.len());
    let zipped = unzipped(zipped).await;
    let ((same, one), (page, other)) = (without_tokens(&plain), without_tokens(&zipped));
    assert_eq!(page, same);
    assert_ne!(one, other, "the token is masked anew");
    for token in [one, other] {
        let body = encoded(&[("token", &token), ("name", "laptop")]);
        let request = browser.request(Method::POST, "/portal/keys");
        let request = request.header("origin", browser.origin()).body(body);
        let made = browser.send(request.header("content-type", FORM)).await;
        assert_eq!(made.status, 200, "{}", made.text);
    }
    let refused = load(&browser, "/portal/models", Some("gzip;q=0")).await;
    assert_eq!(header(&refused, "content-encoding"), "");

    let style = plain.split("/portal/assets/portal-").nth(1).unwrap();
    let style = format!("/portal/assets/portal-{}", style.split('"').next().unwrap());
    let whole = load(&browser, &style, None).await;
    assert_eq!(header(&whole, "vary"), "accept-encoding");
    let whole = whole.text().await.unwrap();
    let zipped = load(&browser, &style, Some("gzip")).await;
    assert!(header(&zipped, "cache-control").contains("immutable"));
    assert_eq!(unzipped(zipped).await, whole);
    // It has its header line alone, which is not worth compressing.
    let csv = load(&browser, "/portal/usage.csv", Some("gzip")).await;
    assert_eq!(header(&csv, "content-encoding"), "");
    assert_eq!(header(&csv, "vary"), "accept-encoding");
    gateway.stop().await;
}

#[tokio::test]
async fn a_streamed_answer_is_not_compressed() {
    let gateway = TestGateway::start().await;
    let browser = Browser::signed_in(&gateway).await;
    browser.get("/portal/playground").await.assert_page();
    let words = chunk(json!({ "content": "Good day ".repeat(500) }), None);
    let end = chunk(json!({}), Some("stop"));
    gateway
        .upstream
        .answer_chunks(&[words, end, usage_chunk(11, 3)]);
    let mut body = hello("svc-standard");
    body["stream"] = json!(true);
    let request = browser.request(Method::POST, "/portal/playground/run");
    let request = request
        .header("origin", browser.origin())
        .header("accept-encoding", "gzip")
        .header("x-form-token", browser.token());
    let streamed = browser.send(request.json(&body)).await;
    assert_eq!(streamed.status, 200, "{}", streamed.text);
    assert!(!streamed.headers.contains_key("content-encoding"));
    assert!(streamed.text.trim_end().ends_with("data: [DONE]"));
    gateway.stop().await;
}

#[tokio::test]
async fn lists_of_the_console_name_accounts() {
    let gateway = TestGateway::start().await;
    let id = gateway.account_id.as_str();
    let path = format!("/operator/accounts/{id}");
    let email = gateway.operate(Method::GET, &path, None).await;
    let email = email.assert_ok()["email"].as_str().unwrap().to_owned();
    let answered = gateway.chat(&hello("svc-standard")).await;
    answered.assert_ok();
    let refused = gateway.chat(&hello("no-such-model")).await;
    gateway.idle().await;
    // Someone who can sign in.
    let person = Browser::signed_in(&gateway).await;
    let browser = with_token(&gateway).await;
    browser.get("/portal/console/limits").await.assert_page();
    let limit = [("account", id), ("model", ""), ("rpm", "60"), ("tpm", "")];
    let set = browser.post("/portal/console/limits", &limit).await;
    assert_eq!(set.status, 303, "{}", set.text);
    let found = async |answer: &Answer| {
        let path = format!("{CONSOLE}/requests?id={}", request_id(answer));
        browser.get(&path).await.header("location").to_owned()
    };
    let (called, refused) = (found(&answered).await, found(&refused).await);
    assert!(called.contains("/call_") && refused.contains("/refused_"));
    let lists = [
        "requests",
        "requests/refused",
        "actions",
        "limits",
        "margin",
    ];
    let lists = lists.map(|list| format!("{CONSOLE}/{list}"));
    for page in lists.into_iter().chain([called, refused]) {
        let seen = browser.get(&page).await;
        let text = seen.assert_page();
        assert!(
            text.contains(&format!("title=\"{email} · {id}\"")),
            "{page}"
        );
        assert!(!text.contains(&format!("<code>{id}</code>")), "{page}");
    }
    let people = browser.get(&format!("{CONSOLE}/people")).await;
    let (email, id) = (&person.email, &person.account_id);
    for told in [
        format!("title=\"{email} · {id}\""),
        format!(
            "href=\"{CONSOLE}/accounts/{}#people\"",
            id.replace('_', "%5F")
        ),
    ] {
        assert!(
            people.assert_page().contains(&told),
            "{told}: {}",
            people.text
        );
    }
    assert!(!people.text.contains(&format!("<code>{id}</code>")));
    gateway.stop().await;
}
