//! Options of accepted sockets.
//!
//! A well-behaved client can be served without them, so errors are ignored.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Most unsent bytes that the kernel buffers (`TCP_NOTSENT_LOWAT`). Without it they are megabytes, and a client that
/// has stopped reading is detected only after they are full.
const UNSENT_BYTES: u32 = 128 << 10;
/// Interval of keep-alive probes to a silent peer; after three without a reply the connection fails.
const PROBE_EVERY: Duration = Duration::from_secs(15);

/// Sets the options of an accepted socket.
pub(crate) fn prepare(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let socket = SockRef::from(socket);
    // Detects a peer that vanished while the connection is idle.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_mins(1))
        .with_interval(PROBE_EVERY)
        .with_retries(3);
    let _ = socket.set_tcp_keepalive(&keepalive);
    // TCP_USER_TIMEOUT, which limits how long bytes stay unacknowledged, is not set: the kernel applies it also to slow
    // readers, whose window is open but small.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn keepalive_and_unsent_limit_are_set() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (socket, _) = accepted.unwrap();
        prepare(&socket);
        assert!(socket.nodelay().unwrap());
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_mins(1));
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), PROBE_EVERY);
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_notsent_lowat().unwrap(), UNSENT_BYTES);
    }
}
