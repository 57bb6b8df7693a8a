//! Reads request bodies, within their limits of size, time and memory.
//!
//! A body that is refused is drained, so that the client can read the error response. What was received of it is freed
//! at once.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use crate::{
    net::{
        body_memory::{BodyMemory, BodyReservation, COPIES, Exhausted},
        drain::drain_unread,
        offload::LARGE_BYTES,
        timeout::{DeadlineExceeded, with_deadline},
    },
    wire::error::GatewayError,
};

/// Timeout for each [`BODY_PACE`] bytes of a body, or for its rest: a kilobyte per second, so that a client cannot keep
/// a request open by sending single bytes.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
const BODY_PACE: usize = 30 << 10;

/// Size up to which a complete body reserves no memory: nearly all requests are smaller. One that has to be waited for
/// reserves this much from its first piece on.
const UNCOUNTED_BYTES: usize = 64 << 10;
/// The bytes for which memory is reserved at once.
const STEP_BYTES: usize = 256 << 10;
/// Most bytes for which a buffer is allocated because the client has announced them.
const TRUSTED_BYTES: usize = 1 << 20;

/// A body that was received completely, with the reservation of its memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceivedBody {
    bytes: Bytes,
    memory: Option<Arc<BodyReservation>>,
}

impl ReceivedBody {
    /// The fields are private, so that a closure that needs the bytes takes the reservation along.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// For a call that keeps the bytes: it also keeps [`Self::memory`].
    pub(crate) fn shared_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Also part of the call that is made of the body: the memory counts until the last of them is dropped.
    pub(crate) fn memory(&self) -> Option<Arc<BodyReservation>> {
        self.memory.clone()
    }

    pub(crate) fn is_large(&self) -> bool {
        self.bytes.len() > LARGE_BYTES
    }
}

/// Decides whether a body may be read further.
pub(crate) trait Gate {
    /// Size up to which the body may grow without [`Self::grow`].
    fn allowed(&self) -> usize;

    /// Called before the body is read, with the size that the client has announced.
    async fn begin(&mut self, announced: usize) -> Result<(), GatewayError>;

    /// Called before the body grows to `length` bytes.
    async fn grow(&mut self, length: usize) -> Result<(), GatewayError>;

    /// Called when the first piece is not the whole body, so that the client has to be waited for.
    async fn wait(&mut self) -> Result<(), GatewayError>;

    /// Completes if the body must not be read further.
    async fn revoked(&self);
}

/// Reads a whole body of an endpoint whose bodies are small. The content type is ignored: only whether the body can be
/// parsed matters.
pub(crate) async fn read_body(body: Body, limit: usize) -> Result<Bytes, GatewayError> {
    read_through(&mut Open, body, limit).await
}

/// Reads a whole body, as far as the gate allows.
pub(crate) async fn read_through(
    gate: &mut impl Gate,
    mut body: Body,
    limit: usize,
) -> Result<Bytes, GatewayError> {
    use axum::body::HttpBody as _;
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > limit {
        drain_unread(body);
        return Err(GatewayError::BodyTooLarge { limit });
    }
    if announced > gate.allowed()
        && let Err(error) = Box::pin(gate.begin(announced)).await
    {
        drain_unread(body);
        return Err(error);
    }
    let mut whole = BytesMut::new();
    // Size that must be reached by `due_by`. The timer starts only when the body has to be waited for.
    let (mut due, mut due_by) = (BODY_PACE, None);
    loop {
        let by = || *due_by.get_or_insert_with(|| Instant::now() + BODY_TIMEOUT);
        let frame = tokio::select! {
            biased;
            frame = with_deadline(by, body.frame()) => {
                frame.map_err(|DeadlineExceeded| GatewayError::BodyTooSlow)?
            }
            () = gate.revoked() => {
                drain_unread(body);
                return Err(GatewayError::BodyMemoryExhausted);
            }
        };
        let data = match frame {
            None => return Ok(whole.freeze()),
            Some(frame) => frame
                .map_err(|_| broken_body())?
                .into_data()
                .unwrap_or_default(),
        };
        let length = whole.len() + data.len();
        if length > limit {
            drain_unread(body);
            return Err(GatewayError::BodyTooLarge { limit });
        }
        if length > gate.allowed()
            && let Err(error) = Box::pin(gate.grow(length)).await
        {
            drain_unread(body);
            return Err(error);
        }
        // Most bodies arrive in one piece, which is returned without a copy.
        if whole.is_empty() {
            if body.is_end_stream() {
                return Ok(data);
            }
            if let Err(error) = Box::pin(gate.wait()).await {
                drain_unread(body);
                return Err(error);
            }
        }
        let size = buffer_size(announced, length, gate.allowed());
        whole.reserve(size.saturating_sub(whole.len()));
        whole.extend_from_slice(&data);
        if whole.len() >= due {
            (due, due_by) = (whole.len() + BODY_PACE, None);
        }
    }
}

