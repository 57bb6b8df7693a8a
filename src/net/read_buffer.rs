//! A read buffer that all connections of a thread share.
//!
//! Thousands of connections wait while a few have bytes to read, so a buffer for each would mostly lie unused. Received
//! bytes are copied out of the shared buffer, which for a few kilobytes is cheaper than to allocate one before each
//! read.

use std::{
    cell::RefCell,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio_util::io::poll_read_buf;

/// Size of the shared buffer. Requests and responses are seldom larger.
pub(crate) const SHARED_BYTES: usize = 16 << 10;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; SHARED_BYTES].into());
}

/// Appends the available bytes to `input` and returns their number. If more bytes are `expected` than fit into the
/// shared buffer, they are read into `input` directly.
pub(crate) fn poll_read<S: AsyncRead>(
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
