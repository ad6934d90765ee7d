//! What operators look back at: the recent past of a process, in memory of a fixed bound.
//!
//! Owns the **history** of series at three resolutions ([`History`]), and which callers have series of their
//! own ([`TopCallers`]), whose input are samples that a background task takes once a second; the **events**
//! ([`EventLog`]); and the **records** of requests ([`request_records`]), whose input is what a request leaves
//! behind when it was refused, slow or sampled. Deliberately knows no HTTP, no store
//! and no task, and reads no clock: time comes with each call, so that a test can replay a month.

mod callers;
mod events;
mod history;
mod history_files;
pub mod request_records;
mod series;

pub use self::callers::{CallerCounts, TOP_CALLERS, TopCallers};
pub use self::events::{EventCursor, EventLog};
pub use self::history::{History, HistoryView, LEVELS, Level, Range, SERIES_MAX, SeriesValues};
pub use self::history_files::{Blocks, HistoryFiles, Restored};
pub use self::series::names;
pub use self::series::{Fold, Series, SeriesKey, by_name};
