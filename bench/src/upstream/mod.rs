//! The fake model server behind every contestant: it responds at once, from prepared bytes.

mod answers;
mod running;

use std::{io::Write as _, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::yield_now,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    Done,
    chat::{HELD_PAUSE_MS, Speed},
    http1::Head,
    process,
};

use answers::Answers;
pub use answers::{EVENTS, STAMP};
pub use running::Upstream;

/// Buffer size for a request; those of the benchmark have less than two kilobytes.
const ROOM: usize = 8 << 10;

const LISTENING: &str = "upstream listens at ";

/// A request for this path ends all held streams.
const RELEASE: &str = "/release";

/// Prints its port and serves until it is stopped.
pub fn serve() -> Done {
    process::allow_many_files();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{LISTENING}{}", listener.local_addr()?.port());
        std::io::stdout().flush()?;
        let release = watch::Sender::new(());
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            let release = release.clone();
            // Broken connections are reported by the load generator.
            tokio::spawn(async move { Connection::new(socket, release).answer_all().await });
        }
    })
}

struct Connection {
    socket: TcpStream,
    release: watch::Sender<()>,
    answers: Answers,
}

impl Connection {
    fn new(socket: TcpStream, release: watch::Sender<()>) -> Self {
        let answers = Answers::new();
        Self {
            socket,
            release,
            answers,
        }
    }

    async fn answer_all(mut self) -> Done {
        let mut buffer = Vec::with_capacity(ROOM);
        while let Some((request, length)) = self.next_request(&mut buffer).await? {
            match request {
                Request::Release => {
                    self.release.send_replace(());
                    self.socket.write_all(answers::RELEASED).await?;
                }
                Request::Chat(Speed::Whole) => self.socket.write_all(Answers::whole()).await?,
                Request::Chat(Speed::After(pause)) => {
                    sleep(Duration::from_millis(pause)).await;
                    self.socket.write_all(Answers::whole()).await?;
                }
                Request::Chat(Speed::AtOnce) => self.stream(None).await?,
                Request::Chat(Speed::Paced(pause)) => {
                    self.stream(Some(Duration::from_millis(pause))).await?;
                }
                Request::Chat(Speed::Held) => self.hold().await?,
            }
            buffer.drain(..length);
        }
        Ok(())
    }

    /// The next request and its bytes in the buffer; `None` when the client has disconnected.
    async fn next_request(&mut self, buffer: &mut Vec<u8>) -> Done<Option<(Request, usize)>> {
        loop {
            if let Some(read) = Request::read(buffer)? {
                return Ok(Some(read));
            }
            if self.socket.read_buf(buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Each event is a separate write, as with a real model.
    async fn stream(&mut self, pause: Option<Duration>) -> Done {
        self.socket.write_all(answers::STREAM_HEAD).await?;
        let started = Instant::now();
        for number in 0..EVENTS {
            match pause {
                // A timer takes a millisecond even for a zero delay.
                Some(_) if number == 0 => {}
                Some(pause) => sleep_until(started + pause * number).await,
                None => yield_now().await,
            }
            self.socket.write_all(self.answers.event()).await?;
        }
        self.socket.write_all(Answers::stream_end()).await?;
        Ok(())
    }

    async fn hold(&mut self) -> Done {
        let mut released = self.release.subscribe();
        self.socket.write_all(answers::STREAM_HEAD).await?;
        let mut next = Instant::now();
        loop {
            self.socket.write_all(self.answers.event()).await?;
            next += Duration::from_millis(HELD_PAUSE_MS);
            tokio::select! {
                () = sleep_until(next) => {}
                _ = released.changed() => break,
            }
        }
        self.socket.write_all(Answers::stream_end()).await?;
        Ok(())
    }
}

enum Request {
    Release,
    Chat(Speed),
}

impl Request {
    fn read(buffer: &[u8]) -> Done<Option<(Self, usize)>> {
        let Some(head) = Head::read(buffer)? else {
            return Ok(None);
        };
        let (mut left, arrived) = (head.body, &buffer[head.length..]);
        let length = head.length + left.take(arrived, |_| {})?;
        if !left.is_done() {
            return Ok(None);
        }
        let path = buffer.split(|byte| *byte == b' ').nth(1);
        if path == Some(RELEASE.as_bytes()) {
            return Ok(Some((Self::Release, length)));
        }
        // Chunked or not: the mark is short, and a gateway that chunks its body does so between writes.
        let speed = Speed::named_in(&buffer[head.length..length]);
        let speed = speed.ok_or("a request that does not say how it is to be answered")?;
        Ok(Some((Self::Chat(speed), length)))
    }
}