/// The size of the buffer for a body that has reached `length`: at first what was announced, as far as the gate allows.
/// Beyond [`TRUSTED_BYTES`] all of it, of which the system provides only what is written to: growing in steps would leave
/// behind as much memory that was.
fn buffer_size(announced: usize, length: usize, allowed: usize) -> usize {
    if length > TRUSTED_BYTES {
        announced
    } else {
        announced.min(TRUSTED_BYTES).min(allowed)
    }
}

fn broken_body() -> GatewayError {
    let message = "The request body was cut off, or its HTTP framing is malformed.".to_owned();
    GatewayError::InvalidRequest {
        message,
        param: None,
    }
}

/// Lets every body through.
struct Open;

impl Gate for Open {
    fn allowed(&self) -> usize {
        usize::MAX
    }

    async fn begin(&mut self, _: usize) -> Result<(), GatewayError> {
        Ok(())
    }

    async fn grow(&mut self, _: usize) -> Result<(), GatewayError> {
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), GatewayError> {
        Ok(())
    }

    async fn revoked(&self) {
        std::future::pending::<()>().await;
    }
}

/// Reserves memory for a body of this account.
pub(crate) struct MemoryGate<'a> {
    memory: &'a Arc<BodyMemory>,
    account_id: &'a str,
    /// What a byte of the body counts.
    copies: usize,
    /// Size of the body for which memory is reserved.
    covered: usize,
    /// `None` for a small body that is complete.
    reservation: Option<BodyReservation>,
}

impl<'a> MemoryGate<'a> {
    /// For a body that is parsed and forwarded.
    pub(crate) fn new(memory: &'a Arc<BodyMemory>, account_id: &'a str) -> Self {
        Self::with_copies(memory, account_id, COPIES)
    }

    /// For a body of which so many copies are in memory at once.
    pub(crate) fn with_copies(
        memory: &'a Arc<BodyMemory>,
        account_id: &'a str,
        copies: usize,
    ) -> Self {
        Self {
            memory,
            account_id,
            copies,
            covered: UNCOUNTED_BYTES,
            reservation: None,
        }
    }

    async fn reserve(&mut self, bytes: usize) -> Result<(), GatewayError> {
        let (memory, account_id) = (self.memory, self.account_id);
        let reservation = self
            .reservation
            .get_or_insert_with(|| memory.begin(account_id));
        let grown = reservation.grow(bytes).await;
        grown.map_err(|Exhausted| GatewayError::BodyMemoryExhausted)
    }

    /// The body, once it is complete. It keeps the memory that it needs and releases the rest.
    pub(crate) fn received(self, bytes: Bytes) -> Result<ReceivedBody, GatewayError> {
        let counted = bytes.len().saturating_sub(UNCOUNTED_BYTES);
        let mut memory = self.reservation;
        if let Some(reservation) = &mut memory {
            let completed = reservation.complete(counted * self.copies);
            completed.map_err(|Exhausted| GatewayError::BodyMemoryExhausted)?;
        }
        let memory = memory.filter(|_| counted > 0);
        Ok(ReceivedBody {
            bytes,
            memory: memory.map(Arc::new),
        })
    }
}

