//! Does one kind of work a number of times and exits: `tests/counts/run` counts the instructions.
//!
//! The gateway, its provider and its client are one process, with real sockets and real files. Requests come one
//! after the other, so that every request does identical work; the other two are part of every count, and do as
//! little as possible.

use std::{
    collections::{BTreeMap, HashMap},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

use tempfile::TempDir;
use tollgate::{
    base::{durability::Durability, money::NanoUsd, rate::Ceilings},
    catalog::Catalog,
    config::Config,
    ledger::{Caller, HoldRequest, Ledger, Outcome},
    limits::Limiter,
    server,
    wire::chat::Usage,
};

#[allow(dead_code, reason = "benchmarks use more of it")]
#[path = "../../benches/support/mod.rs"]
mod support;

use support::{customer, hold_request};

const MODEL: &str = "svc-native-fast";
const EMAIL: &str = "counts@example.com";
const TOKEN: &str = "7c1f9a04e6b25d83d0487ae1936bf25c";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [work, times] = arguments.as_slice() else {
        // Run by `cargo test` without arguments, it has nothing to do.
        return;
    };
    let times = times.parse().expect("how often");
    match work.as_str() {
        "completion" => requests(times, &Scenario::whole()),
        "budgeted" => requests(times, &Scenario::budgeted()),
        "refusal" => requests(times, &Scenario::refused()),
        // One stream with this many chunks.
        "chunk" => requests(0, &Scenario::stream(times)),
        "metering" => metering(times),
        other => panic!("no such work: {other}"),
    }
}

struct Scenario {
    body: String,
    /// The provider's response, head and body.
    answer: String,
    key: Option<&'static str>,
    status: &'static str,
    /// Whether there are four budgets above the call.
    budgets: bool,
}

impl Scenario {
    fn whole() -> Self {
        let answer = r#"{"id":"x","object":"chat.completion","created":1,"model":"model","choices":[{"index":0,"message":{"role":"assistant","content":"The answer is forty-two, as it has been for a long time."},"finish_reason":"stop"}],"usage":{"prompt_tokens":180,"completion_tokens":14,"total_tokens":194}}"#;
        Self {
            body: conversation(false),
            answer: format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{answer}",
                answer.len()
            ),
            key: None,
            status: "200",
            budgets: false,
        }
    }

    fn budgeted() -> Self {
        Self {
            budgets: true,
            ..Self::whole()
        }
    }

    /// A request with an unknown key.
    fn refused() -> Self {
        Self {
            key: Some("sk-svc-000000000000000000000000000000000000000000000000"),
            status: "401",
            ..Self::whole()
        }
    }

    fn stream(chunks: usize) -> Self {
        let event = |delta: &str, finish: &str| {
            let event = format!(
                "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"model\",\"choices\":[{{\"index\":0,\"delta\":{{{delta}}},\"finish_reason\":{finish}}}]}}\n\n"
            );
            format!("{:x}\r\n{event}\r\n", event.len())
        };
        let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":180,\"completion_tokens\":14,\"total_tokens\":194}}\n\ndata: [DONE]\n\n";
        let events = event("\"content\":\" word\"", "null").repeat(chunks);
        let last = event("", "\"stop\"");
        let usage = format!("{:x}\r\n{usage}\r\n0\r\n\r\n", usage.len());
        Self {
            body: conversation(true),
            answer: format!(
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n{events}{last}{usage}"
            ),
            key: None,
            status: "200",
            budgets: false,
        }
    }
}

/// Three messages of about a kilobyte together.
fn conversation(stream: bool) -> String {
    let text = "Please tell me what you know about gateways, meters and tolls. ".repeat(5);
    format!(
        r#"{{"model":"{MODEL}","stream":{stream},"max_tokens":100,"messages":[{{"role":"system","content":"You are terse."}},{{"role":"user","content":"{text}"}},{{"role":"assistant","content":"{text}"}},{{"role":"user","content":"{text}"}}]}}"#
    )
}

