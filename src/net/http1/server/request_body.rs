//! The body of a request that has not arrived completely.
//!
//! The connection reads one piece when the reader of the body polls for it, and none before. The reader may be the task
//! that serves the connection or another one. If the connection ends first, the reader gets an error.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// The connection ended before the body did, or the framing of the body is malformed.
#[derive(Debug, thiserror::Error)]
#[error("the request body was cut off")]
pub(crate) struct CutOff;

/// The body, for its reader.
pub(crate) struct RequestBody {
    shared: Arc<Mutex<Shared>>,
    /// Bytes left to read; `None` if the body is chunked.
    left: Option<u64>,
}

/// The connection's side of a body.
pub(crate) struct BodySender(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    piece: Option<Bytes>,
    rest: Rest,
    /// Whether the reader waits for a piece.
    is_wanted: bool,
    reader_is_gone: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

/// State of the body after `Shared::piece`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    More,
    End,
    /// The connection ended, or the framing is malformed.
    CutOff,
}

/// What the reader of a body needs from the connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    More,
    Nothing,
    /// The reader was dropped.
    ReaderGone,
}

/// Both sides of a body; `length` is `None` if it is chunked.
pub(crate) fn request_body(length: Option<u64>) -> (BodySender, RequestBody) {
    let shared = Arc::<Mutex<Shared>>::default();
    let body = RequestBody {
        shared: shared.clone(),
        left: length,
    };
    (BodySender(shared), body)
}

impl BodySender {
    /// The reader's demand; the task of `context` is woken when it changes.
    pub(crate) fn demand(&self, context: &Context<'_>) -> Demand {
        let mut shared = lock(&self.0);
        if shared.reader_is_gone {
            return Demand::ReaderGone;
        }
        // Also if nothing is needed now: the connection must be woken when the reader is dropped.
        shared.connection = Some(context.waker().clone());
        if shared.is_wanted && shared.piece.is_none() {
            Demand::More
        } else {
            Demand::Nothing
        }
    }

    pub(crate) fn reader_is_gone(&self) -> bool {
        lock(&self.0).reader_is_gone
    }

    /// Passes a piece to the reader and wakes it, unless it is in this task, which polls it again anyway.
    pub(crate) fn send(&self, piece: Bytes, context: &Context<'_>) {
        self.change(Some(context), |shared| {
            shared.piece = Some(piece);
            shared.is_wanted = false;
        });
    }

    pub(crate) fn end(&self, context: &Context<'_>) {
        self.change(Some(context), |shared| shared.rest = Rest::End);
    }

    fn change(&self, sender: Option<&Context<'_>>, change: impl FnOnce(&mut Shared)) {
        let mut shared = lock(&self.0);
        change(&mut shared);
        let reader = shared.reader.take();
        drop(shared);
        let is_sender = |reader: &Waker| sender.is_some_and(|task| task.waker().will_wake(reader));
        if let Some(reader) = reader.filter(|reader| !is_sender(reader)) {
            reader.wake();
        }
    }
}

/// A body whose connection ends before it is cut off.
impl Drop for BodySender {
    fn drop(&mut self) {
        self.change(None, |shared| {
            shared.connection = None;
            if shared.rest == Rest::More {
                shared.rest = Rest::CutOff;
            }
        });
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let mut shared = lock(&self.shared);
        if let Some(piece) = shared.piece.take() {
            drop(shared);
            self.left = self
                .left
                .map(|left| left.saturating_sub(piece.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match shared.rest {
            Rest::More => {}
            Rest::End => return Poll::Ready(None),
            Rest::CutOff => return Poll::Ready(Some(Err(CutOff))),
        }
        shared.reader = Some(context.waker().clone());
        shared.is_wanted = true;
        let connection = shared.connection.take();
        drop(shared);
        // In the task of the connection itself, the connection polls for the demand next.
        if let Some(connection) = connection
            && !connection.will_wake(context.waker())
        {
            connection.wake();
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.left == Some(0) || {
            let shared = lock(&self.shared);
            shared.rest == Rest::End && shared.piece.is_none()
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let mut shared = lock(&self.shared);
        shared.reader_is_gone = true;
        let connection = shared.connection.take();
        drop(shared);
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
