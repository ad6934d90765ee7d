//! What a request costs, and who may spend how much.
//!
//! Owns the cost model, token buckets, policies and reservations. Deliberately reads no clock, spawns
//! nothing, waits for nothing and logs nothing: the instant and the random number of every decision
//! are parameters, so that all of it runs under a simulated clock.
//!
//! Start with [`Limiter`]: a request is priced and admitted by it, its [`Reservation`] is settled with
//! the [`Work`] that was done.

mod account;
mod admission;
mod bounded_map;
mod breakdown;
mod bucket;
mod cell;
mod continuation;
mod cost;
mod dimension;
mod history;
mod identity;
mod known_name;
mod latency;
mod limiter;
pub mod limits;
mod owed;
mod pattern;
mod policy;
mod pricing;
mod promise;
mod refusals;
mod replay;
mod report;
mod reporting;
mod reservation;
mod residual;
mod schedule;
mod subject;
mod unit;

pub use continuation::Continuation;
pub use cost::{Known, Weights, Work};
pub use dimension::{Dimension, Dimensions};
pub use known_name::{UnknownName, nearest};
pub use limiter::{Limiter, LimiterSettings, Request};
pub use pattern::{Pattern, PatternError};
pub use policy::{
    DEFAULT_CALLER, Limit, MatchDraft, Matcher, Mode, Operations, Override, OverrideDraft, Policy,
    PolicyDraft, PolicyError, PolicyProblem, PolicyScope, PolicySet, PolicySetError, Source,
    Specificity,
};
pub use replay::{Replay, ReplayRow};
pub use report::{
    Advertised, Breakdown, BucketReport, Explanation, Meeting, OTHERS, PolicyReport,
    RESIDUAL_CLASSES, Rejection, Residual, ShardUsage, Tally, UsageReport, UsageRow,
};
pub use reservation::{Reservation, ShardShare};
pub use subject::Subject;
pub use unit::{AmountError, Unit, format_amount, parse_amount};
