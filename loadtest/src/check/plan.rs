//! A check, and how it is to be run.

use crate::failure::Failure;
use crate::verdict::Verdict;

/// How a check is to be run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) is_quick: bool,
}

/// A check.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn(&Plan) -> Result<Vec<Verdict>, Failure>,
}
