//! The hash of words and signs. It takes eight bytes at a time, because it is computed for every token.
//!
//! Buckets and fingerprints depend on it, so changing it invalidates all weights.

/// The hash of the empty string.
pub(super) const EMPTY: u64 = 0x9e37_79b9_7f4a_7c15;
const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// Extends the hash by up to eight bytes; missing ones are zero.
pub(super) const fn step(hash: u64, bytes: u64) -> u64 {
    let product = (hash ^ bytes) as u128 * MULTIPLIER as u128;
    product as u64 ^ (product >> 64) as u64
}

/// Extends the hash by `bytes`.
pub(super) const fn of(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut start = 0;
    while start < bytes.len() {
        let (mut eight, mut at) = (0, 0);
        while at < 8 && start + at < bytes.len() {
            eight |= (bytes[start + at] as u64) << (8 * at);
            at += 1;
        }
        hash = step(hash, eight);
        start += 8;
    }
    hash
}

pub(super) const fn word(word: &str) -> u64 {
    of(EMPTY, word.as_bytes())
}

/// The upper `bits` of the hash after a multiplication, which makes them depend on all of its bits.
pub(super) const fn top(hash: u64, bits: u32) -> u64 {
    hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (64 - bits)
}
