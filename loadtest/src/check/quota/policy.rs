//! Policies of a real server.
//!
//! They are set by the admin API between turns, so that both sides of a ratio are the same process
//! with the same data.

use crate::bench::lab::{Lab, UMBO};
use crate::failure::Failure;

/// Makes or changes a policy.
pub(super) fn put_policy(lab: &mut Lab, name: &str, policy: &str) -> Result<(), Failure> {
    let request = lab.admin_request("PUT", &format!("quotas/{name}"), policy.as_bytes());
    lab.send_once(UMBO, std::iter::once(request)).map(drop)
}
