//! How durable a commit is.

/// Which failure a committed change survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Survives a power cut: each commit is flushed to the disk.
    Power,
    /// Survives the death of this process, but not a power cut.
    Process,
}
