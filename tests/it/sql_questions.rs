//! The queries of docs/SQL.md, as operators run them: with `sqlite3` and `psql`, beside a running gateway.
//!
//! The results of a fixed traffic are computed by hand below. The suite runs once on each store, and both have to give
//! these results, so the stores agree with each other as well.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    Gate, RawConnection, Step, TestGateway,
    admin::not_at_midnight,
    bodies::long,
    gateway::until,
    raw::chat_request,
    sql::{self, Question, Table, questions},
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// Its prices are 2.00 / 9.00 / 0.20 dollars per million tokens.
const STANDARD: &str = "svc-standard";
/// Its prices are 5.00 / 30.00 / 0.50.
const BASIC: &str = "svc-basic";
/// What the operator pays, and timeouts that no test reaches.
const DEPLOYMENT: &str = r#"
    cost = { input = "1.00", output = "4.00", cached_input = "0.10" }
    timeouts = { first_byte_seconds = 120, idle_seconds = 120 }
"#;
/// The month and the account that the document uses as examples.
const MONTH: &str = "2026-11";
const ACCOUNT: &str = "acct_ada";
const HELD: &str = "What does each customer have, and what is held now?";

/// A gateway after the traffic, and the document's questions about it.
struct Asked {
    gateway: TestGateway,
    ada: Customer,
    questions: Vec<Question>,
    /// The titles of those that were asked.
    titles: RefCell<BTreeSet<&'static str>>,
    month: String,
}

struct Customer {
    id: String,
    keys: Vec<String>,
}

async fn customer(gateway: &TestGateway, email: &str, grants: &[Value], keys: &[&str]) -> Customer {
    let post = async |path: &str, body: Value| {
        let made = gateway.operate(Method::POST, path, Some(body)).await;
        made.assert_ok().clone()
    };
    let account = json!({ "email": email, "track": "business", "tier": "flex" });
    let account = post("/operator/accounts", account).await;
    let id = account["id"].as_str().unwrap().to_owned();
    for grant in grants {
        post(&format!("/operator/accounts/{id}/grants"), grant.clone()).await;
    }
    let mut secrets = Vec::new();
    for name in keys {
        let path = format!("/operator/accounts/{id}/keys");
        let key = post(&path, json!({ "name": name })).await;
        secrets.push(key["key"].as_str().unwrap().to_owned());
    }
    Customer { id, keys: secrets }
}

/// A request of this many bytes, which may use as many tokens.
fn body(model: &str, bytes: usize, max_tokens: u32, stream: bool) -> Value {
    let mut body = long(model, bytes);
    body["max_tokens"] = max_tokens.into();
    body["stream"] = stream.into();
    body
}

/// Sends a chat, reads the response to its end, and returns its status.
async fn send(gateway: &TestGateway, key: &str, request_id: &str, body: &Value) -> u16 {
    let request = gateway.client.post(gateway.url("/v1/chat/completions"));
    let mut request = request.bearer_auth(key).header("x-request-id", request_id);
    if request_id.starts_with("ada") {
        request = request
            .header("originator", "codex_cli_rs")
            .header("session-id", "0199a7c4");
    }
    let response = request.json(body).send().await.unwrap();
    let status = response.status().as_u16();
    response.bytes().await.unwrap();
    status
}

fn answered_stream(prompt: u32, completed: u32) -> Vec<Value> {
    let text = chunk(json!({ "content": "Hi" }), Some("stop"));
    vec![text, usage_chunk(prompt, completed)]
}

