//! Source of a read's result: the local cache, the read of another request, or the store.

/// The source of a read's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    /// From the local cache.
    Hit {
        /// Remaining time of the result in the cache, in whole seconds.
        ttl: u64,
        /// Whole seconds since the store was asked.
        age: u64,
    },
    /// From the read of another request, which was in flight.
    Collapsed,
    /// From the store.
    Miss,
    /// From the store, because the client asked for it (`Cache-Control: no-cache`).
    Bypass,
}

impl CacheStatus {
    /// Returns the name for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit { .. } => "hit",
            Self::Collapsed => "collapsed",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
        }
    }

    /// Returns whether the store was asked by this request.
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Miss | Self::Bypass)
    }

    /// Returns whether the local cache has answered.
    pub const fn is_hit(self) -> bool {
        matches!(self, Self::Hit { .. })
    }
}
