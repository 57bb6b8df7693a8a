//! Requests written byte by byte, for input that no well-behaved client sends.

use std::{net::SocketAddr, time::Duration};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::Answer;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection on which responses are read one after the other.
pub struct RawConnection {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl RawConnection {
    pub async fn open(address: SocketAddr) -> Self {
        Self {
            socket: TcpStream::connect(address).await.unwrap(),
            unread: Vec::new(),
        }
    }

    /// Opens a connection with a small receive buffer.
    pub async fn open_narrow(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        Self {
            socket: socket.connect(address).await.unwrap(),
            unread: Vec::new(),
        }
    }

    /// The next bytes, `at_most` many; empty once the connection has ended, in order or not.
    pub async fn read(&mut self, at_most: usize) -> Vec<u8> {
        if self.unread.is_empty() {
            let mut bytes = vec![0; at_most];
            let read = tokio::time::timeout(TIMEOUT, self.socket.read(&mut bytes)).await;
            bytes.truncate(read.expect("bytes in time").unwrap_or(0));
            return bytes;
        }
        let end = at_most.min(self.unread.len());
        self.unread.drain(..end).collect()
    }

    /// All remaining bytes until the end of the connection.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        loop {
            let more = self.read(16 << 10).await;
            if more.is_empty() {
                return rest;
            }
            rest.extend(more);
        }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = self.socket.write_all(bytes.as_ref());
        let sent = tokio::time::timeout(TIMEOUT, sent).await;
        sent.expect("the gateway reads on").unwrap();
    }

    /// Sends bytes; returns whether the other side still accepts them.
    pub async fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.socket.write_all(bytes).await.is_ok()
    }

    /// The next response; it must have a length and a JSON body.
    pub async fn answer(&mut self) -> Answer {
        let head_end = loop {
            let found = self.unread.windows(4).position(|at| at == b"\r\n\r\n");
            match found {
                Some(at) => break at + 4,
                None => self.more().await,
            }
        };
        let head: Vec<u8> = self.unread.drain(..head_end).collect();
        let (status, headers) = parse_head(&head);
        let length = headers["content-length"].to_str().unwrap();
        let length: usize = length.parse().unwrap();
        while self.unread.len() < length {
            self.more().await;
        }
        let body: Vec<u8> = self.unread.drain(..length).collect();
        let body = serde_json::from_slice(&body).expect("an answer is JSON");
        Answer {
            status,
            headers,
            body,
        }
    }

    /// Reads until `words` have arrived `times` times. The bytes stay in the buffer.
    pub async fn until(&mut self, words: &str, times: usize) {
        let words = words.as_bytes();
        let count = |bytes: &[u8]| bytes.windows(words.len()).filter(|at| at == &words).count();
        while count(&self.unread) < times {
            self.more().await;
        }
    }

    /// Closes the sending side and waits until the peer has closed its side too.
    pub async fn hang_up(mut self) {
        self.socket.shutdown().await.unwrap();
        let rest = self.socket.read_to_end(&mut self.unread);
        let rest = tokio::time::timeout(TIMEOUT, rest).await;
        let _ = rest.expect("the gateway hangs up too");
    }

    /// Resets the connection.
    pub fn reset(self) {
        self.socket.set_zero_linger().unwrap();
    }

    async fn more(&mut self) {
        let read = self.socket.read_buf(&mut self.unread);
        let read = tokio::time::timeout(TIMEOUT, read).await;
        let read = read.expect("an answer in time").unwrap();
        assert_ne!(read, 0, "an answer, not a closed connection");
    }
}

/// A chat request as bytes on the wire; `headers` are whole lines.
pub fn chat_request(key: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {key}\r\n\
         {headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A request of the Messages API as bytes on the wire; `headers` are whole lines.
pub fn message_request(path: &str, key: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway\r\nx-api-key: {key}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn parse_head(head: &[u8]) -> (u16, HeaderMap) {
    let mut lines = head.split(|byte| *byte == b'\n');
    let status = String::from_utf8_lossy(lines.next().unwrap());
    let status = status.split(' ').nth(1).unwrap().parse().unwrap();
    let mut headers = HeaderMap::new();
    for line in lines {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            continue;
        };
        let name = HeaderName::from_bytes(&line[..colon]).unwrap();
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).unwrap();
        headers.append(name, value);
    }
    (status, headers)
}
