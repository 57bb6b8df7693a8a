//! A keep-alive connection for one request after another.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::{Done, http1::Head};

/// Buffer size; ten thousand connections have one each.
const ROOM: usize = 8 << 10;

pub struct Connection {
    socket: TcpStream,
    buffer: Box<[u8]>,
}

impl Connection {
    pub async fn open(port: u16) -> Done<Self> {
        let socket = TcpStream::connect(("127.0.0.1", port)).await?;
        socket.set_nodelay(true)?;
        let buffer = vec![0; ROOM].into_boxed_slice();
        Ok(Self { socket, buffer })
    }

    /// Sends a request and passes the response's contents on as they arrive. Any status but 200 is an error.
    pub async fn ask(&mut self, request: &[u8], hand_on: impl FnMut(&[u8])) -> Done {
        let status = self.ask_for_status(request, hand_on).await?;
        if status != *b"200" {
            let status = String::from_utf8_lossy(&status);
            return Err(format!("an answer with status {status} instead of 200").into());
        }
        Ok(())
    }

    /// Sends a request like [`Self::ask`], and returns the status of its response.
    pub async fn ask_for_status(
        &mut self,
        request: &[u8],
        mut hand_on: impl FnMut(&[u8]),
    ) -> Done<[u8; 3]> {
        self.socket.write_all(request).await?;
        let mut filled = 0;
        let (head, mut body) = loop {
            filled += self.read_at(filled).await?;
            if let Some(head) = Head::read(&self.buffer[..filled])? {
                break (head.length, head.body);
            }
        };
        let status = self
            .buffer
            .get(9..12)
            .and_then(|status| status.try_into().ok());
        let status: [u8; 3] = status.ok_or("an answer without a status")?;
        body.take(&self.buffer[head..filled], &mut hand_on)?;
        while !body.is_done() {
            let length = self.read_at(0).await?;
            body.take(&self.buffer[..length], &mut hand_on)?;
        }
        Ok(status)
    }

    async fn read_at(&mut self, filled: usize) -> Done<usize> {
        match self.socket.read(&mut self.buffer[filled..]).await? {
            0 => Err("the connection was closed in the middle of an answer".into()),
            length => Ok(length),
        }
    }
}
