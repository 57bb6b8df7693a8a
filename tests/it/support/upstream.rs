//! A fake provider on a raw socket: it records requests and can break off at any byte.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

/// What the provider does next on the connection.
#[derive(Clone, Debug)]
pub enum Step {
    Send(Vec<u8>),
    Pause(Duration),
    /// Waits until the gate is open.
    Until(Gate),
    /// Resets the connection.
    Reset,
    /// Closes the connection in order.
    Close,
    /// Sends this repeatedly until the peer stops reading.
    Flood(Vec<u8>),
}

/// A gate to wait for: closed at first, then open for good.
#[derive(Clone, Debug, Default)]
pub struct Gate(CancellationToken);

impl Gate {
    pub fn open(&self) {
        self.0.cancel();
    }

    pub fn is_open(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A request of the gateway.
#[derive(Clone, Debug)]
pub struct Received {
    pub head: String,
    pub body: Value,
    /// The body as it was sent.
    pub text: String,
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The content of the last message.
    pub fn question(&self) -> &str {
        let messages = self.body["messages"].as_array().expect("messages");
        messages.last().unwrap()["content"].as_str().unwrap()
    }
}

#[derive(Clone)]
pub struct FakeUpstream {
    pub address: SocketAddr,
    state: Arc<State>,
}

/// Returns the steps to play for a request.
type Script = Arc<dyn Fn(&Received) -> Vec<Step> + Send + Sync>;

struct State {
    script: Mutex<Script>,
    received: Mutex<Vec<Received>>,
    /// Bytes that the sockets have accepted.
    sent: AtomicUsize,
}

impl FakeUpstream {
    pub async fn start() -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    pub fn on(listener: TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let state = State {
            script: Mutex::new(Arc::new(|_| Vec::new())),
            received: Mutex::default(),
            sent: AtomicUsize::new(0),
        };
        let upstream = Self {
            address,
            state: Arc::new(state),
        };
        upstream.answer_json(200, &completion("Hello from upstream"));
        let serving = upstream.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(socket));
            }
        });
        upstream
    }

    /// Plays `steps` for every request from now on.
    pub fn play(&self, steps: Vec<Step>) {
        self.play_for_each(move |_| steps.clone());
    }

    /// Plays the steps that `script` returns for each request from now on.
    pub fn play_for_each(&self, script: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static) {
        *self.state.script.lock().unwrap() = Arc::new(script);
    }

    pub fn answer_json(&self, status: u16, body: &Value) {
        self.answer(status, "application/json", &body.to_string());
    }

    pub fn answer(&self, status: u16, content_type: &str, body: &str) {
        self.play(vec![Step::Send(response(status, content_type, body))]);
    }

    /// Responds with a stream of these bytes and closes the connection in order.
    pub fn answer_stream(&self, body: &str) {
        self.play(vec![
            Step::Send(stream_head()),
            Step::Send(body.as_bytes().to_vec()),
            Step::Close,
        ]);
    }

    /// Responds with a stream of `data:` events with these chunks, then `[DONE]`.
    pub fn answer_chunks(&self, chunks: &[Value]) {
        self.answer_stream(&events(chunks));
    }

    pub fn received(&self) -> Vec<Received> {
        self.state.received.lock().unwrap().clone()
    }

    /// The body of the last request.
    pub fn last_body(&self) -> Value {
        self.received()
            .last()
            .expect("the upstream was called")
            .body
            .clone()
    }

    /// The last request as it was sent, including its head.
    pub fn last_text(&self) -> String {
        let received = self.received();
        let last = received.last().expect("the upstream was called");
        format!("{}{}", last.head, last.text)
    }

    pub fn calls(&self) -> usize {
        self.state.received.lock().unwrap().len()
    }

    pub fn bytes_sent(&self) -> usize {
        self.state.sent.load(Ordering::Relaxed)
    }

    async fn serve(self, mut socket: TcpStream) {
        while let Some(request) = read_request(&mut socket).await {
            let script = self.state.script.lock().unwrap().clone();
            let steps = script(&request);
            self.state.received.lock().unwrap().push(request);
            for step in steps {
                match step {
                    Step::Send(bytes) => {
                        if socket.write_all(&bytes).await.is_err() {
                            return;
                        }
                        self.state.sent.fetch_add(bytes.len(), Ordering::Relaxed);
                    }
                    Step::Flood(bytes) => {
                        while socket.write_all(&bytes).await.is_ok() {
                            self.state.sent.fetch_add(bytes.len(), Ordering::Relaxed);
                        }
                        return;
                    }
                    Step::Pause(pause) => tokio::time::sleep(pause).await,
                    Step::Until(Gate(open)) => open.cancelled().await,
                    Step::Reset => {
                        // Lets the sent bytes arrive first: a reset discards unread bytes.
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        socket.set_zero_linger().unwrap();
                        return;
                    }
                    Step::Close => return,
                }
            }
        }
    }
}

async fn read_request(socket: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let mut received = Received {
        head,
        body: Value::Null,
        text: String::new(),
    };
    let length: usize = received
        .header("content-length")
        .map_or(0, |text| text.parse().unwrap());
    while bytes.len() < head_end + length {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = &bytes[head_end..];
    if !body.is_empty() {
        let is_form = received.header("content-type") == Some("application/x-www-form-urlencoded");
        if !is_form {
            received.body = serde_json::from_slice(body).expect("the gateway sends JSON");
        }
        received.text = String::from_utf8_lossy(body).into_owned();
    }
    Some(received)
}

pub fn response(status: u16, content_type: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub fn stream_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec()
}

/// The chunks as events, `[DONE]` last.
pub fn events(chunks: &[Value]) -> String {
    let mut events = String::new();
    for chunk in chunks {
        events.extend(["data: ", &chunk.to_string(), "\n\n"]);
    }
    events.push_str("data: [DONE]\n\n");
    events
}

/// A plain response as providers send it.
pub fn completion(content: &str) -> Value {
    json!({
        "id": "upstream-id", "object": "chat.completion", "created": 1, "model": "vendor-model-9",
        "choices": [{
            "index": 0, "finish_reason": "stop",
            "message": { "role": "assistant", "content": content, "refusal": null },
        }],
        "usage": { "prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14 },
        "system_fingerprint": "fp_upstream",
    })
}

/// A stream of two words that waits between them until the gate is open.
pub fn stream_until(gate: &Gate) -> Vec<Step> {
    let word = format!("data: {}\n\n", chunk(json!({ "content": "word " }), None));
    let end = events(&[chunk(json!({}), Some("stop")), usage_chunk(11, 3)]);
    vec![
        Step::Send(stream_head()),
        Step::Send(word.clone().into_bytes()),
        Step::Until(gate.clone()),
        Step::Send((word + &end).into_bytes()),
        Step::Close,
    ]
}

/// A chunk as providers send it.
pub fn chunk(delta: Value, finish: Option<&str>) -> Value {
    json!({
        "id": "upstream-id", "object": "chat.completion.chunk", "created": 1,
        "model": "vendor-model-9", "system_fingerprint": "fp_upstream",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    })
}

pub fn usage_chunk(prompt: u32, completion: u32) -> Value {
    json!({
        "id": "upstream-id", "object": "chat.completion.chunk", "created": 1,
        "model": "vendor-model-9", "choices": [],
        "usage": {
            "prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
    })
}
