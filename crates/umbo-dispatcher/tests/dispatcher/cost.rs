//! Costs, quotas and queues as a client sees them: a pod on a store in memory, under a simulated clock.

mod charges;
mod conservation;
mod explanations;
mod formula;
mod long_reads;
mod payers;
mod rejections;
mod shares;
mod stalls;
mod store;
mod support;
mod waiting;
