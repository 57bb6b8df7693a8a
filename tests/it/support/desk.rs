//! An account with credit and a key, whose owner is looking at its pages.

use reqwest::Method;
use serde_json::{Value, json};

use super::{FakeUpstream, Plan, TestGateway, portal::Browser, upstream::completion};

/// Waits out the end of a day (UTC), for tests whose calls are to be on the same one.
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
    /// With a thousand dollars, called "a gift", and a plan that has every model.
    pub async fn open() -> Self {
        let gateway = TestGateway::start().await;
        let browser = Browser::signed_in(&gateway).await;
        let account_id = browser.account_id.clone();
        let mut desk = Self {
            gateway,
            browser,
            account_id,
            key_id: String::new(),
            key: String::new(),
        };
        (desk.key_id, desk.key) = desk.new_key("laptop").await;
        desk
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

    /// Its ID and the key itself.
    pub async fn new_key(&self, name: &str) -> (String, String) {
        let path = format!("/operator/accounts/{}/keys", self.account_id);
        let made = self
            .operate(Method::POST, &path, json!({ "name": name }))
            .await;
        let text = |field: &str| made[field].as_str().unwrap().to_owned();
        (text("id"), text("key"))
    }

    /// A page, which must be there, with nothing in it that a browser would not be allowed to run.
    pub async fn page(&self, path: &str) -> String {
        let page = self.browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        assert_eq!(page.text.matches("<h1").count(), 1, "{path}");
        assert!(!page.text.contains(" style="), "{path}: {}", page.text);
        page.text
    }

    /// The pages of requests that a page links to, in order.
    pub async fn listed(&self, path: &str) -> Vec<String> {
        links(&self.page(path).await, "/portal/requests/")
    }
}

impl FakeUpstream {
    /// An answer that used so many tokens: in, of them cached, out, of them reasoning.
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

/// Where a page leads that begins like this, in order.
pub fn links(page: &str, start: &str) -> Vec<String> {
    let found = page.match_indices("href=\"").filter_map(|(at, _)| {
        let target = page[at + 6..].split('"').next()?;
        // As a browser reads it.
        target
            .starts_with(start)
            .then(|| target.replace("&amp;", "&"))
    });
    found.collect()
}

/// The texts of a table's rows, cells one after the other; `caption` is the table's.
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

/// What stands between the tags.
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
