//! What has arrived on a connection and was not read, at this very moment.
//!
//! A pooled connection may be used only if nothing has: bytes that arrived before a request are not its response. The
//! runtime cannot answer this. It learns of new bytes when it polls the kernel for events, and until then a read is
//! pending although there are bytes. So the kernel is asked, with one system call.
//!
//! What cannot be seen: the first part of a TLS record that was read together with the end of the last response.

use std::{
    future::poll_fn,
    io::{ErrorKind, Read as _},
    mem::MaybeUninit,
    pin::Pin,
};

use futures_util::FutureExt as _;
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::TcpStream,
    task::unconstrained,
};

use super::connect::Stream;

/// How many of the unread bytes are returned: enough for a status line.
const FIRST_BYTES: usize = 16;

/// The unread content of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    Nothing,
    /// The first bytes, which are consumed: the connection cannot be used any more.
    Bytes(Vec<u8>),
    /// Bytes of TLS whose content is unknown: data, an alert or a session ticket.
    Encrypted,
    /// The connection has ended or failed.
    End,
}

impl Stream {
    /// Looks for unread bytes, of the TLS session and of the socket.
    pub(crate) fn unread(&mut self) -> Unread {
        match self {
            Self::Plain(socket) => read_socket(socket),
            // The socket first: the session may take part of a record from it, and show nothing of it yet.
            Self::Tls(tls) => match (peek_below(tls), read_session(tls)) {
                (below, Unread::Nothing) => below,
                (_, unread) => unread,
            },
        }
    }
}

