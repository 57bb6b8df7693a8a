//! Clients that send requests to a gateway until they are told to stop.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Serving, gateway::hello};

const MODEL: &str = "svc-native-fast";
/// Longer than any step takes.
const TIMEOUT: Duration = Duration::from_mins(1);

pub struct Load {
    /// The `X-Request-ID` of every response that was received completely.
    answered: Arc<Mutex<BTreeSet<String>>>,
    stop: CancellationToken,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts this many clients; every other one streams.
    pub fn start(serving: &Serving, clients: usize) -> Self {
        let answered = Arc::<Mutex<BTreeSet<String>>>::default();
        let stop = CancellationToken::new();
        let clients = (0..clients).map(|client| {
            let (answered, stop) = (answered.clone(), stop.clone());
            let mut body = hello(MODEL);
            body["stream"] = (client % 2 == 0).into();
            let request = serving.chat(&body);
            tokio::spawn(async move {
                for number in 0.. {
                    if stop.is_cancelled() {
                        return;
                    }
                    let id = format!("load-{client}-{number}");
                    let request = request.try_clone().unwrap().header("x-request-id", &id);
                    let response = request.send().await.unwrap();
                    assert_eq!(response.status(), 200);
                    response.text().await.unwrap();
                    answered.lock().unwrap().insert(id);
                }
            })
        });
        Self {
            clients: clients.collect(),
            answered,
            stop,
        }
    }

    pub fn answered(&self) -> BTreeSet<String> {
        self.answered.lock().unwrap().clone()
    }

    /// Waits until this many more requests have been answered.
    pub async fn go_on_for(&self, count: usize) {
        let enough = self.answered().len() + count;
        let deadline = Instant::now() + TIMEOUT;
        while self.answered().len() < enough {
            assert!(Instant::now() < deadline, "no more answers");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for the last responses. Returns the IDs of all requests.
    pub async fn stop(self) -> BTreeSet<String> {
        self.stop.cancel();
        for client in self.clients {
            client.await.unwrap();
        }
        Arc::into_inner(self.answered)
            .unwrap()
            .into_inner()
            .unwrap()
    }
}
