//! Requests over an in-memory connection, with a simulated clock.

use bytes::Bytes;
use h2::{
    Ping, PingPong,
    client::{self, ResponseFuture, SendRequest},
};
use http_body_util::BodyExt as _;
use tokio::{
    io::{DuplexStream, duplex},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::*;

mod limits;

const TIMEOUTS: Timeouts = Timeouts {
    idle: Duration::from_secs(75),
    handshake: Duration::from_secs(10),
    stall: Duration::from_mins(1),
};

/// A client connection with this buffer that is served with `handler`, and the task that serves it.
fn served<F>(
    buffer: usize,
    shutdown: Shutdown,
    handler: impl Fn(Request<Body>) -> F + Send + 'static,
) -> (DuplexStream, JoinHandle<()>)
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let (client, server) = duplex(buffer);
    let serving = tokio::spawn(async move {
        serve(server, handler, TIMEOUTS, &shutdown, false).await;
    });
    (client, serving)
}

/// A client whose connection has a task of its own.
struct Client {
    requests: SendRequest<Bytes>,
    pings: PingPong,
    /// How the connection ended.
    ended: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    async fn connect(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        settings: &client::Builder,
    ) -> Self {
        let (requests, mut connection) = settings.handshake(stream).await.unwrap();
        let pings = connection.ping_pong().unwrap();
        Self {
            requests,
            pings,
            ended: tokio::spawn(connection),
        }
    }

    /// Sends a request with this body, and returns its response to come.
    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> ResponseFuture {
        let mut requests = self.requests.clone().ready().await.unwrap();
        let is_empty = body.is_empty();
        let sent = requests.send_request(request(method, path), is_empty);
        let (response, mut stream) = sent.unwrap();
        if !is_empty {
            stream.send_data(body, true).unwrap();
        }
        response
    }

    async fn get(&mut self, path: &str) -> (Response<()>, Bytes) {
        let response = self.send(Method::GET, path, Bytes::new()).await;
        whole(response).await.unwrap()
    }

    /// Sends PINGs for as long as the connection lasts.
    fn keep_pinging(self) -> SendRequest<Bytes> {
        let mut pings = self.pings;
        tokio::spawn(async move {
            while pings.ping(Ping::opaque()).await.is_ok() {
                sleep(Duration::from_secs(5)).await;
            }
        });
        self.requests
    }
}

fn request(method: Method, path: &str) -> Request<()> {
    let request = Request::builder().method(method);
    request
        .uri(format!("http://gateway{path}"))
        .body(())
        .unwrap()
}

/// The whole response.
async fn whole(response: ResponseFuture) -> Result<(Response<()>, Bytes), h2::Error> {
    let (head, mut stream) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        stream.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    Ok((Response::from_parts(head, ()), body.into()))
}

/// Responds with the method, path and body of the request.
async fn echo(request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_or_else(
        |_| "broken".to_owned(),
        |body| String::from_utf8(body.to_bytes().to_vec()).unwrap(),
    );
    let (method, path) = (parts.method, parts.uri.path().to_owned());
    let mut response = Response::new(Body::from(format!("<{method} {path} {body}>")));
    let close = axum::http::HeaderValue::from_static("close");
    response.headers_mut().insert("connection", close);
    response
}

#[tokio::test(start_paused = true)]
async fn requests_get_responses() {
    let (client, _serving) = served(1 << 16, Shutdown::default(), echo);
    let mut client = Client::connect(client, &client::Builder::new()).await;
    let (head, body) = client.get("/a").await;
    assert_eq!(body, "<GET /a >");
    assert_eq!(head.headers()["content-length"], "9");
    let date = head.headers()["date"].to_str().unwrap();
    assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    assert!(!head.headers().contains_key("connection"));

    let sent = "x".repeat(3 << 20);
    let response = client.send(Method::POST, "/p", sent.clone().into()).await;
    let (_, body) = whole(response).await.unwrap();
    assert_eq!(body, format!("<POST /p {sent}>"));

    let response = client.send(Method::HEAD, "/a", Bytes::new()).await;
    let (head, body) = whole(response).await.unwrap();
    assert_eq!(head.headers()["content-length"], "10");
    assert_eq!(body, "");
}

#[tokio::test(start_paused = true)]
async fn running_requests_are_finished_before_a_shutdown() {
    let shutdown = Shutdown::default();
    let handler = async |_| {
        sleep(Duration::from_secs(20)).await;
        Response::new(Body::from("done"))
    };
    let (client, serving) = served(1 << 16, shutdown.clone(), handler);
    let mut client = Client::connect(client, &client::Builder::new()).await;
    let response = client.send(Method::GET, "/", Bytes::new()).await;
    sleep(Duration::from_secs(1)).await;
    shutdown.request();
    assert_eq!(whole(response).await.unwrap().1, "done");
    timeout(Duration::from_secs(1), serving)
        .await
        .expect("an end")
        .unwrap();
}

/// A timeout of its reader applies. After the response, the client is told to stop sending.
#[tokio::test(start_paused = true)]
async fn a_dripping_body_reaches_its_reader_as_it_arrives() {
    let handler = async |request: Request<Body>| {
        let mut body = request.into_body();
        let mut pieces = 0;
        while let Ok(Some(Ok(_))) = timeout(Duration::from_secs(30), body.frame()).await {
            pieces += 1;
        }
        Response::new(Body::from(pieces.to_string()))
    };
    let (client, _serving) = served(1 << 16, Shutdown::default(), handler);
    let mut client = Client::connect(client, &client::Builder::new()).await;
    let sent = client
        .requests
        .send_request(request(Method::POST, "/"), false);
    let (response, mut stream) = sent.unwrap();
    for _ in 0..3 {
        stream.send_data(Bytes::from_static(b"x"), false).unwrap();
        sleep(Duration::from_secs(20)).await;
    }
    assert_eq!(whole(response).await.unwrap().1, "3");
    let reset = poll_fn(|context| stream.poll_reset(context)).await;
    assert_eq!(reset.unwrap(), Reason::NO_ERROR);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_reset_is_an_error() {
    let (sender, mut bodies) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |request: Request<Body>| {
        let sender = sender.clone();
        async move {
            let body = request.into_body();
            // Its handler is dropped with the stream; another task may still read the body.
            tokio::spawn(async move { sender.send(body.collect().await.is_ok()) });
            std::future::pending().await
        }
    };
    let (client, _serving) = served(1 << 16, Shutdown::default(), handler);
    let mut client = Client::connect(client, &client::Builder::new()).await;
    let sent = client
        .requests
        .send_request(request(Method::POST, "/"), false);
    let (_response, mut stream) = sent.unwrap();
    stream
        .send_data(Bytes::from_static(b"half"), false)
        .unwrap();
    sleep(Duration::from_secs(1)).await;
    stream.send_reset(Reason::CANCEL);
    assert_eq!(bodies.recv().await, Some(false));
}
