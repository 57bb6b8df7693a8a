//! Conversion and formatting of numbers.

use serde::Serializer;

#[expect(clippy::cast_precision_loss, reason = "labels are few")]
pub(crate) fn count(labels: usize) -> f64 {
    labels as f64
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
pub(crate) fn four_places<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((number * 10_000.0).round() / 10_000.0)
}
