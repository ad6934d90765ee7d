//! What a read of the store brings back, and what the one who asked is told of it.

use std::time::Instant;

/// What many readers can share: anything that is cheap to clone and may cross threads.
pub trait Payload: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Payload for T {}

/// Whether there was anything under the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polarity {
    /// There was.
    Present,
    /// There was nothing: a negative result, which is kept for a shorter time.
    Absent,
}

/// The answer of the store to one read.
///
/// The value is cloned for each reader: it should be cheap to clone, a shared buffer or an `Arc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fill<V> {
    /// The answer.
    pub value: V,
    /// Memory that the answer holds, in bytes.
    pub bytes: usize,
    /// Whether there was anything.
    pub polarity: Polarity,
    /// Instant from which the answer is not true any more, because the row expires; none for one
    /// that stays.
    pub expires_at: Option<Instant>,
}

/// How a reader came by its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The local cache.
    Cache,
    /// The read of another one, moments ago, of a key that may become hot.
    Afterglow,
    /// The read of another one that was under way.
    Follower,
    /// Its own read.
    Leader,
}

/// An answer as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served<V> {
    /// The answer.
    pub value: V,
    /// Whether there was anything.
    pub polarity: Polarity,
    /// How the reader came by it.
    pub source: Source,
    /// When the store was asked; the age of the answer counts from here.
    pub read_at: Instant,
    /// Instant from which the answer is not served any more; none where it is not kept.
    pub fresh_until: Option<Instant>,
}

impl<V> Served<V> {
    pub(crate) fn of(fill: Fill<V>, source: Source, read_at: Instant) -> Self {
        Self {
            value: fill.value,
            polarity: fill.polarity,
            source,
            read_at,
            fresh_until: None,
        }
    }
}

/// Says why a reader got no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShareError<E> {
    /// The store failed; so did the second leader where there was one.
    #[error("{0}")]
    Failed(E),
    /// The task that read has panicked or was ended from outside.
    #[error("the read was abandoned")]
    Lost,
    /// As many readers wait for this key as may, or as many bytes. Nothing was read.
    #[error("too many readers wait for this key")]
    Crowded,
}
