//! How many connections of clients are open at a time.
//!
//! Every connection takes a file, and so does the connection to a provider for its request. If clients could use up all
//! files of the process, it could neither reach its stores nor serve its operators. So the public listener has a bound.
//! A few connections beyond it are accepted for a moment: health checks are answered, calls get 503. Further ones are
//! closed.
//!
//! An HTTP/2 connection has many requests at a time, so each of them counts like a connection.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes, HttpBody},
    response::Response,
};
use hyper::body::{Frame, SizeHint};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files for everything that is not a client's request: databases, stores, the operator's listener, logs.
const OTHER_FILES: u64 = 256;
/// Connections beyond the bound that are accepted for a moment.
const EXTRA: usize = 64;
/// Stands for any number of open files.
const UNLIMITED: u64 = 1 << 20;

/// Counts open connections against a bound; clones share the count.
#[derive(Clone)]
pub(super) struct ConnectionLimit {
    open: Arc<AtomicUsize>,
    most: usize,
}

/// A connection within the bound, or beyond it. Dropping it ends the connection's count.
pub(super) struct Counted {
    open: Arc<AtomicUsize>,
    /// Calls are refused on it.
    pub is_extra: bool,
}

impl ConnectionLimit {
    /// A limit of `most` connections; without one, half of the files that the process may open, less a reserve.
    pub(super) fn new(most: Option<usize>) -> Self {
        let by_files = || {
            let files = raise_open_files().saturating_sub(OTHER_FILES) / 2;
            usize::try_from(files).unwrap_or(usize::MAX).max(EXTRA)
        };
        Self {
            open: Arc::default(),
            most: most.unwrap_or_else(by_files),
        }
    }

    pub(super) fn unbounded() -> Self {
        Self {
            open: Arc::default(),
            most: usize::MAX,
        }
    }

    /// Counts a new connection; `None` if it must be closed.
    pub(super) fn count(&self) -> Option<Counted> {
        let before = self.open.fetch_add(1, Relaxed);
        let counted = Counted {
            open: self.open.clone(),
            is_extra: before >= self.most,
        };
        (before < self.most.saturating_add(EXTRA)).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

impl Counted {
    /// Counts a request of an HTTP/2 connection until its response has been sent.
    pub(super) fn until_sent(self, response: Response) -> Response {
        response.map(|body| {
            Body::new(CountedBody {
                body,
                _counted: self,
            })
        })
    }
}

struct CountedBody {
    body: Body,
    _counted: Counted,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Raises the number of files that this process may open to what the system allows it, and returns it.
fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let number = |limit: Option<u64>| limit.unwrap_or(UNLIMITED);
    let (current, maximum) = (number(limit.current), number(limit.maximum));
    let raised = Rlimit {
        current: Some(maximum),
        maximum: limit.maximum,
    };
    if current < maximum && setrlimit(Resource::Nofile, raised).is_ok() {
        return maximum;
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_connections_beyond_the_bound_are_extra_and_the_rest_is_closed() {
        let limit = ConnectionLimit::new(Some(2));
        let first = limit.count().unwrap();
        assert!(!first.is_extra);
        assert!(!limit.count().unwrap().is_extra, "dropped at once");
        let _second = limit.count().unwrap();
        let extra: Vec<_> = (0..EXTRA).map(|_| limit.count().unwrap()).collect();
        assert!(extra.iter().all(|counted| counted.is_extra));
        assert!(limit.count().is_none());
        drop(extra);
        drop(first);
        assert!(!limit.count().unwrap().is_extra);
    }

    #[test]
    fn half_of_the_files_are_for_clients() {
        let limit = ConnectionLimit::new(None);
        let files = getrlimit(Resource::Nofile).current.unwrap_or(UNLIMITED);
        assert!(limit.most >= EXTRA);
        assert!(limit.most as u64 <= (files / 2).max(EXTRA as u64));
    }
}
