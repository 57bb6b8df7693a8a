//! The embedding of a text: 64 numbers that are similar for texts about similar things.

use super::{pieces::DIM, total};

/// The sum of the embeddings of a text's pieces, normalised to length 1.
///
/// It is all zero if no word has a piece; such a text is similar to nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Embedding([f32; DIM]);

impl Embedding {
    /// Sums integers, so that the result does not depend on the order.
    pub(super) fn of(pieces: &[u32], rows: &[u8]) -> Self {
        let (rows, _) = rows.as_chunks::<DIM>();
        let rows = pieces.iter().map(|piece| &rows[*piece as usize]);
        let sum = total(rows, u8::cast_signed);
        let square: i64 = sum.iter().map(|n| i64::from(*n) * i64::from(*n)).sum();
        let length = (square.max(1) as f64).sqrt();
        Self(sum.map(|n| (f64::from(n) / length) as f32))
    }

    pub(crate) fn numbers(&self) -> &[f32; DIM] {
        &self.0
    }

    /// Cosine similarity: 1 for equal embeddings, about 0 for unrelated texts, negative for texts that differ more than
    /// most.
    pub(crate) fn similarity(&self, other: &Self) -> f32 {
        let each = self.0.iter().zip(&other.0);
        let products = each.map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum::<f64>() as f32
    }
}
