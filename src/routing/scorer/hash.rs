//! The hash of words and signs: eight bytes at a time, since it is computed for every one.
//!
//! Buckets and fingerprints are made from it, so weights are of use with this hash only.

/// The hash of no bytes at all.
pub(super) const EMPTY: u64 = 0x9e37_79b9_7f4a_7c15;
const MANY_BITS: u64 = 0xd6e8_feb8_6659_fd93;

/// Goes on by up to eight bytes, the missing ones zero.
pub(super) const fn step(hash: u64, bytes: u64) -> u64 {
    let product = (hash ^ bytes) as u128 * MANY_BITS as u128;
    product as u64 ^ (product >> 64) as u64
}

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

/// The hash of a word.
pub(super) const fn word(word: &str) -> u64 {
    of(EMPTY, word.as_bytes())
}

/// The upper bits of a product depend on all bits of the hash; the lower ones do not.
pub(super) const fn top(hash: u64, bits: u32) -> u64 {
    hash.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> (64 - bits)
}
