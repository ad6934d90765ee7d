//! Promises of an engine beyond the core of the contract.

/// Promises that not every engine makes. Code that relies on one of them looks here first; the contract suite tests
/// each engine against its own declaration.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each promise is made or not, whatever the others are"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether reads of one row or chunk are answered when they are first polled, because the rows are in this
    /// process.
    pub answers_at_once: bool,
    /// Whether each chunk of a range is one snapshot. If not, each row of the chunk was committed at some instant of
    /// the call, and a reader may see a part of an atomic write.
    pub chunk_is_snapshot: bool,
    /// The writes among which versions grow.
    pub versions: VersionOrder,
    /// Whether [`Store::backup`](crate::Store::backup) copies a shard.
    pub backups: bool,
    /// Whether namespaces may have fast writes: the engine orders the writes of a row by their versions.
    pub fast_writes: bool,
}

/// The set of writes among which versions grow strictly, even if the clock goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionOrder {
    /// The writes of one partition.
    Partition,
    /// The writes of one shard.
    Shard,
}

impl Capabilities {
    /// Promises of an engine with one writer for each shard. Its rows may be in another process.
    pub const ONE_WRITER: Self = Self {
        answers_at_once: false,
        chunk_is_snapshot: true,
        versions: VersionOrder::Shard,
        backups: true,
        fast_writes: false,
    };
}