impl Gate for MemoryGate<'_> {
    fn allowed(&self) -> usize {
        self.covered
    }

    async fn begin(&mut self, _: usize) -> Result<(), GatewayError> {
        Ok(())
    }

    async fn grow(&mut self, length: usize) -> Result<(), GatewayError> {
        while self.covered < length {
            self.reserve(STEP_BYTES * self.copies).await?;
            self.covered += STEP_BYTES;
        }
        Ok(())
    }

    async fn wait(&mut self) -> Result<(), GatewayError> {
        self.reserve(UNCOUNTED_BYTES).await
    }

    async fn revoked(&self) {
        match &self.reservation {
            Some(reservation) => reservation.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    /// A body whose pieces arrive after these seconds with these sizes.
    fn body(pieces: impl IntoIterator<Item = (u64, usize)>) -> Body {
        let pieces: Vec<_> = pieces.into_iter().collect();
        let pieces = stream::unfold(pieces.into_iter(), async |mut pieces| {
            let (seconds, bytes) = pieces.next()?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let piece = Ok::<_, std::convert::Infallible>(vec![b'x'; bytes]);
            Some((piece, pieces))
        });
        Body::from_stream(pieces)
    }

    /// Reads a body. Returns its length and the time in seconds.
    async fn read(
        pieces: impl IntoIterator<Item = (u64, usize)>,
    ) -> (Result<usize, GatewayError>, u64) {
        let started = Instant::now();
        let read = read_body(body(pieces), 1 << 20).await;
        (read.map(|body| body.len()), started.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_is_read_and_a_dripping_one_is_not() {
        let (steady, _) = read(std::iter::repeat_n((1, 2_000), 200)).await;
        assert_eq!(steady.unwrap(), 400_000);
        let (late, _) = read([(25, 30_000), (4, 1_000), (29, 10)]).await;
        assert_eq!(late.unwrap(), 31_010);

        let too_slow = |read: Result<usize, GatewayError>| {
            assert!(matches!(read, Err(GatewayError::BodyTooSlow)), "{read:?}");
        };
        let (silent, took) = read([(1, 1_000), (60, 1_000)]).await;
        too_slow(silent);
        assert_eq!(took, 30);
        let (dripping, took) = read(std::iter::repeat_n((1, 100), 1_000)).await;
        too_slow(dripping);
        assert_eq!(took, 30);
        // A fast start does not extend the timeout of the rest.
        let fast = std::iter::once((0, 500_000));
        let (dripping, took) = read(fast.chain(std::iter::repeat_n((1, 100), 1_000))).await;
        too_slow(dripping);
        assert_eq!(took, 30);
    }

    /// Reads a body of this account as far as its memory allows.
    async fn reserve(
        memory: &Arc<BodyMemory>,
        account: &str,
        pieces: impl IntoIterator<Item = (u64, usize)>,
    ) -> Result<ReceivedBody, GatewayError> {
        let mut gate = MemoryGate::new(memory, account);
        let read = read_through(&mut gate, body(pieces), 32 << 20).await?;
        gate.received(read)
    }

    const MEGABYTE: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn a_body_counts_until_the_last_copy_is_dropped() {
        let memory = Arc::new(BodyMemory::new(8 * MEGABYTE, 8 * MEGABYTE));
        let small = reserve(&memory, "a", [(0, 1_000), (0, 60_000)]).await;
        assert!(small.unwrap().memory.is_none());
        let pieces = std::iter::repeat_n((0, 50_000), 20);
        let large = reserve(&memory, "a", pieces).await.unwrap();
        assert_eq!(memory.reserved(), COPIES * (1_000_000 - UNCOUNTED_BYTES));
        let copy = large.clone();
        drop(large);
        assert!(memory.reserved() > 0);
        drop(copy);
        assert_eq!(memory.reserved(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_body_counts_while_it_is_waited_for() {
        let memory = Arc::new(BodyMemory::new(8 * MEGABYTE, 3 * UNCOUNTED_BYTES));
        let waiting = (0..4).map(|_| reserve(&memory, "a", [(0, 1), (10, 1_000)]));
        let waiting = futures_util::future::join_all(waiting);
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(memory.reserved(), 3 * UNCOUNTED_BYTES);
            // One that has arrived as a whole does not count.
            let whole = Body::from(vec![b'x'; UNCOUNTED_BYTES]);
            let mut gate = MemoryGate::new(&memory, "a");
            read_through(&mut gate, whole, MEGABYTE).await.unwrap();
        };
        let (waiting, ()) = tokio::join!(waiting, other);
        let served = waiting.iter().filter(|body| body.is_ok()).count();
        assert_eq!(served, 3);
        assert!(waiting.iter().flatten().all(|body| body.memory.is_none()));
        assert_eq!(memory.reserved(), 0);
    }

    #[test]
    fn an_announcement_alone_allocates_little() {
        let announced = 32 * MEGABYTE;
        assert_eq!(buffer_size(announced, 1, UNCOUNTED_BYTES), UNCOUNTED_BYTES);
        assert_eq!(buffer_size(announced, 1, usize::MAX), MEGABYTE);
        assert_eq!(buffer_size(announced, MEGABYTE + 1, 3), announced);
        assert_eq!(buffer_size(9, 1, usize::MAX), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_body_is_cancelled_for_one_of_an_account_with_less() {
        let memory = Arc::new(BodyMemory::new(11 * MEGABYTE / 2, 6 * MEGABYTE));
        // Sends nearly all of its body and then waits.
        let stuck = reserve(&memory, "many", [(0, 1_900_000), (20, 1)]);
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(memory.reserved() > 5 * MEGABYTE);
            let started = Instant::now();
            let read = reserve(&memory, "few", [(0, 100_000), (0, 200_000), (0, 1)]).await;
            assert_eq!(started.elapsed().as_secs(), 0, "it waits for no client");
            read.unwrap().bytes.len()
        };
        let (stuck, other) = tokio::join!(stuck, other);
        assert!(
            matches!(stuck, Err(GatewayError::BodyMemoryExhausted)),
            "{stuck:?}"
        );
        assert_eq!(other, 300_001);
        assert_eq!(memory.reserved(), 0);
    }
}
