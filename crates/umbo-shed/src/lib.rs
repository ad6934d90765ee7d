//! Overload: the right work is shed early, and the rest stays fast.
//!
//! Owns the two answers of a dispatcher to a store that cannot keep up. The **signal** says whether
//! it can: quantiles of service times, the latency ratio of a shard and operation class, and the
//! penalty on the price of work that can wait. The **queue** holds what must wait: a limit of
//! requests in flight that adapts, and behind it a queue with a controlled delay for each shard.
//!
//! Deliberately knows nothing of HTTP, stores and runtimes, reads no clock and makes no random
//! numbers: both come with each call, so that all of it runs under a simulated clock.
//!
//! # The signal
//!
//! One [`Overload`] a pod. Requests are admitted, recorded and charged from any thread, without a
//! lock; one task calls [`Overload::tick`] every [`TICK`].
//!
//! ```
//! use std::time::{Duration, Instant};
//! use umbo_shed::{Class, Overload, SignalSettings, TICK, Work};
//! use umbo_types::{Criticality, Operation, RequestUnits, ShardId};
//!
//! let start = Instant::now();
//! let overload = Overload::new(SignalSettings::default(), 1, start);
//! let import = Work {
//!     shard: ShardId(0),
//!     tier: Criticality::Sheddable,
//!     caller: 17, // a hash
//!     cost: RequestUnits::from_micros(1_000_000),
//! };
//! let class = Class::of(Operation::Get).expect("a get touches a row");
//!
//! // Twenty seconds in which the store answers within 2 ms, and two in which it takes 12.
//! let mut shed = 0;
//! for tick in 0..220 {
//!     let now = start + TICK * tick;
//!     let slowness = if tick < 200 { 1 } else { 6 };
//!     for at in 0..100 {
//!         match overload.admit(&import, now, 0) {
//!             Ok(()) => {
//!                 // Wait for a slot, ask the store, settle; then tell how long it took and what
//!                 // it cost.
//!                 let service_time = Duration::from_micros(at * 20) * slowness;
//!                 overload.record(import.shard, class, service_time);
//!                 overload.charged(&import);
//!             }
//!             Err(why) => {
//!                 assert!(why.penalty >= 1.0 && why.wait >= TICK);
//!                 shed += 1;
//!             }
//!         }
//!     }
//!     for engagement in overload.tick(now).begun {
//!         assert!(tick > 203 && engagement.class == Class::PointRead);
//!     }
//! }
//! let engagements = overload.engagements();
//! assert_eq!((engagements.len(), engagements[0].shed_total()), (1, shed));
//! assert!(shed > 0);
//! ```
//!
//! # The queue
//!
//! One [`Gate`] for each shard, generic over whatever wakes who waits. A request enters with its tier,
//! a hash of its caller, its estimate and its deadline; whoever has a slot gives it back with the
//! service time, from which the limit learns. One task calls [`Gate::tick`] every few milliseconds.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use umbo_shed::{Entered, Entry, Gate, GateSettings, LimitSettings, Outcome, Verdict, Woken};
//! use umbo_types::{Criticality, Deadline, Operation, RequestUnits};
//!
//! // A gate with one slot, and names instead of wakers.
//! let limit = LimitSettings { min: 1, max: 1, initial: 1 };
//! let gate: Gate<&str> = Gate::new(GateSettings { limit, ..GateSettings::default() });
//! let now = Instant::now();
//! let entry = |criticality| Entry {
//!     criticality,
//!     caller: 17,
//!     price: RequestUnits::from_micros(1_000_000),
//!     deadline: Deadline::after(now, Duration::from_secs(1)),
//! };
//! let mut woken = Woken::new();
//!
//! let first = gate.enter(&entry(Criticality::Sheddable), now, || "first", &mut woken);
//! let Entered::Slot(slot) = first else { panic!("there was room") };
//! let import = gate.enter(&entry(Criticality::Sheddable), now, || "import", &mut woken);
//! let page = gate.enter(&entry(Criticality::Critical), now, || "page", &mut woken);
//! assert!(matches!((import, page), (Entered::Queued(_), Entered::Queued(_))));
//!
//! // A millisecond later the first one has its answer, and the page goes before the import.
//! let (service_time, now) = (Duration::from_millis(1), now + Duration::from_millis(1));
//! let outcome = Outcome::Served { operation: Operation::Get, service_time };
//! gate.leave(slot, outcome, now, &mut woken);
//! let (name, verdict) = woken.pop().expect("somebody waited");
//! assert!(name == "page" && matches!(verdict, Verdict::Slot(_)));
//! // What is in `woken` is to be delivered; a slot in it is to be given back.
//! ```

mod queue;
mod signal;

pub use queue::codel::CodelSettings;
pub use queue::gate::{Gate, GateSettings};
pub use queue::limit::LimitSettings;
pub use queue::status::{GateStatus, Tally, TierStatus};
pub use queue::verdict::{Entered, Entry, Grant, Outcome, Shed, Ticket, Verdict, Why, Woken};
pub use signal::class::Class;
pub use signal::cohort::{COHORTS, cohort};
pub use signal::events::Engagement;
pub use signal::overload::{Changes, Overload};
pub use signal::report::{ClassReport, OverloadReport, ShardReport, ShedByPenalty, TierReport};
pub use signal::settings::{SignalSettings, TICK};
pub use signal::toll::Work;