fn read_socket(socket: &TcpStream) -> Unread {
    let mut first = [0; FIRST_BYTES];
    // Sockets of the runtime do not block.
    match (&*SockRef::from(socket)).read(&mut first) {
        Ok(0) => Unread::End,
        Ok(count) => Unread::Bytes(first[..count].to_vec()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Unread::Nothing,
        Err(_) => Unread::End,
    }
}

type TlsStream = TokioIo<MaybeHttpsStream<TokioIo<TcpStream>>>;

/// Data that the TLS session has decrypted already, or decrypts from bytes that the runtime knows of.
fn read_session(stream: &mut TlsStream) -> Unread {
    let mut first = [0; FIRST_BYTES];
    let mut first = ReadBuf::new(&mut first);
    let read = poll_fn(|context| Pin::new(&mut *stream).poll_read(context, &mut first));
    // Unconstrained, because a task without cooperative budget would get `Pending`, as from a silent connection.
    match unconstrained(read).now_or_never() {
        None => Unread::Nothing,
        Some(Ok(())) if !first.filled().is_empty() => Unread::Bytes(first.filled().to_vec()),
        Some(_) => Unread::End,
    }
}

/// Bytes in the socket below a TLS session. They are not consumed: the session needs them.
fn peek_below(stream: &TlsStream) -> Unread {
    let socket = match stream.inner() {
        MaybeHttpsStream::Http(socket) => socket.inner(),
        MaybeHttpsStream::Https(tls) => tls.inner().get_ref().0.inner().inner(),
    };
    peek(socket)
}

fn peek(socket: &TcpStream) -> Unread {
    match SockRef::from(socket).peek(&mut [MaybeUninit::uninit()]) {
        Ok(0) => Unread::End,
        Ok(_) => Unread::Encrypted,
        Err(error) if error.kind() == ErrorKind::WouldBlock => Unread::Nothing,
        Err(_) => Unread::End,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write as _,
        net::{Shutdown, TcpListener},
        sync::Arc,
    };

    use rustls::{
        ClientConfig, RootCertStore, ServerConfig, ServerConnection, StreamOwned, crypto::ring,
    };
    use rustls_pki_types::{PrivateKeyDer, ServerName};
    use tokio_rustls::TlsConnector;

    use super::*;

    /// A client's connection, and the server's socket, which blocks.
    async fn pair() -> (TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await;
        (client.unwrap(), listener.accept().unwrap().0)
    }

    /// Waits until something has arrived, in a way in which the runtime has no occasion to learn of it.
    fn wait_for_bytes(client: &Stream) {
        let is_silent = || match client {
            Stream::Plain(socket) => peek(socket) == Unread::Nothing,
            Stream::Tls(tls) => peek_below(tls) == Unread::Nothing,
        };
        while is_silent() {
            std::thread::yield_now();
        }
    }

    #[tokio::test]
    async fn bytes_are_found_at_once() {
        let (client, mut server) = pair().await;
        let mut client = Stream::Plain(client);
        assert_eq!(client.unread(), Unread::Nothing);
        server.write_all(b"HTTP/1.1 200 OK").unwrap();
        wait_for_bytes(&client);
        assert_eq!(client.unread(), Unread::Bytes(b"HTTP/1.1 200 OK".into()));
        assert_eq!(client.unread(), Unread::Nothing);
        server.shutdown(Shutdown::Write).unwrap();
        wait_for_bytes(&client);
        assert_eq!(client.unread(), Unread::End);
    }

    #[tokio::test]
    async fn a_reset_is_an_end() {
        let (client, server) = pair().await;
        SockRef::from(&server)
            .set_linger(Some(std::time::Duration::ZERO))
            .unwrap();
        drop(server);
        let mut client = Stream::Plain(client);
        wait_for_bytes(&client);
        assert_eq!(client.unread(), Unread::End);
    }

    /// The TLS server runs in a thread, because both sides must take part in the handshake.
    async fn tls_pair() -> (Stream, StreamOwned<ServerConnection, std::net::TcpStream>) {
        let provider = Arc::new(ring::default_provider());
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let trusting = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (client, socket) = pair().await;
        let server = std::thread::spawn(move || {
            let session = ServerConnection::new(Arc::new(config)).unwrap();
            let mut server = StreamOwned::new(session, socket);
            server.conn.complete_io(&mut server.sock).unwrap();
            server
        });
        let name = ServerName::try_from("localhost").unwrap();
        let client = TlsConnector::from(Arc::new(trusting))
            .connect(name, TokioIo::new(TokioIo::new(client)))
            .await
            .unwrap();
        let client = MaybeHttpsStream::from(client);
        let client = Stream::Tls(Box::new(TokioIo::new(client)));
        (client, server.join().unwrap())
    }

    /// Part of a record gives no data, and once the session has taken it, the socket has none either.
    #[tokio::test]
    async fn part_of_a_tls_record_is_found() {
        let (mut client, mut server) = tls_pair().await;
        while client.unread() != Unread::Nothing {
            tokio::task::yield_now().await;
        }
        server.conn.writer().write_all(&[b'x'; 1_000]).unwrap();
        let mut record = Vec::new();
        server.conn.write_tls(&mut record).unwrap();
        server.sock.write_all(&record[..500]).unwrap();
        wait_for_bytes(&client);
        let Stream::Tls(tls) = &client else {
            unreachable!()
        };
        // The runtime learns of it, so that the session reads it.
        let MaybeHttpsStream::Https(session) = tls.inner() else {
            unreachable!()
        };
        let socket = session.inner().get_ref().0.inner().inner();
        socket.readable().await.unwrap();
        assert_eq!(client.unread(), Unread::Encrypted);
    }

    #[tokio::test]
    async fn bytes_below_tls_are_found_at_once() {
        let (mut client, mut server) = tls_pair().await;
        // The session tickets that follow a handshake are read, after which nothing is left.
        while client.unread() != Unread::Nothing {
            tokio::task::yield_now().await;
        }
        server.write_all(b"HTTP/1.1 200 OK").unwrap();
        server.flush().unwrap();
        wait_for_bytes(&client);
        assert_eq!(client.unread(), Unread::Encrypted);
        // Once the runtime knows of them, they are decrypted.
        let mut unread = Unread::Encrypted;
        while unread == Unread::Encrypted {
            tokio::task::yield_now().await;
            unread = client.unread();
        }
        assert_eq!(unread, Unread::Bytes(b"HTTP/1.1 200 OK".into()));
    }
}
