//! An account with credit and a key, and a browser that is signed in as its owner.

use reqwest::Method;
use serde_json::{Value, json};

use super::{FakeUpstream, Plan, TestGateway, portal::Browser, upstream::completion};

/// Waits until after midnight (UTC) if it is less than a minute away, for tests whose calls must fall on one day.
pub async fn not_at_midnight() {
    let left = 86_400 - tollgate::base::timestamp::now().rem_euclid(86_400);
    if left < 60 {
        tokio::time::sleep(std::time::Duration::from_secs(left.unsigned_abs())).await;
    }
}

pub struct Admin {
    pub gateway: TestGateway,
    pub browser: Browser,
    pub account_id: String,
    pub key_id: String,
    pub key: String,
}

impl Admin {
    /// Starts a gateway with an account that has a grant of 1,000 dollars named "a gift" and a plan with every model.
    pub async fn open() -> Self {
        let gateway = TestGateway::start().await;
        let browser = Browser::signed_in(&gateway).await;
        let account_id = browser.account_id.clone();
        let mut admin = Self {
            gateway,
            browser,
            account_id,
            key_id: String::new(),
            key: String::new(),
        };
        (admin.key_id, admin.key) = admin.new_key("laptop").await;
        admin
    }

    pub async fn operate(&self, method: Method, path: &str, body: Value) -> Value {
        let answer = self.gateway.operate(method, path, Some(body)).await;
        answer.assert_ok().clone()
    }

    pub async fn subscribe(&self, Plan(track, tier): Plan) {
        let path = format!("/operator/accounts/{}", self.account_id);
        let plan = json!({ "track": track, "tier": tier });
        self.operate(Method::PATCH, &path, plan).await;
    }

    pub async fn grant(&self, grant: Value) {
        let path = format!("/operator/accounts/{}/grants", self.account_id);
        self.operate(Method::POST, &path, grant).await;
    }

    /// Creates a key and returns its ID and secret.
    pub async fn new_key(&self, name: &str) -> (String, String) {
        let path = format!("/operator/accounts/{}/keys", self.account_id);
        let made = self
            .operate(Method::POST, &path, json!({ "name": name }))
            .await;
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        (text("id"), text("key"))
    }

    /// Loads a page; asserts status 200, one `<h1>`, and no inline styles, which the content security policy forbids.
    pub async fn page(&self, path: &str) -> String {
        let page = self.browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        assert_eq!(page.text.matches("<h1").count(), 1, "{path}");
        assert!(!page.text.contains(" style="), "{path}: {}", page.text);
        page.text
    }

    /// Links to request pages on this page, in order.
    pub async fn listed(&self, path: &str) -> Vec<String> {
        links(&self.page(path).await, "/portal/requests/call_")
    }
}

impl FakeUpstream {
    /// Responds with this usage: prompt tokens, cached of them, completion tokens, reasoning of them.
    pub fn answer_using(&self, prompt: u32, cached: u32, completed: u32, reasoning: u32) {
        let mut answer = completion("Hi");
        answer["usage"] = json!({
            "prompt_tokens": prompt, "completion_tokens": completed,
            "total_tokens": prompt + completed,
            "prompt_tokens_details": { "cached_tokens": cached },
            "completion_tokens_details": { "reasoning_tokens": reasoning },
        });
        self.answer_json(200, &answer);
    }
}

/// Link targets on the page that begin with `start`, in order.
pub fn links(page: &str, start: &str) -> Vec<String> {
    let found = page.match_indices("href=\"").filter_map(|(at, _)| {
        let target = page[at + 6..].split('"').next()?;
        // Decode `&amp;` as a browser does.
        target
            .starts_with(start)
            .then(|| target.replace("&amp;", "&"))
    });
    found.collect()
}

/// Cell texts of each row of the table with this caption.
pub fn rows(page: &str, caption: &str) -> Vec<Vec<String>> {
    let start = format!("<caption>{caption}</caption>");
    let (_, table) = page
        .split_once(&start)
        .unwrap_or_else(|| panic!("{caption}: {page}"));
    let (table, _) = table.split_once("</table>").unwrap();
    table
        .split("<tr>")
        .skip(1)
        .map(|row| {
            let cells = row.split("</td>").flat_map(|part| part.split("</th>"));
            let cells = cells.map(text).filter(|cell| !cell.is_empty());
            cells.collect()
        })
        .collect()
}

/// The text outside of tags.
fn text(html: &str) -> String {
    let parts = html.split('<');
    let parts = parts
        .enumerate()
        .map(|(number, part)| match part.split_once('>') {
            Some((_, text)) if number > 0 => text,
            _ => part,
        });
    parts.collect::<String>().trim().to_owned()
}
