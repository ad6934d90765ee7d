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

pub use queue::codel::CodelSettings;
pub use queue::gate::{Gate, GateSettings};
pub use queue::limit::LimitSettings;
pub use queue::status::{GateStatus, Tally, TierStatus};
pub use queue::verdict::{Entered, Entry, Grant, Outcome, Shed, Ticket, Verdict, Why, Woken};
