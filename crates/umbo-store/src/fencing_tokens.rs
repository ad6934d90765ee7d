//! Fencing tokens: which run of a load may write to a shard.
//!
//! A paused runner does not know that another one has taken over its load. So each write of a run carries the number of
//! the run as a fencing token. A shard that has begun a write of a later run refuses all writes of earlier runs. The
//! later run repeats, in order, everything that is not in the journal of the load, and so replaces late writes of
//! earlier runs.

use std::collections::BTreeMap;

use umbo_types::NamespaceId;

/// The token of one run of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FencingToken {
    /// The load, by the namespace of the bytes of its parts. That namespace is fenced when the load has ended.
    pub load: NamespaceId,
    /// Number of the run. The next run has a higher number.
    pub number: u32,
}

/// The latest run of each load that has begun a write in the shard. A load is dropped once it has ended, because its
/// fence refuses all of its runs. So the number of entries is bounded by the number of open loads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FencingTokens(BTreeMap<NamespaceId, u32>);

impl FencingTokens {
    /// Returns whether a write of this run may begin.
    pub fn admits(&self, run: FencingToken) -> bool {
        let latest = self.0.get(&run.load);
        latest.is_none_or(|latest| run.number >= *latest)
    }

    /// Records the run of a write that begins, and drops loads that have ended. Returns whether the run is later than
    /// the recorded one.
    pub fn begin(&mut self, run: FencingToken, has_ended: impl Fn(NamespaceId) -> bool) -> bool {
        if self
            .0
            .get(&run.load)
            .is_some_and(|&latest| latest >= run.number)
        {
            return false;
        }
        self.0.retain(|load, _| !has_ended(*load));
        self.0.insert(run.load, run.number);
        true
    }

    /// Returns whether no load has written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the latest run of each load, in the order of the loads.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = FencingToken> {
        let runs = self.0.iter();
        runs.map(|(&load, &number)| FencingToken { load, number })
    }
}

impl FromIterator<FencingToken> for FencingTokens {
    fn from_iter<T: IntoIterator<Item = FencingToken>>(runs: T) -> Self {
        let runs = runs.into_iter();
        Self(runs.map(|run| (run.load, run.number)).collect())
    }
}