fn requests(times: usize, scenario: &Scenario) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let folder = TempDir::new().unwrap();
    let provider = provide(scenario.answer.clone());
    // Where instructions are counted, everything takes fifty times as long: that is no overload.
    let text = format!(
        "server.listen = \"127.0.0.1:0\"\noperator.listen = \"127.0.0.1:0\"\noverload.max_lag_ms = 60000\n\
         store.url = \"sqlite:{}/t.db\"\nlimits.url = \"memory:\"\nlog.level = \"error\"\n\
         limits.rpm = 1000000\nlimits.tpm = 1000000000\nportal.enabled = false\nalerts.enabled = false\n\
         deployments = [{{ model = \"*\", provider = \"p\", upstream_model = \"model\" }}]\n\
         [providers.p]\nkind = \"openai\"\nbase_url = \"http://{provider}/v1\"\n",
        folder.path().display()
    );
    let token = ("TOLLGATE_OPERATOR_TOKEN".to_owned(), TOKEN.to_owned());
    let config = Config::parse("counts.toml", &text, &BTreeMap::from([token])).unwrap();
    let running = runtime.block_on(server::start(config)).unwrap();
    let customers = runtime.block_on(customer(&running.gateway.ledger, EMAIL, 1));
    if scenario.budgets {
        set_budgets(running.operator, &customers[0].0);
    }
    let key = scenario.key.unwrap_or(customers[0].1.reveal());
    // The first request opens connections and is in every count, whatever `times` is.
    ask(running.public, key, scenario, times + 1);
    runtime.block_on(running.stop());
}

/// Sets four budgets that have room for every call.
fn set_budgets(operator: SocketAddr, caller: &Caller) {
    let key = &caller.payer.key_id;
    for (scope, id, period) in [
        ("account", &caller.account_id, "month"),
        ("account", &caller.account_id, "day"),
        ("project", &"default".to_owned(), "month"),
        ("key", key, "week"),
    ] {
        let body = format!(
            r#"{{"account":"{}","scope":"{scope}","id":"{id}","amount":"1000","period":"{period}"}}"#,
            caller.account_id
        );
        let mut connection = TcpStream::connect(operator).unwrap();
        let request = format!(
            "PUT /operator/budgets HTTP/1.1\r\nhost: counts\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(request.as_bytes()).unwrap();
        let (head, body) = read_message(&mut BufReader::new(connection)).expect("an answer");
        assert!(
            head.starts_with("HTTP/1.1 200"),
            "{head}{}",
            String::from_utf8_lossy(&body)
        );
    }
}

/// A provider with one fixed response.
fn provide(answer: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let (mut connection, answer) = (connection.unwrap(), answer.clone());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(connection.try_clone().unwrap());
                while read_message(&mut reader).is_some() {
                    connection.write_all(answer.as_bytes()).unwrap();
                }
            });
        }
    });
    address
}

fn ask(gateway: SocketAddr, key: &str, scenario: &Scenario, times: usize) {
    let mut connection = TcpStream::connect(gateway).unwrap();
    connection.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: counts\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{}",
        scenario.body.len(),
        scenario.body
    );
    for _ in 0..times {
        connection.write_all(request.as_bytes()).unwrap();
        let (head, body) = read_message(&mut reader).expect("an answer");
        assert!(
            head.starts_with(&format!("HTTP/1.1 {}", scenario.status)),
            "{head}{}",
            String::from_utf8_lossy(&body)
        );
    }
}

/// Reads a message to its end and returns its head and, if it is not chunked, its body; `None` at the end of the
/// connection.
fn read_message(reader: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut head = String::new();
    loop {
        let before = head.len();
        reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
        if head[before..] == *"\r\n" {
            break;
        }
    }
    if head.contains("chunked") {
        let mut line = String::new();
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim_end(), 16).ok()?;
            reader.read_exact(&mut vec![0; size + 2]).ok()?;
            if size == 0 {
                return Some((head, Vec::new()));
            }
        }
    }
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))?;
    let mut body = vec![0; length.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some((head, body))
}

/// Reserves a window and credit and settles both, without a request around them.
fn metering(times: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("t.db");
    let ledger = Arc::new(Ledger::open(&file, Durability::Power).unwrap());
    let limiter = Limiter::resume(&file, &HashMap::default()).unwrap();
    let model = Catalog::built_in().find(MODEL).unwrap().clone();
    let ceilings = Ceilings {
        requests: 1_000_000,
        tokens: u32::MAX,
    };
    runtime.block_on(async {
        let customers = customer(&ledger, EMAIL, 1).await;
        let caller = &customers[0].0;
        for _ in 0..=times {
            let id = ledger.next_call();
            let place = limiter.admit(id.0, &caller.account_id, &model.id, 300, ceilings);
            let mut place = place.await.expect("there is room");
            let request = HoldRequest {
                reservations: place.reservations(),
                reserved_tokens: 300,
                amount: NanoUsd::new(1_000),
                worst: NanoUsd::new(1_000),
                ..hold_request(id, caller, &model, "req_0123456789abcdefghijklmn")
            };
            let mut held = ledger.hold(request).await.expect("there is credit");
            place.keep().unwrap();
            let usage = Usage {
                prompt: 100,
                completion: 10,
                ..Usage::default()
            };
            held.charge(usage, Outcome::Answered).await.unwrap();
            place.settle(usage.total());
        }
    });
}
