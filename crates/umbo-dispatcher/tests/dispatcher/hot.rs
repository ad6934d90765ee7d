//! Hot keys through the admin API, in this process: pods on one store in memory, under a clock that
//! stands still.

mod grants;
mod lists;
mod report;
mod support;
