//! A test account whose charges and rate-limit window can be read back and compared.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Stream, TestGateway,
    bodies::hello_with,
    described::exchange,
    gateway::{answer, hello},
};

/// Its prices are 2.00 / 9.00 / 0.20 dollars per million tokens: 2,000 / 9,000 / 200 nano-dollars a token.
pub const MODEL: &str = "svc-standard";
/// Price of 11 input and 3 output tokens: the usage of every response in tests that are not about usage.
pub const PRICE: i64 = 11 * 2_000 + 3 * 9_000;

const DOLLARS: &str = "1000";
const RPM: u64 = 1_000_000;
/// Larger than all requests of any test together, and smaller than the largest possible request.
const TPM: u64 = 8_000_000;

/// An account that calls one model, with more credit than it can spend unless a test sets less.
pub struct Customer<'a> {
    gateway: &'a TestGateway,
    pub id: String,
    pub key: String,
    /// In nano-dollars.
    granted: i64,
    rpm: u64,
}

/// What the ledger and the limiter have recorded for an account, read while none of its calls is running.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LedgerView {
    /// In nano-dollars.
    pub spent: i64,
    /// Number of charged calls, one usage row each.
    pub charges: usize,
    /// Requests and tokens in the rate-limit window.
    pub requests: u64,
    pub tokens: u64,
}

impl LedgerView {
    /// `calls` calls of 11 input and 3 output tokens.
    pub fn charged(calls: u32) -> Self {
        Self {
            spent: i64::from(calls) * PRICE,
            charges: calls as usize,
            requests: calls.into(),
            tokens: u64::from(calls) * 14,
        }
    }

    /// Asserts `calls` calls whose responses were delivered without usage: they are free, and their reservations stay
    /// in the window.
    #[track_caller]
    pub fn assert_uncounted(&self, calls: u32) {
        let free = Self {
            tokens: self.tokens,
            ..Self::free(calls)
        };
        assert_eq!(*self, free);
        assert!(self.tokens >= u64::from(calls) * 128, "{self:?}");
    }

    /// `calls` calls that count as requests and cost nothing.
    pub fn free(calls: u32) -> Self {
        Self {
            requests: calls.into(),
            ..Self::default()
        }
    }
}

/// How a call ends for its caller.
#[derive(Debug, PartialEq, Eq)]
pub enum View {
    /// A complete response.
    Answered,
    /// A stream that ended with `[DONE]`.
    Finished,
    /// A stream that ended with an error event.
    Interrupted,
    /// 502 with an error envelope; the code is the provider's status, if it sent one.
    Failed(Option<String>),
}

impl View {
    /// 502 without a code.
    pub const FAILED: Self = Self::Failed(None);
}

impl TestGateway {
    pub async fn customer(&self) -> Customer<'_> {
        self.customer_with(DOLLARS, RPM).await
    }

    /// Creates an account with this many dollars and requests per minute.
    pub async fn customer_with(&self, dollars: &str, rpm: u64) -> Customer<'_> {
        self.customer_with_grant(json!({ "amount": dollars }), rpm)
            .await
    }

    /// Creates an account with this grant.
    pub async fn customer_with_grant(&self, grant: Value, rpm: u64) -> Customer<'_> {
        let account = json!({ "email": "a@example.com", "track": "business", "tier": "flex" });
        let account = self
            .operate(Method::POST, "/operator/accounts", Some(account))
            .await;
        let id = account.assert_ok()["id"].as_str().unwrap().to_owned();
        let granted = nanos(&grant["amount"]);
        let grants = format!("/operator/accounts/{id}/grants");
        let given = self.operate(Method::POST, &grants, Some(grant)).await;
        given.assert_ok();
        let limit = json!({ "account": id, "model": MODEL, "rpm": rpm, "tpm": TPM });
        let limited = self
            .operate(Method::PUT, "/operator/limits", Some(limit))
            .await;
        limited.assert_ok();
        let (_, key) = self.new_key(&id).await;
        Customer {
            gateway: self,
            id,
            key,
            granted,
            rpm,
        }
    }
}

