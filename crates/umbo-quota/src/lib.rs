//! What a request costs, and who may spend how much.
//!
//! Owns the cost model, token buckets, policies and reservations. Deliberately reads no clock, spawns
//! nothing, waits for nothing and logs nothing: the instant and the random number of every decision
//! are parameters, so that all of it runs under a simulated clock.
//!
//! Start with [`Limiter`]: it prices and admits a request. The [`Reservation`] of the request is then settled with its
//! [`ActualUsage`].

mod admission;
mod breakdown;
mod bucket;
mod caller_state;
mod cost;
mod crowd;
mod dimension;
mod fleet;
mod fleet_counters;
mod fleet_share;
mod history;
mod identity;
mod known_name;
mod limiter;
pub mod limits;
mod operation_usage;
mod pattern;
mod penalty;
mod policy;
mod price_memory;
mod pricing;
mod refusals;
mod replay;
mod report;
mod reporting;
mod request;
mod reservation;
mod reserved_refill;
mod residual;
mod retry_ticket;
mod schedule;
mod striped_lru;
mod subject;
mod unit;
mod usage_groups;
mod usage_replay;
mod usage_steps;
mod used_tickets;

pub use cost::{ActualUsage, CostHint, Weights};
pub use dimension::{Dimension, Dimensions};
pub use fleet::{
    FLEET_TICK, FleetMessage, FleetMessageError, FleetQuota, FleetQuotaReport, OWNERS_MAX,
    OwnerRow, RowWish,
};
pub use history::HISTORY_SECONDS;
pub use known_name::{UnknownName, nearest};
pub use limiter::{Limiter, LimiterSettings};
pub use pattern::{Pattern, PatternError};
pub use policy::{
    DEFAULT_CALLER, Limit, Matcher, Mode, Operations, Override, Policy, PolicyError, PolicyProblem,
    PolicyScope, PolicySet, PolicySetError, Specificity,
};
pub use replay::{Replay, ReplayRange, ReplayRow};
pub use report::{
    Advertised, Breakdown, BucketReport, Explanation, Meeting, MetPolicy, NamespaceShardUsage,
    OTHERS, PolicyReport, PricedRequest, RESIDUAL_CLASSES, Rejection, Residual, Tally, UsageLine,
    UsageReport,
};
pub use request::QuotaRequest;
pub use reservation::{Reservation, ShardShare};
pub use retry_ticket::{BroughtTicket, RetryTicket};
pub use subject::Subject;
pub use unit::{AmountError, Unit, format_amount, parse_amount};
pub use usage_groups::{GROUPS_MAX, GroupBy, GroupKey, Period, UsageGroups};
pub use usage_replay::UsageReplay;
pub use usage_steps::{
    KEPT_SECONDS, STEP_LINES_MAX, STEP_SECONDS, StepUsage, UsageKey, UsageStep, UsageSteps,
};
