//! Bounds on the space that one commit reclaims in addition to its work.

use umbo_types::Timestamp;

/// Rows that the sweeper reclaims for each mutation of a commit. More than one, so that rows never expire faster than
/// they are reclaimed, and a backlog shrinks.
const SWEPT_ROWS_PER_MUTATION: usize = 2;

/// Upper bounds on the rows that one commit reclaims.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Chores {
    /// Latest expiry of the rows that are swept, or `None` if nothing is swept.
    pub(crate) sweep_until: Option<Timestamp>,
    /// Expired rows to sweep in a commit of few mutations.
    pub(crate) swept_rows_min: usize,
    /// Whether to count the remaining expired rows.
    pub(crate) counts_expired: bool,
    /// Most rows of fenced namespaces to remove.
    pub(crate) purged_rows_max: u32,
}

impl Chores {
    /// Returns the maximum number of expired rows that a commit of this many mutations reclaims.
    pub(crate) fn swept_rows_max(&self, mutations: u64) -> usize {
        let mutations = usize::try_from(mutations).unwrap_or(usize::MAX);
        let in_step = mutations.saturating_mul(SWEPT_ROWS_PER_MUTATION);
        self.swept_rows_min.max(in_step)
    }
}
