//! Hot keys through the admin API, in this process: pods on one store in memory, under a clock that
//! stands still.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod grants;
mod lists;
mod report;
mod support;
