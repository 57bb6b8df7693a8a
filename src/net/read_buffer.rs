//! What connections read into.
//!
//! Thousands of them wait while a few have something to read, so those of a thread share one buffer. What came is
//! copied out of it, which for some kilobytes costs less than to make room that is mostly not needed.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// How much is read at once through it. Requests and answers are seldom larger.
pub const SHARED_BYTES: usize = 16 << 10;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED_BYTES].into());
}

/// Adds what there is to `input`; says how much that is. Where more is expected than can be shared, it is read
/// to where it stays.
pub fn poll_read<S: AsyncRead>(
    stream: Pin<&mut S>,
    context: &mut Context<'_>,
    input: &mut BytesMut,
    expected: usize,
) -> Poll<io::Result<usize>> {
    if expected > SHARED_BYTES {
        input.reserve(expected);
        return poll_read_buf(stream, context, input);
    }
    SHARED.with_borrow_mut(|shared| {
        let mut read = ReadBuf::new(shared);
        ready!(stream.poll_read(context, &mut read))?;
        input.extend_from_slice(read.filled());
        Poll::Ready(Ok(read.filled().len()))
    })
}