/// Ada has three charged calls and a failure; Bob a charged stream, a call that he left, and three failures.
async fn traffic(gateway: &TestGateway, ada: &Customer, bob: &Customer) {
    let [laptop, server] = &ada.keys[..] else {
        panic!("two keys")
    };
    let phone = &bob.keys[0];
    let upstream = &gateway.upstream;
    // 60,000 × 2,000 + 40,000 × 200 + 20,000 × 9,000 nano-dollars = 0.308; provider 0.06 + 0.004 + 0.08 = 0.144.
    upstream.answer_using(100_000, 40_000, 20_000, 5_000);
    let asked = body(STANDARD, 100_000, 20_000, false);
    assert_eq!(send(gateway, laptop, "ada-1", &asked).await, 200);
    // 0.002 + 0.09 = 0.092; provider 0.001 + 0.04 = 0.041.
    upstream.answer_using(1_000, 0, 10_000, 0);
    let asked = body(STANDARD, 1_000, 10_000, false);
    assert_eq!(send(gateway, server, "ada-2", &asked).await, 200);
    // 5,000 × 5,000 + 5,000 × 500 + 10,000 × 30,000 = 0.3275; provider 0.005 + 0.0005 + 0.04 = 0.0455.
    upstream.answer_using(10_000, 5_000, 10_000, 0);
    let asked = body(BASIC, 10_000, 10_000, false);
    assert_eq!(send(gateway, server, "ada-3", &asked).await, 200);
    // 0.004 + 0.009 = 0.013; provider 0.002 + 0.004 = 0.006.
    upstream.answer_chunks(&answered_stream(2_000, 1_000));
    let stream = body(STANDARD, 2_000, 1_000, true);
    assert_eq!(send(gateway, phone, "bob-1", &stream).await, 200);
    // 0.002 + 0.009 = 0.011; provider 0.001 + 0.004 = 0.005.
    let left = Gate::default();
    let mut answer = completion("Hi");
    answer["usage"] =
        json!({ "prompt_tokens": 1000, "completion_tokens": 1000, "total_tokens": 2000 });
    let answer = response(200, "application/json", &answer.to_string());
    upstream.play(vec![Step::Until(left.clone()), Step::Send(answer)]);
    let calls = upstream.calls();
    let mut connection = RawConnection::open(gateway.public).await;
    let asked = body(STANDARD, 1_000, 1_000, false);
    let asked = chat_request(phone, "x-request-id: bob-2\r\n", &asked);
    connection.send(asked).await;
    until("the provider gets the request", || upstream.calls() > calls).await;
    connection.hang_up().await;
    left.open();
    gateway.idle().await;
    // Five calls that are not charged.
    let asked = body(STANDARD, 1_000, 1_000, false);
    upstream.answer(500, "text/plain", "no");
    assert_eq!(send(gateway, laptop, "ada-4", &asked).await, 502);
    upstream.answer(529, "text/plain", "busy");
    assert_eq!(send(gateway, phone, "bob-3", &asked).await, 502);
    assert_eq!(send(gateway, phone, "bob-4", &asked).await, 502);
    let begun = format!("data: {}\n\n", chunk(json!({ "content": "Hal" }), None));
    upstream.answer_stream(&begun);
    assert_eq!(send(gateway, phone, "bob-5", &stream).await, 200);
    upstream.answer_chunks(&[chunk(json!({ "content": "Hi" }), Some("stop"))]);
    assert_eq!(send(gateway, phone, "bob-6", &stream).await, 200);
    gateway.idle().await;
}

impl Asked {
    async fn after_traffic() -> Self {
        not_at_midnight().await;
        let month = tollgate::base::timestamp::shown(tollgate::base::timestamp::now());
        let gateway = TestGateway::start_with(DEPLOYMENT).await;
        let expired = json!({ "amount": "5", "expires_at": "2026-01-01T00:00:00Z" });
        let grants = [json!({ "amount": "10" }), expired];
        let ada = customer(&gateway, "ada@example.com", &grants, &["laptop", "server"]).await;
        let grants = [json!({ "amount": "2" })];
        let bob = customer(&gateway, "bob@example.com", &grants, &["phone"]).await;
        traffic(&gateway, &ada, &bob).await;
        let asked = Self {
            gateway,
            ada,
            questions: questions(),
            titles: RefCell::default(),
            month: month[..MONTH.len()].to_owned(),
        };
        asked.until("SELECT count(*) FROM calls", "10").await;
        asked.until("SELECT count(*) FROM held_now", "0").await;
        asked
    }

    fn query(&self, script: &str) -> Table {
        sql::query(self.gateway.data.path(), script)
    }

