//! The merges of cl100k and o200k, as `build.rs` writes them.

use super::table::{Aligned, Merges, PairSlot};

static CL100K: Aligned<[u8; size_of::<PairSlot>() << 18]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/cl100k")));
static O200K: Aligned<[u8; size_of::<PairSlot>() << 19]> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/o200k")));

/// One of the two vocabularies with which tokens are counted.
#[derive(Clone, Copy)]
pub(crate) enum Vocabulary {
    Cl100k,
    O200k,
}

impl Vocabulary {
    pub(crate) fn merges(self) -> Merges<'static> {
        let (slots, _) = match self {
            Self::Cl100k => CL100K.0.as_chunks(),
            Self::O200k => O200K.0.as_chunks(),
        };
        Merges(slots)
    }
}
