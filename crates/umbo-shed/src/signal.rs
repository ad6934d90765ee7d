//! The signal: whether the store keeps up, and which work pays for it where it does not.
//!
//! From service times to refusals, in the order of the files: a **scale** of buckets, two **slices**
//! of counts, the **baseline** of five minutes, **tallies** of the last ticks and what is **usual**
//! of them give the latency **ratio** of a shard and class. The **ladder** of a shard turns it into
//! a penalty for each tier, the **ledger** knows what each caller usually asks for and what it has
//! been let through, and **events** remember it all. [`overload`] puts them together.

pub(crate) mod baseline;
pub(crate) mod class;
pub(crate) mod cohort;
pub(crate) mod events;
pub(crate) mod ladder;
pub(crate) mod ledger;
pub(crate) mod overload;
pub(crate) mod ratio;
pub(crate) mod report;
pub(crate) mod scale;
pub(crate) mod settings;
pub(crate) mod slices;
pub(crate) mod tally;
pub(crate) mod toll;
pub(crate) mod usual;
pub(crate) mod watched;
