//! What a committed change survives.

/// What a committed change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A power cut: each commit is flushed to the disk.
    Power,
    /// The death of this process, but not a power cut.
    Process,
}
