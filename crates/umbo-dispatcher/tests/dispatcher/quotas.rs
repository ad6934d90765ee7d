//! Policies through the admin API, in this process: pods on one store in memory, under a clock that
//! stands still.

mod changes;
mod limiter;
mod slow_store;
mod sources;
mod support;
mod usage_month;
