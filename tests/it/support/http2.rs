//! HTTP/2 clients with settings and manners of their own.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use h2::{
    Ping, PingPong, SendStream,
    client::{Builder, ResponseFuture, SendRequest},
};
use reqwest::{Method, header::HeaderMap};
use tokio::{net::TcpStream, task::JoinHandle};

const TIMEOUT: Duration = Duration::from_secs(20);

pub struct Http2Client {
    requests: SendRequest<Bytes>,
    pings: PingPong,
    ended: JoinHandle<Result<(), h2::Error>>,
}

impl Http2Client {
    pub async fn connect(address: SocketAddr, settings: &Builder) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (requests, mut connection) = settings.handshake(socket).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        Self {
            requests,
            pings,
            ended: tokio::spawn(connection),
        }
    }

    /// Sends the head of a request, and returns its response to come and the stream of its body.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        is_end: bool,
    ) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
        let mut request = hyper::Request::builder().method(method);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.uri(format!("http://gateway{path}")).body(());
        let mut requests = self.requests.clone().ready().await?;
        requests.send_request(request.unwrap(), is_end)
    }

    /// Waits for the response to a PING.
    pub async fn ping(&mut self) -> Result<(), h2::Error> {
        let answered = tokio::time::timeout(TIMEOUT, self.pings.ping(Ping::opaque()));
        answered.await.expect("a response in time").map(|_| ())
    }

    /// How the connection ends.
    pub async fn ended(self) -> Result<(), h2::Error> {
        drop(self.requests);
        let ended = tokio::time::timeout(TIMEOUT, self.ended).await;
        ended.expect("an end in time").unwrap()
    }
}

/// The status, headers and body of a response.
pub async fn whole(response: ResponseFuture) -> Result<(u16, HeaderMap, Vec<u8>), h2::Error> {
    let response = tokio::time::timeout(TIMEOUT, response).await;
    let (head, mut stream) = response.expect("a response in time")?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok((head.status.as_u16(), head.headers, body))
}
