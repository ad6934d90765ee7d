//! The result of a read of the store, the result as a reader gets it, and the errors of a flight.

use std::time::Instant;

/// A value that many readers can share: cheap to clone, and it may cross threads.
pub trait Payload: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Payload for T {}

/// The result of one read of the store.
///
/// The value is cloned for each reader, so it is a shared buffer or an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched<V> {
    /// The result.
    pub value: V,
    /// Memory that the value holds, in bytes.
    pub bytes: usize,
    /// Whether anything is stored under the key. If not, the result is cached for a shorter time.
    pub is_found: bool,
    /// Instant at which the result stops being true because the row expires, or `None` if the row
    /// does not expire.
    pub expires_at: Option<Instant>,
}

/// Where a reader's result came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerSource {
    /// The local cache.
    Cache,
    /// The read of another request, which was in flight.
    Follower,
    /// The reader's own read.
    Leader,
}

/// A result as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served<V> {
    /// The result.
    pub value: V,
    /// Whether anything is stored under the key.
    pub is_found: bool,
    /// Source of the result.
    pub source: AnswerSource,
    /// When the read of the store began; the age of the result counts from here.
    pub read_at: Instant,
    /// Instant until which the local cache serves the result, or `None` if it is not cached.
    pub fresh_until: Option<Instant>,
}

impl<V> Served<V> {
    pub(crate) fn new(fetched: Fetched<V>, source: AnswerSource, read_at: Instant) -> Self {
        Self {
            value: fetched.value,
            is_found: fetched.is_found,
            source,
            read_at,
            fresh_until: None,
        }
    }
}

/// Why a flight has no result for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlightError<E> {
    /// The store failed. Only the leader gets its failure.
    #[error("{0}")]
    Failed(E),
    /// The reader's own read panicked.
    #[error("the read of the store panicked")]
    Panicked,
    /// The leader failed, panicked, or was ended with its task. The follower is to read again, with
    /// others or alone.
    #[error("the leader of the read failed")]
    LeaderFailed,
    /// The limit of followers, of in-flight reads or of bytes is reached. Nothing was read.
    #[error("too many requests wait for this key")]
    Full,
}
