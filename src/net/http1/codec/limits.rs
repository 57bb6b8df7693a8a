//! Size limits of heads and of what surrounds a body.

/// Largest head that is accepted: larger than any client or provider sends, and small enough not to be a burden.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;
/// Most headers of a request: more than any client sends.
pub(crate) const MAX_HEADERS: usize = 100;
/// Most headers of a response.
pub(super) const MAX_RESPONSE_HEADERS: usize = 128;
/// Most interim responses (1xx) before a response. Their bytes together are limited by [`MAX_HEAD_BYTES`].
pub(super) const MAX_INTERIM_RESPONSES: u32 = 16;
/// Most bytes of a request body that are extensions of chunks or trailers, which are ignored.
pub(super) const MAX_EXTRA_BYTES: u32 = 16 << 10;
/// Most ignored bytes beside one chunk of a response, and in its trailers.
pub(super) const MAX_EXTRA_BYTES_LENIENT: u32 = 64 << 10;
/// Most digits of a chunk size: a 64-bit number has sixteen.
pub(super) const MAX_SIZE_DIGITS: u32 = 16;
/// Largest `Content-Length`. hyper reserves the two values above it for other meanings.
pub(super) const MAX_LENGTH: u64 = u64::MAX - 2;
