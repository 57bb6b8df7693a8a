//! Providers that send more than their responses: no caller may get bytes that were not written for its request.

use std::{
    collections::HashMap,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread::{sleep, spawn},
    time::{Duration, Instant},
};

use super::*;

const HEAD: &[u8] = b"POST /x HTTP/1.1\r\nhost: y\r\ncontent-length: 8\r\n\r\n";
/// Length of the number in a request and of every body.
const NUMBER: usize = 8;
const USUAL_WAIT: Duration = Duration::from_millis(20);

/// A provider with a thread for each connection, which sends exactly when it is told to.
struct Provider {
    pool: Arc<Pool>,
    connections: Arc<AtomicUsize>,
}

impl Provider {
    /// `serve` is called with each connection.
    fn start(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        Self::start_with(Reuse::Pooled, serve)
    }

    fn start_with(reuse: Reuse, serve: impl Fn(TcpStream) + Clone + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let connections = Arc::new(AtomicUsize::new(0));
        let accepted = connections.clone();
        spawn(move || {
            while let Ok((socket, _)) = listener.accept() {
                accepted.fetch_add(1, Ordering::SeqCst);
                socket.set_nodelay(true).unwrap();
                let serve = serve.clone();
                spawn(move || serve(socket));
            }
        });
        let timeout = Duration::from_secs(5);
        Self {
            pool: Arc::new(Pool::new(address.parse().unwrap(), timeout, reuse).unwrap()),
            connections,
        }
    }

    /// Sends a request with this number and returns the status and the body of the response.
    async fn call(&self, number: u32) -> (u16, String) {
        let mut connection = self.pool.take().await.unwrap();
        let body = format!("{number:08}");
        let head = connection.send(HEAD, body.as_bytes()).await.unwrap();
        let mut body = Vec::new();
        while let Some(data) = connection.next().await.unwrap() {
            body.extend_from_slice(&data);
        }
        self.pool.put(connection);
        (head.status, String::from_utf8(body).unwrap())
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn is_distrusted(&self) -> bool {
        self.pool.distrust.is_on(Instant::now)
    }
}

/// Reads a request and returns its number; `None` at the end of the connection.
fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut request = [0; HEAD.len() + NUMBER];
    socket.read_exact(&mut request).ok()?;
    Some(str::from_utf8(&request[HEAD.len()..]).unwrap().to_owned())
}

fn response(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {NUMBER}\r\n\r\n{body}")
}

/// The body of a 204 or 304, which has none, arrives when the connection may be in use again.
#[tokio::test]
async fn a_body_where_there_is_none_ends_the_connection() {
    for (status, framing) in [
        (204, "content-length: 45"),
        (304, "content-length: 45"),
        (204, "transfer-encoding: chunked"),
    ] {
        let provider = Provider::start(move |mut socket| {
            while let Some(number) = read_request(&mut socket) {
                let answer = if number == "00000000" {
                    format!("HTTP/1.1 {status} X\r\n{framing}\r\n\r\n")
                } else {
                    response(&number)
                };
                let _ = socket.write_all(answer.as_bytes());
                sleep(USUAL_WAIT / 10);
                let _ = socket.write_all(response("surplus!").as_bytes());
            }
        });
        assert_eq!(provider.call(0).await, (status, String::new()));
        tokio::time::sleep(USUAL_WAIT / 20).await;
        assert_eq!(provider.call(1).await, (200, "00000001".into()));
        assert_eq!(provider.connections(), 2, "{status}, {framing}");
    }
}

#[tokio::test]
async fn after_surplus_bytes_connections_are_used_once() {
    // How long after the response the surplus is sent: in the same write, in the next, and while the connection is idle.
    for after in [None, Some(Duration::ZERO), Some(USUAL_WAIT / 10)] {
        let provider = Provider::start(move |mut socket| {
            while let Some(number) = read_request(&mut socket) {
                let (answer, surplus) = (response(&number), response("surplus!"));
                let Some(after) = after.filter(|_| number == "00000000") else {
                    let more = if number == "00000000" {
                        surplus.as_str()
                    } else {
                        ""
                    };
                    socket.write_all((answer + more).as_bytes()).unwrap();
                    continue;
                };
                socket.write_all(answer.as_bytes()).unwrap();
                sleep(after);
                let _ = socket.write_all(surplus.as_bytes());
            }
        });
        for number in 0..5 {
            assert_eq!(provider.call(number).await.1, format!("{number:08}"));
            tokio::time::sleep(USUAL_WAIT).await;
        }
        assert!(provider.is_distrusted(), "{after:?}");
        assert_eq!(provider.connections(), 5, "{after:?}");

        provider.pool.distrust.forget();
        for number in 5..10 {
            assert_eq!(provider.call(number).await.1, format!("{number:08}"));
            tokio::time::sleep(USUAL_WAIT / 4).await;
        }
        assert_eq!(provider.connections(), 6, "reused after a while");
    }
}

#[tokio::test]
async fn a_connection_rests_after_a_response() {
    for (rest, connections) in [(Duration::ZERO, 1), (Duration::from_mins(1), 2)] {
        let mut provider = Provider::start(|mut socket| {
            while let Some(number) = read_request(&mut socket) {
                socket.write_all(response(&number).as_bytes()).unwrap();
            }
        });
        Arc::get_mut(&mut provider.pool).unwrap().rest = rest;
        for number in 0..2 {
            assert_eq!(provider.call(number).await.1, format!("{number:08}"));
        }
        assert_eq!(provider.connections(), connections);
    }
}

