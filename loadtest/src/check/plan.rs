//! A check, and how it is to be run.

use clap::Args;

use crate::failure::Failure;
use crate::verdict::Verdict;

/// How a check is to be run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) is_quick: bool,
    pub(super) flood: FloodPlan,
}

/// How the floods of `check defaults` are to be.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct FloodPlan {
    /// Length of a flood of `check defaults`, in seconds
    #[arg(long)]
    pub(super) seconds: Option<u64>,
    /// Runs of each flood, of which the median counts
    #[arg(long)]
    pub(super) runs: Option<usize>,
    /// Callers that share the ten connections of a flood
    #[arg(long)]
    pub(super) callers: Option<usize>,
    /// A flood asks again at once, whatever it is told
    #[arg(long = "rude")]
    pub(super) is_rude: bool,
}

/// A check.
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) run: fn(&Plan) -> Result<Vec<Verdict>, Failure>,
}
