//! The pressure of each shard: how overloaded it is for a class of work, and the price that follows from it.
//!
//! From service times to a price, in the order of the files. A **log histogram** is the scale of times. **Time slices**
//! count the times of the last moments, and the **latency** of a class compares them with its baseline. The **pressure
//! controller** of a shard takes the greatest of three inputs (latency ratio, delay of the queue, lag of the runtime)
//! and turns it into a **penalty**: price multipliers of the designated class, and parts of a share that callers are
//! held to. The **fair shares** say which callers have more than theirs. **Heavy work** finds the requests that would
//! make others wait long. **Episodes** remember each overload. [`controller`] puts them together.

pub(crate) mod controller;
pub(crate) mod designated;
pub(crate) mod episode;
pub(crate) mod fair_shares;
pub(crate) mod heavy_work;
pub(crate) mod latency;
pub(crate) mod log_histogram;
pub(crate) mod penalty;
pub(crate) mod pressure_controller;
pub(crate) mod report;
pub(crate) mod settings;
pub(crate) mod shard_monitor;
pub(crate) mod time_slices;
