//! The body of a request that is still on its way.
//!
//! Whoever reads it says that it wants more, and the connection brings it: one piece at a time, and none before it is
//! asked for. It may be read by the task that serves the connection, or by another.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use axum::body::HttpBody;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// A body that broke off, or that broke its frame.
#[derive(Debug, thiserror::Error)]
#[error("the body of the request broke off")]
pub struct BrokeOff;

/// The reader's end.
pub struct Incoming {
    shared: Arc<Mutex<Shared>>,
    /// Where it was announced.
    left: Option<u64>,
}

/// The connection's end.
pub struct Feed(Arc<Mutex<Shared>>);

#[derive(Default)]
struct Shared {
    piece: Option<Bytes>,
    coming: Coming,
    is_wanted: bool,
    reader_is_gone: bool,
    reader: Option<Waker>,
    connection: Option<Waker>,
}

/// Whether there is more than the piece that lies here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Coming {
    #[default]
    More,
    Nothing,
    /// It broke off, or broke its frame.
    Never,
}

/// What the connection is to do about a body.
#[derive(Debug, PartialEq, Eq)]
pub enum Wish {
    More,
    Nothing,
    /// Nobody will read it.
    Gone,
}

pub fn incoming(length: Option<u64>) -> (Feed, Incoming) {
    let shared = Arc::<Mutex<Shared>>::default();
    let incoming = Incoming {
        shared: shared.clone(),
        left: length,
    };
    (Feed(shared), incoming)
}

impl Feed {
    /// What is wished for; the connection is woken when that changes.
    pub fn wish(&self, context: &Context<'_>) -> Wish {
        let mut shared = lock(&self.0);
        if shared.reader_is_gone {
            return Wish::Gone;
        }
        // Whatever is wished for now: a reader that goes away is to be noticed.
        shared.connection = Some(context.waker().clone());
        if shared.is_wanted && shared.piece.is_none() {
            Wish::More
        } else {
            Wish::Nothing
        }
    }

    pub fn reader_is_gone(&self) -> bool {
        lock(&self.0).reader_is_gone
    }

    /// The reader is woken, unless it is of the task that gives: that looks again by itself.
    pub fn give(&self, piece: Bytes, context: &Context<'_>) {
        self.change(Some(context), |shared| {
            shared.piece = Some(piece);
            shared.is_wanted = false;
        });
    }

    pub fn end(&self, context: &Context<'_>) {
        self.change(Some(context), |shared| shared.coming = Coming::Nothing);
    }

    fn change(&self, giver: Option<&Context<'_>>, change: impl FnOnce(&mut Shared)) {
        let mut shared = lock(&self.0);
        change(&mut shared);
        let reader = shared.reader.take();
        drop(shared);
        let is_giver = |reader: &Waker| giver.is_some_and(|it| it.waker().will_wake(reader));
        if let Some(reader) = reader.filter(|reader| !is_giver(reader)) {
            reader.wake();
        }
    }
}

/// A connection that is over brings no more.
impl Drop for Feed {
    fn drop(&mut self) {
        self.change(None, |shared| {
            shared.connection = None;
            if shared.coming == Coming::More {
                shared.coming = Coming::Never;
            }
        });
    }
}

impl HttpBody for Incoming {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        let mut shared = lock(&self.shared);
        if let Some(piece) = shared.piece.take() {
            drop(shared);
            self.left = self
                .left
                .map(|left| left.saturating_sub(piece.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match shared.coming {
            Coming::More => {}
            Coming::Nothing => return Poll::Ready(None),
            Coming::Never => return Poll::Ready(Some(Err(BrokeOff))),
        }
        shared.reader = Some(context.waker().clone());
        shared.is_wanted = true;
        let connection = shared.connection.take();
        drop(shared);
        // In the same task it is about to look anyway.
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
            shared.coming == Coming::Nothing && shared.piece.is_none()
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Drop for Incoming {
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
