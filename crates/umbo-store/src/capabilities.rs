//! What an engine promises beyond the core of the contract.

/// What an engine promises beyond what every engine does. Code that relies on one of these looks here first; the
/// contract suite holds an engine to what it declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether reads of one row or chunk are answered when they are first polled, because the rows are in this
    /// process.
    pub answers_at_once: bool,
    /// Whether each chunk of a range is one snapshot. Where it is not, each of its rows was committed at some
    /// instant of the call, and an atomic write may be seen in part.
    pub chunk_is_snapshot: bool,
    /// Among which writes versions grow.
    pub versions: VersionOrder,
}

/// Among which writes versions grow strictly, whatever the clock does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionOrder {
    /// Among those of a partition.
    Partition,
    /// Among those of a shard.
    Shard,
}

impl Capabilities {
    /// What an engine with one writer for each shard promises, whose rows may be in another process.
    pub const ONE_WRITER: Self = Self {
        answers_at_once: false,
        chunk_is_snapshot: true,
        versions: VersionOrder::Shard,
    };
}