impl Customer<'_> {
    /// A chat request with this account's key.
    pub fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        let url = self.gateway.url("/v1/chat/completions");
        self.gateway
            .client
            .post(url)
            .bearer_auth(&self.key)
            .json(body)
    }

    /// Sends `question` and reads the response to its end, asserting that the response keeps the contract.
    pub async fn ask(&self, question: &str, stream: bool) -> View {
        self.ask_for_text(question, stream).await.0
    }

    /// Like `ask`; also returns the text of a stream.
    pub async fn ask_for_text(&self, question: &str, stream: bool) -> (View, String) {
        let mut body = hello(MODEL);
        body["messages"][0]["content"] = question.into();
        body["stream"] = stream.into();
        let (status, headers, text) = exchange(self.request(&body)).await;
        assert!(headers.contains_key("x-request-id"), "{question}");
        for name in headers.keys() {
            let limits = name.as_str().starts_with("x-ratelimit") || name == "retry-after";
            assert!(!limits, "{name} is for 429 alone: {question}: {text}");
        }
        if status == 200 && stream {
            return seen(Stream { text });
        }
        let body: Value = serde_json::from_str(&text).expect("an answer is JSON");
        if status == 200 {
            assert_eq!(body["model"], MODEL, "{question}");
            return (View::Answered, String::new());
        }
        let error = &body["error"];
        let found = (status, error["type"].as_str());
        assert_eq!(found, (502, Some("upstream_error")), "{question}: {text}");
        let code = error["code"].as_str().map(str::to_owned);
        (View::Failed(code), String::new())
    }

    /// The account's ledger view, once no call is running. Asserts that nothing is held and that the amount spent is
    /// the sum of the charges.
    pub async fn ledger_view(&self) -> LedgerView {
        self.gateway.idle().await;
        let account = format!("/operator/accounts/{}", self.id);
        let shown = self.gateway.operate(Method::GET, &account, None).await;
        let shown = shown.assert_ok();
        assert_eq!(nanos(&shown["held"]), 0, "nothing is held");
        let spent = self.granted - nanos(&shown["balance"]);
        let usage = format!("{account}/usage");
        let rows = self.gateway.operate(Method::GET, &usage, None).await;
        let rows = rows.assert_ok()["data"].as_array().unwrap();
        let cost: i64 = rows.iter().map(|row| nanos(&row["cost"])).sum();
        assert_eq!(spent, cost, "what was spent is what the calls cost");
        let (requests, tokens) = self.window().await;
        LedgerView {
            spent,
            charges: rows.len(),
            requests,
            tokens,
        }
    }

    /// Requests and tokens in the window, read from the headers of a refusal (a refused request reserves nothing).
    async fn window(&self) -> (u64, u64) {
        let too_much = hello_with(MODEL, json!({ "max_tokens": 66_000, "n": 128 }));
        let refused = answer(self.request(&too_much)).await;
        assert_eq!(refused.status, 429, "{}", refused.body);
        let left = |name: &str| -> u64 {
            let value = refused.headers[name].to_str().unwrap();
            value.parse().unwrap()
        };
        (
            self.rpm - left("x-ratelimit-remaining"),
            TPM - left("x-ratelimit-remaining-tokens"),
        )
    }
}

/// Parses a decimal amount of dollars into nano-dollars.
pub fn nanos(amount: &Value) -> i64 {
    let amount = amount.as_str().expect("money is a text");
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    format!("{whole}{fraction:0<9}").parse().unwrap()
}

/// How an opened stream ended, and its text. An interrupted stream must end with an error event, after whole events
/// only.
fn seen(stream: Stream) -> (View, String) {
    let text = stream.content(0);
    if stream.is_done() {
        stream.assert_complete(MODEL);
        return (View::Finished, text);
    }
    stream.assert_interrupted(MODEL);
    (View::Interrupted, text)
}
