//! A real server for the checks of quotas.
//!
//! It is the `umbo` binary beside this program, on a core of its own; clients are processes of their
//! own on the other one. Policies are set by the admin API between turns, so that both sides of a
//! ratio are the same process with the same data.

use super::Plan;
use crate::bench::lab::{Lab, UMBO};
use crate::bench::plan::Plan as Rounds;
use crate::failure::Failure;

/// Opens a lab with few rows, which are in every cache: so a get does the least beside its admission.
pub(super) fn open(plan: &Plan) -> Result<Lab, Failure> {
    let mut lab = Lab::open(None, true)?;
    lab.plan = Rounds {
        rounds: if plan.is_quick { 3 } else { 9 },
        warm_up_ms: 300,
        measure_ms: if plan.is_quick { 1_000 } else { 2_000 },
    };
    Ok(lab)
}

/// Makes or changes a policy.
pub(super) fn put_policy(lab: &mut Lab, name: &str, policy: &str) -> Result<(), Failure> {
    let request = lab.admin_request("PUT", &format!("quotas/{name}"), policy.as_bytes());
    lab.send_once(UMBO, std::iter::once(request)).map(drop)
}
