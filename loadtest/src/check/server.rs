//! A real server for the checks.
//!
//! It is the `umbo` binary beside this program, on a core of its own; clients are processes of their
//! own on the other one.

use super::plan::Plan;
use crate::bench::lab::Lab;
use crate::bench::plan::Plan as Rounds;
use crate::failure::Failure;

/// Opens a lab with few rows, which are in every cache: so a get does the least beside what is checked.
pub(super) fn open(plan: &Plan) -> Result<Lab, Failure> {
    let mut lab = Lab::open(None, true)?;
    lab.plan = Rounds {
        rounds: if plan.is_quick { 3 } else { 9 },
        warm_up_ms: 300,
        measure_ms: if plan.is_quick { 1_000 } else { 2_000 },
    };
    Ok(lab)
}
