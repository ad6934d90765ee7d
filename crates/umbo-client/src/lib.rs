//! The Rust client of Umbo.
//!
//! Owns typed calls over HTTP, repetition if it is safe, and streams that follow cursors and know
//! whether they reached their end. Deliberately uses no server crate. Between calls it keeps its
//! pool of connections, counts of recent rejections, shed requests and repetitions, and for paced
//! work the balances of quotas.
//!
//! The invariant: a call that returns `Ok` was answered in full. A stream cut short, an answer
//! that cannot be read and a row that is missing are errors, never a shorter result.
//!
//! Start with [`Client`] and [`Options`].

mod admin;
mod answer;
mod backups;
mod batch;
mod block;
mod bucket_state;
mod budget;
mod call;
mod client;
mod cluster;
mod concern;
mod dead_letters;
mod error;
mod fleet;
mod flow;
mod hot;
mod kv;
mod large;
mod loads;
mod observe;
mod pacer;
mod page;
mod payer;
mod quota;
mod quota_state;
mod random;
mod range;
mod request;
mod retry;
mod running;
mod scan;
mod send;
mod shed;
mod throttle;
mod tls;
mod value_source;
mod versions;
mod why;
mod window;

pub use batch::{BatchOptions, BatchResult};
pub use budget::RetryBudget;
pub use client::{Client, Options};
pub use dead_letters::{DeadLetter, DeadLetterReason, DeadLetters, failed_entry};
pub use error::Error;
pub use flow::HeldBack;
pub use hot::HotKeyRef;
pub use kv::{Condition, IncrementOptions, Incremented, PutOptions, StoredValue, Written};
pub use large::ValueStream;
pub use loads::{LoadPart, PartOffset, Rejects};
pub use pacer::{
    LocalLimit, Pace, Pacer, Rejected, RequestResult, SendDecision, Sent, ServerFeedback, WorkHint,
};
pub use page::{PageReader, RowPage};
pub use payer::Payer;
pub use quota::UsageQuery;
pub use quota_state::{QuotaState, QuotaUnit};
pub use range::{DeleteSelection, RangeOptions};
pub use retry::{Failures, Repeat, RetryPolicy};
pub use scan::ScanOptions;
pub use throttle::AdaptiveThrottle;
pub use value_source::ValueSource;
