//! What a text means: 64 numbers that are near one another for texts about the same thing.

use super::{pieces::DIM, total};

/// The numbers of a text's pieces added up, at length one.
///
/// All are zero where no word has a piece; such a text is near nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Meaning([f32; DIM]);

impl Meaning {
    /// The sum is one of integers, so that its order is of no consequence.
    pub(super) fn of(pieces: &[u32], rows: &[u8]) -> Self {
        let (rows, _) = rows.as_chunks::<DIM>();
        let rows = pieces.iter().map(|piece| &rows[*piece as usize]);
        let sum = total(rows, u8::cast_signed);
        let square: i64 = sum.iter().map(|n| i64::from(*n) * i64::from(*n)).sum();
        let length = (square.max(1) as f64).sqrt();
        Self(sum.map(|n| (f64::from(n) / length) as f32))
    }

    pub fn numbers(&self) -> &[f32; DIM] {
        &self.0
    }

    /// How near another meaning is: 1 for the same, about 0 for nothing in common, less for texts
    /// more different than most (the cosine of the angle between the two).
    pub fn near(&self, other: &Self) -> f32 {
        let each = self.0.iter().zip(&other.0);
        let products = each.map(|(a, b)| f64::from(*a) * f64::from(*b));
        products.sum::<f64>() as f32
    }
}