    /// Waits until a query has this result: what calls leave is visible within about a second.
    async fn until(&self, query: &str, expected: &str) {
        let started = Instant::now();
        loop {
            let found = self.query(&format!("{query};"));
            if found.rows == [[expected]] {
                return;
            }
            assert!(
                started.elapsed().as_secs() < 60,
                "{query}: {:?}",
                found.rows
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The document's result for a question, whose columns must be those of its example.
    fn ask(&self, title: &'static str) -> Table {
        self.titles.borrow_mut().insert(title);
        let mut found = self.questions.iter().filter(|one| one.title == title);
        let question = found
            .next()
            .unwrap_or_else(|| panic!("no question {title}"));
        let query = question.query().replace(MONTH, &self.month);
        let table = self.query(&query.replace(ACCOUNT, &self.ada.id));
        if !table.rows.is_empty() {
            assert_eq!(table.columns, question.columns, "{title}");
        }
        table
    }

    #[track_caller]
    fn assert_answer<const N: usize>(&self, title: &'static str, expected: &[[&str; N]]) {
        let found = self.ask(title).rows;
        let is_same = found.len() == expected.len()
            && found.iter().zip(expected).all(|(found, expected)| {
                let mut cells = found.iter().zip(expected);
                found.len() == N && cells.all(|(found, expected)| is_equal(found, expected))
            });
        assert!(is_same, "{title}\n{found:?}\nis not\n{expected:?}");
    }
}

/// Nano-dollars as dollars with four decimals.
fn dollars(nanos: i64) -> String {
    let rounded = (nanos + 50_000) / 100_000;
    format!("{}.{:04}", rounded / 10_000, rounded % 10_000)
}

/// Whether two cells are the same text or the same number: `5`, `5.0` and `5.0000` are.
fn is_equal(found: &str, expected: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    match (number(found), number(expected)) {
        (Some(found), Some(expected)) => (found - expected).abs() < 1e-9,
        _ => found == expected,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_question_of_the_document_has_the_expected_answer() {
    let asked = Asked::after_traffic().await;
    asked.assert_answer(
        "What did each customer spend in a month?",
        &[
            ["ada@example.com", "4", "3", "0.7275"],
            ["bob@example.com", "6", "2", "0.024"],
        ],
    );
    asked.assert_answer(
        HELD,
        &[
            ["bob@example.com", "1.976", "0", "1.976"],
            ["ada@example.com", "9.2725", "0", "9.2725"],
            ["dev@example.com", "1000", "0", "1000"],
        ],
    );
    assert_statement(&asked.ask("What is a customer's statement?"));
    let status = "responded with status";
    asked.assert_answer(
        "Which calls were not charged, and why?",
        &[
            ["provider_failed", &format!("{status} 529"), "2", "bob-4"],
            [
                "interrupted",
                "response ended early: no finish reason",
                "1",
                "bob-5",
            ],
            ["no_usage", "", "1", "bob-6"],
            ["provider_failed", &format!("{status} 500"), "1", "ada-4"],
        ],
    );
    asked.assert_answer(
        "What is the margin by model in a month?",
        &[
            [BASIC, "1", "1", "0.3275", "0.0455", "0.282"],
            [STANDARD, "4", "4", "0.424", "0.196", "0.228"],
        ],
    );
    asked.assert_answer(
        "What did each key spend in a month?",
        &[
            ["ada@example.com", "server", "2", "0.4195"],
            ["ada@example.com", "laptop", "2", "0.308"],
            ["bob@example.com", "phone", "6", "0.024"],
        ],
    );
    asked.assert_answer(
        "Which were the most expensive calls of the last 24 hours?",
        &[
            ["ada-3", BASIC, "10000", "10000", "0.3275"],
            ["ada-1", STANDARD, "100000", "20000", "0.308"],
            ["ada-2", STANDARD, "1000", "10000", "0.092"],
            ["bob-1", STANDARD, "2000", "1000", "0.013"],
            ["bob-2", STANDARD, "1000", "1000", "0.011"],
        ],
    );
    assert_failures(&asked.ask("How often did each provider fail, hour by hour?"));
    asked.assert_answer(
        "What was granted, and what expired unused?",
        &[
            ["ada@example.com", "expiry", "1", "-5"],
            ["ada@example.com", "grant", "2", "15"],
            ["bob@example.com", "grant", "1", "2"],
            ["dev@example.com", "grant", "1", "1000"],
        ],
    );
    asked.assert_answer(
        "How much of each model's input came from a provider's cache?",
        &[[STANDARD, "104000", "38.5"], [BASIC, "10000", "50"]],
    );
    asked.assert_answer(
        "What did each session of a coding agent cost?",
        &[["0199a7c4", "codex_cli_rs", "4", "111000", "40.5", "0.7275"]],
    );
    asked.assert_answer::<3>("Does it add up?", &[]);
    let titles = asked.questions.iter().map(|question| question.title);
    assert_eq!(
        *asked.titles.borrow(),
        titles.collect(),
        "every question was asked"
    );
    assert_eq!(asked.questions.len(), 12, "eleven, and whether it adds up");
}

/// Two grants, one of them expired, and three charges, with the balance after each.
fn assert_statement(statement: &Table) {
    let expected = [
        ("grant", "10", "10"),
        ("grant", "5", "15"),
        ("expiry", "-5", "10"),
        ("charge", "-0.308", "9.692"),
        ("charge", "-0.092", "9.6"),
        ("charge", "-0.3275", "9.2725"),
    ];
    assert_eq!(statement.rows.len(), expected.len(), "{statement:?}");
    let today = tollgate::base::timestamp::shown(tollgate::base::timestamp::now());
    let mut before = 0;
    for (row, (kind, usd, balance)) in statement.rows.iter().zip(expected) {
        let seq: i64 = row[0].parse().unwrap();
        assert!(before < seq, "in order: {statement:?}");
        before = seq;
        assert_eq!(row[1].len(), "2026-11-16 09:30:12".len(), "{row:?}");
        assert_eq!(row[1][..10], today[..10], "{row:?}");
        assert_eq!(row[2], kind, "{statement:?}");
        assert!(
            is_equal(&row[4], usd) && is_equal(&row[5], balance),
            "{row:?}"
        );
    }
}

/// Failures by outcome; a full hour may pass between them.
fn assert_failures(failures: &Table) {
    let count = |outcome: &str| -> u32 {
        let rows = failures.rows.iter();
        let of_it = rows.filter(|row| row[1] == "fake" && row[2] == outcome);
        of_it.map(|row| row[3].parse::<u32>().unwrap()).sum()
    };
    let counts = ["provider_failed", "interrupted", "no_usage"].map(count);
    assert_eq!(counts, [3, 1, 1], "{failures:?}");
    let hours: BTreeSet<_> = failures.rows.iter().map(|row| &row[0]).collect();
    assert!((1..=2).contains(&hours.len()), "{failures:?}");
    let now = tollgate::base::timestamp::shown(tollgate::base::timestamp::now());
    for hour in hours {
        assert_eq!((&hour[..10], &hour[13..]), (&now[..10], ":00"), "{hour}");
    }
}

/// A running call is seen from outside, and gone when it ends.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_now_is_what_running_calls_hold() {
    let gateway = TestGateway::start_with(DEPLOYMENT).await;
    let grants = [json!({ "amount": "2" })];
    let customer = customer(&gateway, "bob@example.com", &grants, &["phone"]).await;
    let end = Gate::default();
    let begun = format!("data: {}\n\n", chunk(json!({ "content": "Hi" }), None));
    gateway.upstream.play(vec![
        Step::Send([stream_head(), begun.into_bytes()].concat()),
        Step::Until(end.clone()),
        Step::Send(events(&answered_stream(1_000, 1_000)).into_bytes()),
        Step::Close,
    ]);
    let asked = Asked {
        gateway,
        ada: customer,
        questions: questions(),
        titles: RefCell::default(),
        month: String::new(),
    };
    let stream = body(STANDARD, 1_000, 1_000, true);
    let running = send(&asked.gateway, &asked.ada.keys[0], "running", &stream);
    let look = async {
        asked.until("SELECT calls FROM held_now", "1").await;
        let (calls, held) = asked.gateway.inside().ledger.all_held();
        assert!(held.nanos() > 9_000_000, "1,000 output tokens: {held:?}");
        assert_eq!(calls, 1);
        let [held, available] = [held.nanos(), 2_000_000_000 - held.nanos()].map(dollars);
        asked.assert_answer(
            HELD,
            &[
                ["bob@example.com", "2", &held, &available],
                ["dev@example.com", "1000", "0", "1000"],
            ],
        );
        end.open();
    };
    let (status, ()) = tokio::join!(running, look);
    assert_eq!(status, 200);
    asked.until("SELECT count(*) FROM held_now", "0").await;
    asked.assert_answer(
        HELD,
        &[
            ["bob@example.com", "1.989", "0", "1.989"],
            ["dev@example.com", "1000", "0", "1000"],
        ],
    );
}
