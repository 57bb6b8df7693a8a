//! What the kernel is told about an accepted socket.
//!
//! None of it is needed to serve a client that behaves, so what cannot be set is left as it is.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// How much of an answer the kernel takes on before the client's side has room for it. Without a
/// bound that is megabytes, and a reader that has stopped is found out only after them.
const UNSENT_BYTES: u32 = 128 << 10;
/// A silent peer is asked for a sign of life this often, and given up after three times.
const PROBE_EVERY: Duration = Duration::from_secs(15);

pub fn prepare(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let socket = SockRef::from(socket);
    // A peer that vanished while nothing is under way.
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_mins(1))
        .with_interval(PROBE_EVERY)
        .with_retries(3);
    let _ = socket.set_tcp_keepalive(&keepalive);
    // There is no limit on how long bytes may stay unacknowledged (TCP_USER_TIMEOUT): the kernel
    // applies it to slow readers too, whose window is open but small.
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES);
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_vanished_is_found_out() {
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
