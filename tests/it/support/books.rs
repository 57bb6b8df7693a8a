//! An account under watch: what its calls cost, and what they left in its minute.

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Stream, TestGateway,
    bodies::hello_with,
    gateway::{answer, hello},
};

/// Costs 2.00 / 9.00 / 0.20 a million: 2,000 / 9,000 / 200 billionths a token.
pub const MODEL: &str = "svc-standard";
/// What 11 tokens in and 3 out cost: the usage of every answer that is not about usage.
pub const PRICE: i64 = 11 * 2_000 + 3 * 9_000;

const DOLLARS: &str = "1000";
const RPM: u64 = 1_000_000;
/// More than fits beside each other in any test, and less than the largest request there is.
const TPM: u64 = 8_000_000;

/// An account that calls one model, with more credit than it can spend unless said otherwise.
pub struct Purse<'a> {
    gateway: &'a TestGateway,
    pub id: String,
    pub key: String,
    /// Billionths of a dollar.
    granted: i64,
    rpm: u64,
}

/// What an account has to show for its calls, once none of them is running.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Billionths of a dollar.
    pub spent: i64,
    /// How many calls were charged, one row each.
    pub charges: usize,
    /// How many requests the minute counts, and how many tokens.
    pub requests: u64,
    pub tokens: u64,
}

impl Books {
    /// So many calls of 11 tokens in and 3 out.
    pub fn charged(calls: u32) -> Self {
        Self {
            spent: i64::from(calls) * PRICE,
            charges: calls as usize,
            requests: calls.into(),
            tokens: u64::from(calls) * 14,
        }
    }

    /// So many calls whose answers were delivered uncounted: free, and what they reserved stays in the window.
    #[track_caller]
    pub fn assert_uncounted(&self, calls: u32) {
        let free = Self {
            tokens: self.tokens,
            ..Self::free(calls)
        };
        assert_eq!(*self, free);
        assert!(self.tokens >= u64::from(calls) * 128, "{self:?}");
    }

    /// So many calls that count as requests and cost nothing.
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
    /// A whole answer.
    Answered,
    /// A stream to its `[DONE]`.
    Finished,
    /// A stream that ended with an error event.
    Interrupted,
    /// 502 in the envelope, with the provider's status for a code if there was one.
    Failed(Option<String>),
}

impl View {
    /// 502 without a code.
    pub const FAILED: Self = Self::Failed(None);
}

impl TestGateway {
    pub async fn purse(&self) -> Purse<'_> {
        self.purse_with(DOLLARS, RPM).await
    }

    /// With so many dollars and requests a minute.
    pub async fn purse_with(&self, dollars: &str, rpm: u64) -> Purse<'_> {
        self.purse_granted(json!({ "amount": dollars }), rpm).await
    }

    /// With this grant.
    pub async fn purse_granted(&self, grant: Value, rpm: u64) -> Purse<'_> {
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
        Purse {
            gateway: self,
            id,
            key,
            granted,
            rpm,
        }
    }
}

impl Purse<'_> {
    /// A request in the purse's name.
    pub fn request(&self, body: &Value) -> reqwest::RequestBuilder {
        let url = self.gateway.url("/v1/chat/completions");
        self.gateway
            .client
            .post(url)
            .bearer_auth(&self.key)
            .json(body)
    }

    /// Asks `question` and reads the answer to its end; it must be one that keeps the contract.
    pub async fn ask(&self, question: &str, stream: bool) -> View {
        self.ask_for_text(question, stream).await.0
    }

    /// The same, with the text that a stream brought.
    pub async fn ask_for_text(&self, question: &str, stream: bool) -> (View, String) {
        let mut body = hello(MODEL);
        body["messages"][0]["content"] = question.into();
        body["stream"] = stream.into();
        let response = self.request(&body).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        assert!(headers.contains_key("x-request-id"), "{question}");
        let text = response.text().await.unwrap_or_else(|error| {
            panic!("an answer ends in good order: {question}: {error}");
        });
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

    /// The books, once no call is running. Nothing may be held then, and what was spent must be
    /// what the charged calls cost.
    pub async fn books(&self) -> Books {
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
        let (requests, tokens) = self.minute().await;
        Books {
            spent,
            charges: rows.len(),
            requests,
            tokens,
        }
    }

    /// What the minute counts, by the headers of a refusal (which itself leaves no trace).
    async fn minute(&self) -> (u64, u64) {
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

/// An amount of dollars as it is written, in billionths.
fn nanos(amount: &Value) -> i64 {
    let amount = amount.as_str().expect("money is a text");
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    format!("{whole}{fraction:0<9}").parse().unwrap()
}

/// A stream that was opened, and its text. One that breaks off says so, and what came of it is
/// whole to the last event.
fn seen(stream: Stream) -> (View, String) {
    let text = stream.content(0);
    if stream.is_done() {
        stream.assert_complete(MODEL);
        return (View::Finished, text);
    }
    stream.assert_interrupted(MODEL);
    (View::Interrupted, text)
}
