//! Calls of several steps: scripted provider responses for each step, and the caller's final response.

use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::{Value, json};

use super::{
    Answer, Customer, FakeUpstream, Gate, LedgerView, Step, Stream, TestGateway,
    described::exchange,
    gateway::{OPERATOR_TOKEN, answer},
    ledger_view::{MODEL, PRICE},
    upstream::{chunk, completion, events, response, stream_head, usage_chunk},
};

/// A tool call: its ID, the tool and the arguments.
pub type Call = (&'static str, &'static str, &'static str);

/// A call of a built-in tool that always succeeds, and the tool's result.
pub const CONVERT: Call = (
    "call_convert",
    "convert_units",
    r#"{"amount":"1","from":"ether","to":"gwei"}"#,
);
pub const CONVERTED: &str = r#"{"amount":"1","from":"ether","to":"gwei","result":"1000000000"}"#;

/// The gateway's built-in tools, in the order in which they are offered.
pub const BUILT_IN: [&str; 7] = [
    "crypto_price",
    "crypto_market",
    "chain_gas",
    "chain_balance",
    "chain_transaction",
    "inspect_address",
    "convert_units",
];

/// The names of the tools in a body that went upstream.
pub fn offered(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().into_iter().flatten();
    tools
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect()
}

/// A provider's response to one step, plain or streamed as the request demands, with 11 input and 3 output tokens by
/// default.
#[derive(Clone)]
pub struct Turn {
    choices: Vec<Choice>,
    usage: Option<Value>,
    gate: Option<Gate>,
    /// Steps to play instead of the choices.
    plays: Option<Vec<Step>>,
}

#[derive(Clone)]
struct Choice {
    text: Option<String>,
    calls: Vec<Call>,
    finish: &'static str,
}

impl Turn {
    fn new(text: Option<&str>, calls: &[Call], finish: &'static str) -> Self {
        let choice = Choice {
            text: text.map(str::to_owned),
            calls: calls.to_vec(),
            finish,
        };
        Self {
            choices: vec![choice],
            usage: Some(usage(11, 3)),
            gate: None,
            plays: None,
        }
    }

    pub fn says(text: &str) -> Self {
        Self::new(Some(text), &[], "stop")
    }

    pub fn calls(calls: &[Call]) -> Self {
        Self::new(None, calls, "tool_calls")
    }

    /// Text first, then the calls.
    pub fn says_and_calls(text: &str, calls: &[Call]) -> Self {
        Self::new(Some(text), calls, "tool_calls")
    }

    pub fn plays(steps: Vec<Step>) -> Self {
        Self {
            plays: Some(steps),
            ..Self::says("")
        }
    }

    pub fn fails(status: u16) -> Self {
        Self::plays(vec![Step::Send(response(status, "text/plain", "no"))])
    }

    pub fn ending(mut self, finish: &'static str) -> Self {
        self.choices[0].finish = finish;
        self
    }

    pub fn using(mut self, prompt: u32, completion: u32) -> Self {
        self.usage = Some(usage(prompt, completion));
        self
    }

    /// Reports this many of the input tokens as cached.
    pub fn cached(mut self, tokens: u32) -> Self {
        if let Some(usage) = &mut self.usage {
            usage["prompt_tokens_details"] = json!({ "cached_tokens": tokens });
        }
        self
    }

    pub fn uncounted(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Waits for the gate first.
    pub fn after(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    /// Appends the choices of another turn.
    pub fn beside(mut self, other: Self) -> Self {
        self.choices.extend(other.choices);
        self
    }

    /// The chunks of a stream, with text and arguments in small pieces, without the usage chunk.
    pub fn chunks(&self) -> Vec<Value> {
        let mut chunks = Vec::new();
        for (index, choice) in self.choices.iter().enumerate() {
            let mut add = |delta: Value, finish: Option<&str>| {
                let mut chunk = chunk(delta, finish);
                chunk["choices"][0]["index"] = index.into();
                chunks.push(chunk);
            };
            add(json!({ "role": "assistant", "content": null }), None);
            for piece in pieces(choice.text.as_deref().unwrap_or_default()) {
                add(json!({ "content": piece }), None);
            }
            for (number, (id, name, arguments)) in choice.calls.iter().enumerate() {
                let function = json!({ "name": name, "arguments": "" });
                let call = json!({ "index": number, "id": id, "type": "function",
                                   "function": function });
                add(json!({ "tool_calls": [call] }), None);
                for piece in pieces(arguments) {
                    let call = json!({ "index": number, "function": { "arguments": piece } });
                    add(json!({ "tool_calls": [call] }), None);
                }
            }
            add(json!({}), Some(choice.finish));
        }
        chunks
    }

    fn whole(&self) -> Value {
        let mut whole = completion("");
        let choices = self.choices.iter().enumerate().map(|(index, choice)| {
            let mut message = json!({ "role": "assistant", "content": choice.text });
            if !choice.calls.is_empty() {
                message["tool_calls"] = calls_json(&choice.calls);
            }
            json!({ "index": index, "message": message, "finish_reason": choice.finish })
        });
        whole["choices"] = choices.collect();
        whole["usage"] = self.usage.clone().into();
        whole
    }

    /// The steps that the fake provider plays for this turn.
    pub fn steps(&self, stream: bool) -> Vec<Step> {
        let mut steps: Vec<_> = self.gate.iter().cloned().map(Step::Until).collect();
        if let Some(played) = &self.plays {
            steps.extend(played.iter().cloned());
            return steps;
        }
        if stream {
            let mut chunks = self.chunks();
            if let Some(usage) = &self.usage {
                let mut last = usage_chunk(0, 0);
                last["usage"] = usage.clone();
                chunks.push(last);
            }
            steps.push(Step::Send(stream_head()));
            steps.push(Step::Send(events(&chunks).into_bytes()));
            steps.push(Step::Close);
        } else {
            let whole = self.whole().to_string();
            steps.push(Step::Send(response(200, "application/json", &whole)));
        }
        steps
    }
}

/// The calls as JSON of an assistant message.
pub fn calls_json(calls: &[Call]) -> Value {
    let calls = calls.iter().map(|(id, name, arguments)| {
        let function = json!({ "name": name, "arguments": arguments });
        json!({ "id": id, "type": "function", "function": function })
    });
    calls.collect()
}

/// The usage of a response of `svc-standard`, which costs 2.00 and 9.00 dollars per million tokens.
pub fn usage(prompt: u32, completion: u32) -> Value {
    let cost = 2 * u64::from(prompt) + 9 * u64::from(completion);
    json!({
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": u64::from(prompt) + u64::from(completion), "cost": format!("0.{cost:06}"),
        "prompt_tokens_details": { "cached_tokens": 0, "cache_write_tokens": 0 },
    })
}

fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<_> = text.chars().collect();
    letters
        .chunks(4)
        .map(|piece| piece.iter().collect())
        .collect()
}

/// The chunks as events, without `[DONE]`.
pub fn open_events(chunks: &[Value]) -> Vec<u8> {
    let events = events(chunks);
    let open = events.strip_suffix("data: [DONE]\n\n").unwrap();
    open.as_bytes().to_vec()
}

impl FakeUpstream {
    /// Plays one turn for each request from now on, and repeats the last one.
    pub fn converse(&self, turns: impl Into<Vec<Turn>>) {
        let (turns, requests) = (turns.into(), AtomicUsize::new(0));
        self.play_for_each(move |request| {
            let turn = requests
                .fetch_add(1, Ordering::Relaxed)
                .min(turns.len() - 1);
            turns[turn].steps(request.body["stream"] == true)
        });
    }

    /// The messages of each received request.
    pub fn messages(&self) -> Vec<Vec<Value>> {
        let received = self.received().into_iter();
        let messages = received.map(|request| request.body["messages"].as_array().cloned());
        messages.map(Option::unwrap).collect()
    }
}

impl LedgerView {
    /// One call of `steps` steps, with 11 input and 3 output tokens each.
    pub fn charged_steps(steps: u32) -> Self {
        Self {
            spent: i64::from(steps) * PRICE,
            charges: 1,
            requests: 1,
            tokens: u64::from(steps) * 14,
        }
    }

    /// One failed, uncharged call after `steps` steps of that size.
    pub fn free_after_steps(steps: u32) -> Self {
        Self {
            requests: 1,
            tokens: u64::from(steps) * 14,
            ..Self::default()
        }
    }
}

/// The caller's final response, plain or streamed.
#[derive(Debug)]
pub struct Reply {
    /// Text and finish reason of each choice.
    pub choices: Vec<(String, String)>,
    pub usage: Value,
}

impl Customer<'_> {
    /// Sends the body with a request ID. A successful response must be complete and must not mention tools; any other
    /// response is returned as `Err`.
    pub async fn send(&self, id: &str, body: &Value, stream: bool) -> Result<Reply, Answer> {
        let mut body = body.clone();
        if stream {
            body["stream"] = true.into();
            body["stream_options"] = json!({ "include_usage": true });
        }
        let request = self.request(&body).header("x-request-id", id);
        if !stream {
            let answer = answer(request).await;
            return if answer.status == 200 {
                Ok(whole_reply(&answer.body))
            } else {
                Err(answer)
            };
        }
        let (status, headers, text) = exchange(request).await;
        if status == 200 {
            return Ok(streamed_reply(&Stream { text }));
        }
        let body = serde_json::from_str(&text).expect("an error is JSON");
        Err(Answer {
            status,
            headers,
            body,
        })
    }
}

fn whole_reply(body: &Value) -> Reply {
    assert_eq!(body["model"], MODEL);
    let choices = body["choices"].as_array().unwrap().iter().map(|choice| {
        let message = &choice["message"];
        assert_eq!(message["role"], "assistant");
        assert!(message["tool_calls"].is_null(), "{message}");
        let text = message["content"].as_str().unwrap_or_default();
        let finish = choice["finish_reason"].as_str().unwrap();
        (text.to_owned(), finish.to_owned())
    });
    Reply {
        choices: choices.collect(),
        usage: body["usage"].clone(),
    }
}

fn streamed_reply(stream: &Stream) -> Reply {
    stream.assert_complete(MODEL);
    assert!(!stream.text.contains("tool_calls"), "{}", stream.text);
    assert_eq!(stream.text.matches("[DONE]").count(), 1);
    let choices = (0..).map_while(|index| {
        let finish = stream.finish_reason(index)?;
        Some((stream.content(index), finish))
    });
    Reply {
        choices: choices.collect(),
        usage: stream.usage().unwrap_or_default(),
    }
}

impl TestGateway {
    /// The request details.
    pub async fn details(&self, id: &str) -> Value {
        let path = format!("/operator/requests/{id}");
        let url = format!("http://{}{path}", self.operator);
        // For uncharged calls, details are stored shortly after the response is sent.
        for _ in 0..500 {
            let request = self.client.request(Method::GET, &url);
            let details = answer(request.bearer_auth(OPERATOR_TOKEN)).await;
            if details.status == 200 {
                return details.body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("there are no details of {id}");
    }

    /// A summary of each step, e.g. `fake tool_calls 11+3` and `convert_units done`.
    pub async fn steps(&self, id: &str) -> Vec<String> {
        let details = self.details(id).await;
        let steps = details["steps"].as_array().unwrap().iter();
        let words = steps.map(|step| {
            assert!(step["ms"].is_u64(), "{step}");
            let word = |key: &str| step[key].as_str().unwrap_or("-").to_owned();
            match step["kind"].as_str() {
                Some("provider") => {
                    let (prompt, completion) = (&step["prompt_tokens"], &step["completion_tokens"]);
                    let (upstream, finish) = (word("upstream"), word("finish_reason"));
                    format!("{upstream} {finish} {prompt}+{completion}")
                }
                _ => format!("{} {}", word("name"), word("outcome")),
            }
        });
        words.collect()
    }
}
