//! Single blocking requests on their own connections, for steps between measurements.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

use crate::{Done, http1::Head};

/// An audit of a few hundred thousand calls takes a while.
const TIMEOUT: Duration = Duration::from_mins(2);

pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Sends `GET`, or `POST` if there is a body.
pub fn ask(port: u16, path: &str, token: Option<&str>, body: Option<&Value>) -> Done<Answer> {
    let mut socket = TcpStream::connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let method = if body.is_some() { "POST" } else { "GET" };
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n");
    if let Some(token) = token {
        request.extend(["authorization: Bearer ", token, "\r\n"]);
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len().to_string();
    request.extend(["connection: close\r\ncontent-type: application/json\r\ncontent-length: "]);
    request.extend([&length, "\r\n\r\n", &body]);
    socket.write_all(request.as_bytes())?;

    let (mut bytes, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        let length = socket.read(&mut piece)?;
        bytes.extend_from_slice(&piece[..length]);
        if let Some(answer) = whole(&bytes)? {
            return Ok(answer);
        }
        if length == 0 {
            return Err("an answer that was cut off".into());
        }
    }
}

fn whole(bytes: &[u8]) -> Done<Option<Answer>> {
    let Some(head) = Head::read(bytes)? else {
        return Ok(None);
    };
    let status = bytes.get(9..12).ok_or("an answer without a status")?;
    let status = str::from_utf8(status)?.parse()?;
    let (mut left, mut body) = (head.body, Vec::new());
    left.take(&bytes[head.length..], |piece| body.extend_from_slice(piece))?;
    Ok(left.is_done().then_some(Answer { status, body }))
}
