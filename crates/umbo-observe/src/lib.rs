//! What operators look back at: the recent past of a process, in memory of a fixed bound.
//!
//! Owns which callers have series ([`TopCallers`]), ranked once a second; the **events**
//! ([`EventLog`]); the **findings** of the diagnosis that stand ([`Findings`]); and the **records** of requests ([`request_records`]) that were refused, slow or sampled.
//! Deliberately knows no HTTP, no store and no task, and reads no clock: time comes with each call, so that a test can
//! replay a month. The history of series is in `umbo-telemetry`, with the metrics that it is made of.

mod callers;
mod events;
mod findings;
pub mod request_records;

pub use self::callers::{CallerCounts, TOP_CALLERS, TopCallers};
pub use self::events::{EventCursor, EventLog};
pub use self::findings::{FindingRule, Findings, Found};
