//! Random numbers with a seed, and random changes to bytes, for tests that feed parsers with broken input.
//!
//! The same seed gives the same numbers everywhere, so that a failure can be repeated.

/// A small generator (xorshift64*), for tests only.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // Spreads small seeds, and avoids 0, of which the generator would never get away.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Seeded by the bytes themselves (FNV-1a).
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self::new(hash)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// A number below `end`, which is 1 at least.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Splits the bytes into pieces of random lengths, sometimes into single bytes.
    pub(crate) fn pieces<'a>(&mut self, bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let longest = *self.pick(&[1, 3, 20, 200, 5_000]);
        let mut pieces = Vec::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(1 + self.below(longest)));
            pieces.push(piece);
            rest = after;
        }
        pieces
    }

    /// Changes the bytes in one to four places: flips bits, cuts, repeats, inserts words of `dictionary` and parts of
    /// `others`.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>, dictionary: &[&[u8]], others: &[Vec<u8>]) {
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len() + 1);
            let longest = 1 << self.below(10);
            let end = bytes.len().min(at + 1 + self.below(longest));
            match self.below(8) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => bytes[at] = self.next().to_le_bytes()[0],
                2 => drop(bytes.drain(at..end)),
                3 => bytes.truncate(at),
                4 => {
                    let part = bytes[at..end].to_vec();
                    let to = self.below(bytes.len() + 1);
                    bytes.splice(to..to, part);
                }
                5 if !others.is_empty() => {
                    let other = self.pick(others);
                    let from = self.below(other.len() + 1);
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
                _ if !dictionary.is_empty() => {
                    let word = *self.pick(dictionary);
                    let replaced = if self.once_in(2) { at } else { end };
                    bytes.splice(at..replaced, word.iter().copied());
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_changes_again() {
        let changed = |seed| {
            let mut bytes = b"0123456789".repeat(10);
            Random::new(seed).mutate(&mut bytes, &[b"word"], &[b"another".to_vec()]);
            bytes
        };
        assert_eq!(changed(7), changed(7));
        let different = (0..100).filter(|seed| changed(*seed) != changed(seed + 1));
        assert!(different.count() > 90);
    }

    #[test]
    fn pieces_make_up_the_whole() {
        let bytes = b"0123456789".repeat(10);
        for seed in 0..100 {
            assert_eq!(Random::new(seed).pieces(&bytes).concat(), bytes);
        }
    }
}
