//! A TCP proxy that injects network faults: delay, black hole, lost replies, resets.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How the proxy treats connections and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Pass,
    /// Every piece arrives this much later, in both directions.
    Delay(Duration),
    /// Connections are accepted, and no byte is forwarded.
    Blackhole,
    /// The port is closed; open connections are shut down in order.
    Refuse,
    /// Every connection is reset, new ones as soon as they are made.
    Reset,
    /// A connection is reset after this many bytes, counted over both directions.
    CutAfter(usize),
    /// Requests are forwarded, replies are dropped.
    DropReplies,
}

impl Mode {
    /// Whether this mode closes all connections.
    fn ends_connections(self) -> bool {
        matches!(self, Self::Refuse | Self::Reset)
    }

    fn swallows(self, direction: Direction) -> bool {
        match self {
            Self::Blackhole => true,
            Self::DropReplies => direction == Direction::Reply,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Request,
    Reply,
}

pub struct FaultProxy {
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
    counts: Arc<Counts>,
    /// The current listener, if any; it is bound anew when [`Mode::Refuse`] ends.
    listening: Mutex<Option<DropGuard>>,
    server: SocketAddr,
    _end: DropGuard,
    end: CancellationToken,
}

#[derive(Default)]
struct Counts {
    connections: AtomicUsize,
    requested: AtomicUsize,
    replied: AtomicUsize,
    round_trips: AtomicUsize,
}

impl FaultProxy {
    /// Starts a proxy in front of `server` that forwards everything.
    pub fn start(server: SocketAddr) -> Self {
        let end = CancellationToken::new();
        let mut proxy = Self {
            address: (Ipv4Addr::LOCALHOST, 0).into(),
            mode: watch::Sender::new(Mode::Pass),
            counts: Arc::default(),
            listening: Mutex::default(),
            server,
            _end: end.clone().drop_guard(),
            end,
        };
        proxy.address = proxy.listen();
        proxy
    }

    /// Sets the mode for present and future connections. A connection that has lost bytes never forwards again: it is
    /// reset.
    pub fn set(&self, mode: Mode) {
        let was = self.mode.send_replace(mode);
        if mode == Mode::Refuse {
            self.listening.lock().unwrap().take();
        } else if was == Mode::Refuse {
            self.listen();
        }
    }

    /// Number of connections accepted so far.
    pub fn connections(&self) -> usize {
        self.counts.connections.load(Relaxed)
    }

    /// Bytes sent to the server, and bytes received from it.
    pub fn bytes(&self) -> (usize, usize) {
        let counts = &self.counts;
        (counts.requested.load(Relaxed), counts.replied.load(Relaxed))
    }

    /// Number of round trips: a reply after a request. A request in several pieces, or several pipelined requests,
    /// count once.
    pub fn round_trips(&self) -> usize {
        self.counts.round_trips.load(Relaxed)
    }

    fn listen(&self) -> SocketAddr {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        socket.bind(self.address).unwrap();
        let listener = socket.listen(1_024).unwrap();
        let address = listener.local_addr().unwrap();
        let listening = self.end.child_token();
        let accepting = accept(
            listener,
            self.server,
            self.mode.subscribe(),
            self.counts.clone(),
            self.end.clone(),
        );
        tokio::spawn(listening.clone().run_until_cancelled_owned(accepting));
        *self.listening.lock().unwrap() = Some(listening.drop_guard());
        address
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    mode: watch::Receiver<Mode>,
    counts: Arc<Counts>,
    end: CancellationToken,
) {
    while let Ok((client, _)) = listener.accept().await {
        counts.connections.fetch_add(1, Relaxed);
        let line = Connection {
            counts: counts.clone(),
            mode: mode.clone(),
            passed: AtomicUsize::new(0),
            swallowed: AtomicBool::new(false),
            awaiting_reply: AtomicBool::new(false),
        };
        let carrying = line.carry(client, server);
        tokio::spawn(end.clone().run_until_cancelled_owned(carrying));
    }
}

/// One proxied connection.
struct Connection {
    counts: Arc<Counts>,
    mode: watch::Receiver<Mode>,
    /// Bytes in both directions.
    passed: AtomicUsize,
    swallowed: AtomicBool,
    /// A request was forwarded and no reply to it yet.
    awaiting_reply: AtomicBool,
}

/// The connection ends with a reset.
struct Broken;

impl Connection {
    async fn carry(self, mut client: TcpStream, server: SocketAddr) {
        let now = *self.mode.borrow();
        let Some(mut server) = self.reach(server, now).await else {
            if now == Mode::Blackhole {
                self.swallow(&mut client).await;
            }
            let _ = client.set_zero_linger();
            return;
        };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let requests = self.pump(from_client, to_server, Direction::Request);
        let replies = self.pump(from_server, to_client, Direction::Reply);
        let both = async { tokio::try_join!(requests, replies).map(drop) };
        let ended = tokio::select! {
            ended = both => ended,
            ended = self.ended_by_mode() => ended,
        };
        if ended.is_err() {
            let _ = (client.set_zero_linger(), server.set_zero_linger());
        }
    }

    async fn reach(&self, server: SocketAddr, now: Mode) -> Option<TcpStream> {
        if now.ends_connections() || now == Mode::Blackhole {
            return None;
        }
        TcpStream::connect(server).await.ok()
    }

    /// Reads and drops bytes until the client disconnects or the mode changes.
    async fn swallow(&self, client: &mut TcpStream) {
        let (mut mode, mut buffer) = (self.mode.clone(), [0; 4096]);
        let reading = async { while let Ok(1..) = client.read(&mut buffer).await {} };
        tokio::select! {
            () = reading => {}
            _ = mode.wait_for(|mode| *mode != Mode::Blackhole) => {}
        }
    }

    async fn pump(
        &self,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
        direction: Direction,
    ) -> Result<(), Broken> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = from.read(&mut buffer).await.map_err(|_| Broken)?;
            if read == 0 {
                return to.shutdown().await.map_err(|_| Broken);
            }
            let mode = *self.mode.borrow();
            if mode.swallows(direction) {
                self.swallowed.store(true, Relaxed);
                continue;
            }
            if let Mode::Delay(late) = mode {
                tokio::time::sleep(late).await;
            }
            let before = self.passed.fetch_add(read, Relaxed);
            let allowed = match mode {
                Mode::CutAfter(bytes) => bytes.saturating_sub(before).min(read),
                _ => read,
            };
            self.count(direction, allowed);
            to.write_all(&buffer[..allowed]).await.map_err(|_| Broken)?;
            if allowed < read {
                return Err(Broken);
            }
        }
    }

    fn count(&self, direction: Direction, bytes: usize) {
        if direction == Direction::Request {
            self.counts.requested.fetch_add(bytes, Relaxed);
            self.awaiting_reply.store(true, Relaxed);
            return;
        }
        self.counts.replied.fetch_add(bytes, Relaxed);
        if self.awaiting_reply.swap(false, Relaxed) {
            self.counts.round_trips.fetch_add(1, Relaxed);
        }
    }

    /// Waits until the mode ends this connection: in order (`Ok`) or with a reset (`Err`).
    async fn ended_by_mode(&self) -> Result<(), Broken> {
        let mut mode = self.mode.clone();
        let ends = |mode: &Mode| {
            let is_torn = self.swallowed.load(Relaxed) && !mode.swallows(Direction::Reply);
            mode.ends_connections() || is_torn
        };
        match mode.wait_for(ends).await.map(|mode| *mode) {
            Ok(Mode::Refuse) if !self.swallowed.load(Relaxed) => Ok(()),
            _ => Err(Broken),
        }
    }
}