/// Some servers say why they close an idle connection.
#[tokio::test]
async fn a_timeout_notice_ends_only_its_connection() {
    let provider = Provider::start(|mut socket| {
        let Some(number) = read_request(&mut socket) else {
            return;
        };
        socket.write_all(response(&number).as_bytes()).unwrap();
        let notice = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\n\r\n";
        socket.write_all(notice).unwrap();
    });
    for number in 0..3 {
        assert_eq!(provider.call(number).await.1, format!("{number:08}"));
        tokio::time::sleep(USUAL_WAIT).await;
    }
    assert_eq!(provider.connections(), 3);
}

#[tokio::test]
async fn bytes_before_the_first_request_are_no_response() {
    let provider = Provider::start(|mut socket| {
        socket.write_all(response("surplus!").as_bytes()).unwrap();
        read_request(&mut socket);
    });
    let mut connection = provider.pool.take().await.unwrap();
    tokio::time::sleep(USUAL_WAIT).await;
    let sent = connection.send(HEAD, b"00000000").await;
    assert!(matches!(sent, Err(UpstreamError::Broken(_))), "{sent:?}");
    assert!(!connection.is_reusable());
}

/// What a provider does with the surplus after a response; chosen by the number of the request.
fn surplus_after(number: u32) -> Option<Duration> {
    let random = number.wrapping_mul(2_654_435_761) >> 8;
    match random % 8 {
        0 => Some(Duration::ZERO),
        1 | 2 => Some(Duration::from_micros(u64::from(random / 8 % 400))),
        3 => Some(Duration::from_micros(u64::from(random / 8 % 2_500))),
        _ => None,
    }
}

fn wait(duration: Duration) {
    let until = Instant::now() + duration;
    if duration > Duration::from_micros(500) {
        sleep(duration);
    }
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

const CALLERS: u32 = 8;

/// A provider that sends a whole second response at any moment after the first, and what became of it.
struct Race {
    requests: u32,
    reuse: Reuse,
    /// Whether the pool forgets at once that the provider sends surplus bytes, so that every request puts its check to
    /// the test, from both sides of the race between surplus and reuse.
    forgets: bool,
}

struct Outcome {
    connections: usize,
    surplus: usize,
    /// Requests that got a surplus response, which was sent after they were.
    late: u32,
}

impl Race {
    /// Panics if a request gets a response that was sent before it was.
    async fn run(self) -> Outcome {
        // When each body had been sent.
        let sent = Arc::new(Mutex::new(HashMap::<String, Instant>::new()));
        let (times, next_surplus) = (sent.clone(), Arc::new(AtomicU32::new(0)));
        let provider = Arc::new(Provider::start_with(self.reuse, move |mut socket| {
            let mut writing = socket.try_clone().unwrap();
            let mut respond = |body: String| {
                let is_sent = writing.write_all(response(&body).as_bytes()).is_ok();
                times.lock().unwrap().insert(body, Instant::now());
                is_sent
            };
            while let Some(number) = read_request(&mut socket) {
                if !respond(number.clone()) {
                    return;
                }
                if let Some(after) = surplus_after(number.parse().unwrap()) {
                    wait(after);
                    let id = next_surplus.fetch_add(1, Ordering::Relaxed);
                    respond(format!("X{id:07}"));
                }
            }
        }));
        let callers = (0..CALLERS).map(|caller| {
            let (provider, sent) = (provider.clone(), sent.clone());
            tokio::spawn(async move {
                let mut late = 0;
                for number in (caller..self.requests).step_by(CALLERS as usize) {
                    if self.forgets {
                        provider.pool.distrust.forget();
                    }
                    let taken = Instant::now();
                    let (_, body) = provider.call(number).await;
                    if body != format!("{number:08}") {
                        let sent = sent.lock().unwrap().get(&body).copied();
                        let before = sent.and_then(|sent| taken.checked_duration_since(sent));
                        assert_eq!(
                            before, None,
                            "{number} got {body}, sent before it was asked"
                        );
                        late += 1;
                    }
                    if number % 3 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                late
            })
        });
        let mut late = 0;
        for caller in callers.collect::<Vec<_>>() {
            late += caller.await.unwrap();
        }
        let (surplus, connections) = (surplus_count(&sent), provider.connections());
        println!(
            "{surplus} surplus responses on {connections} connections, {late} of them after the request"
        );
        Outcome {
            connections,
            surplus,
            late,
        }
    }
}

/// What was sent before a connection was taken from the pool is never the response to a later request. What is sent after
/// that cannot be distinguished from the response.
#[tokio::test]
async fn surplus_bytes_that_were_there_are_never_another_response() {
    let race = Race {
        requests: 10_000,
        reuse: Reuse::Pooled,
        forgets: true,
    };
    let outcome = race.run().await;
    assert!(
        outcome.connections > outcome.surplus / 2,
        "connections with surplus bytes are not reused"
    );
    assert!(outcome.connections < 10_000, "others are");
}

/// Each connection that was in use when the first surplus was found may have one more.
#[tokio::test]
async fn once_found_out_a_provider_mixes_up_nothing_more() {
    let race = Race {
        requests: 2_000,
        reuse: Reuse::Pooled,
        forgets: false,
    };
    let outcome = race.run().await;
    assert!(outcome.late <= CALLERS, "{}", outcome.late);
}

#[tokio::test]
async fn without_reuse_nothing_is_mixed_up() {
    let race = Race {
        requests: 10_000,
        reuse: Reuse::Never,
        forgets: true,
    };
    let outcome = race.run().await;
    assert_eq!((outcome.late, outcome.connections), (0, 10_000));
    assert!(outcome.surplus > 2_000, "{}", outcome.surplus);
}

/// How many surplus responses were sent.
fn surplus_count(sent: &Mutex<HashMap<String, Instant>>) -> usize {
    let sent = sent.lock().unwrap();
    sent.keys().filter(|body| body.starts_with('X')).count()
}
