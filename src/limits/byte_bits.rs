//! Which bytes of a block are of some kind, as the bits of one number.

use wide::i8x64;

/// As many bytes as a number has bits.
pub const BLOCK: usize = 64;
pub type Block = [u8; BLOCK];

pub struct Bytes(i8x64);

impl Bytes {
    pub fn of(block: &Block) -> Self {
        Self(i8x64::new(block.map(u8::cast_signed)))
    }

    /// A bit for each that is from `low` to `high`, the first one's the lowest. Both are ASCII, so that what is not
    /// counts as less.
    pub fn within(&self, low: u8, high: u8) -> u64 {
        let (below, above) = (low.cast_signed() - 1, high.cast_signed() + 1);
        let from_low = self.0.simd_gt(i8x64::splat(below));
        let to_high = self.0.simd_lt(i8x64::splat(above));
        (from_low & to_high).to_bitmask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn each_byte_has_its_bit(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, BLOCK),
            low in 0_u8..0x7f,
            span in 0_u8..0x7f,
        ) {
            let high = (low + span).min(0x7e);
            let block: Block = bytes.try_into().unwrap();
            let bits = block.iter().rev().fold(0, |bits, byte| {
                bits << 1 | u64::from((low..=high).contains(byte))
            });
            proptest::prop_assert_eq!(Bytes::of(&block).within(low, high), bits);
        }
    }
}
