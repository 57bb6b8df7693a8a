//! A TCP proxy between a limiter and its server that can lose the server's replies.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU16, Ordering::Relaxed},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, tcp},
    time::{Duration, sleep},
};
use tokio_util::task::AbortOnDropHandle;

pub(crate) struct Proxy {
    pub port: u16,
    state: Arc<State>,
    _task: AbortOnDropHandle<()>,
}

struct State {
    to: AtomicU16,
    loses_replies: AtomicBool,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(State {
            to: AtomicU16::new(port),
            loses_replies: AtomicBool::new(false),
        });
        Self {
            port: listener.local_addr().unwrap().port(),
            state: state.clone(),
            _task: AbortOnDropHandle::new(tokio::spawn(async move {
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(pass(client, state.clone()));
                }
            })),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Makes new connections go to this port.
    pub(crate) fn turn_to(&self, port: u16) {
        self.state.to.store(port, Relaxed);
    }

    /// Starts or stops losing replies. When it stops, connections that lost a reply are closed.
    pub(crate) fn lose_replies(&self, lose: bool) {
        self.state.loses_replies.store(lose, Relaxed);
    }
}

async fn pass(client: TcpStream, state: Arc<State>) {
    let port = state.to.load(Relaxed);
    let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let (mut from_client, to_client) = client.into_split();
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        () = replies(from_server, to_client, state) => {}
    }
}

async fn replies(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, state: Arc<State>) {
    let mut buffer = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if state.loses_replies.load(Relaxed) {
            while state.loses_replies.load(Relaxed) {
                sleep(Duration::from_millis(5)).await;
            }
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
