//! Stands between a limiter and its server, and loses or delays what the server says.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp},
    time::{Duration, sleep},
};
use tokio_util::task::AbortOnDropHandle;

pub struct Proxy {
    pub port: u16,
    way: Arc<Way>,
    _task: AbortOnDropHandle<()>,
}

struct Way {
    to: AtomicU16,
    is_deaf: AtomicBool,
    /// For the next answer alone.
    delay_ms: AtomicU64,
}

impl Proxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way = Arc::new(Way {
            to: AtomicU16::new(port),
            is_deaf: AtomicBool::new(false),
            delay_ms: AtomicU64::new(0),
        });
        Self {
            port: listener.local_addr().unwrap().port(),
            way: way.clone(),
            _task: AbortOnDropHandle::new(tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(pass(client, way.clone()));
                }
            })),
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// New connections go there.
    pub fn turn_to(&self, port: u16) {
        self.way.to.store(port, Relaxed);
    }

    /// Answers are lost; once that is over, so are the connections that lost one.
    pub fn lose_answers(&self, lose: bool) {
        self.way.is_deaf.store(lose, Relaxed);
    }

    pub fn delay_next_answer(&self, delay: Duration) {
        let delay = u64::try_from(delay.as_millis()).unwrap();
        self.way.delay_ms.store(delay, Relaxed);
    }
}

async fn pass(client: TcpStream, way: Arc<Way>) {
    let port = way.to.load(Relaxed);
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        () = answers(from_server, to_client, way) => {}
    }
}

async fn answers(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, way: Arc<Way>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if way.is_deaf.load(Relaxed) {
            while way.is_deaf.load(Relaxed) {
                sleep(Duration::from_millis(5)).await;
            }
            return;
        }
        sleep(Duration::from_millis(way.delay_ms.swap(0, Relaxed))).await;
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
