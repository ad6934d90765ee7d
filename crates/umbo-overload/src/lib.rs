//! Overload: the right work is shed early, and the rest stays fast.
//!
//! Owns the two answers of a dispatcher to a store that cannot keep up. The **pressure** of a shard says how
//! overloaded it is for a class of work; it multiplies the price of the designated class, in the quota
//! system. The **queue** holds what must wait: a limit of requests in flight that adapts, and behind it a
//! queue with a controlled delay for each shard, which sheds what still comes.
//!
//! Deliberately knows nothing of HTTP, stores, quotas and runtimes, reads no clock and makes no random
//! numbers: time comes with each call, so that all of it runs under a simulated clock.
//!
//! # The pressure
//!
//! One [`OverloadController`] a dispatcher. Requests are priced, recorded and charged from any thread,
//! without a lock; one task calls [`OverloadController::tick`] every [`TICK`].
//!
//! ```
//! use std::time::{Duration, Instant};
//! use umbo_overload::{Class, OverloadController, PressureInput, PressureSettings, TICK, TickInput};
//! use umbo_types::{Criticality, Operation, ShardId};
//!
//! let start = Instant::now();
//! let overload = OverloadController::new(PressureSettings::default(), 1, start);
//! let (shard, caller) = (ShardId(0), 17); // a hash
//! let class = Class::of(Operation::Get).expect("a get touches a row");
//!
//! // Twenty seconds in which the store answers within 2 ms, and five in which it takes 12.
//! for tick in 0..250 {
//!     let now = start + TICK * tick;
//!     let slowness = if tick < 200 { 1 } else { 6 };
//!     for at in 0..100 {
//!         overload.record(shard, class, Duration::from_micros(at * 20) * slowness);
//!     }
//!     for episode in overload.tick(now, |_| TickInput::default()).begun {
//!         assert!(tick > 205 && episode.input == PressureInput::Latency);
//!     }
//! }
//! // No caller is above its share: the lowest tier pays more, and what is critical does not.
//! let times = |tier| overload.multiplier(shard, tier, caller).as_f64();
//! assert!(times(Criticality::Sheddable) > 1.5);
//! assert_eq!(times(Criticality::Critical), 1.0);
//! ```
//!
//! # The queue
//!
//! One [`AdmissionQueue`] for each shard, generic over whatever wakes who waits. A request enters with its tier,
//! a hash of its caller, its estimate and its deadline; a request gives its permit back with the
//! service time, from which the limit learns. One task calls [`AdmissionQueue::tick`] every few milliseconds.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use umbo_overload::{Entered, Entry, AdmissionQueue, QueueSettings, LimitSettings, ServiceOutcome, Admission, Wakeups};
//! use umbo_types::{Criticality, Deadline, Operation, RequestUnits};
//!
//! // A queue with one permit, and names instead of wakers.
//! let limit = LimitSettings { min: 1, max: 1, initial: 1 };
//! let queue: AdmissionQueue<&str> = AdmissionQueue::new(QueueSettings { limit, ..QueueSettings::default() });
//! let now = Instant::now();
//! let entry = |criticality| Entry {
//!     criticality,
//!     caller: 17,
//!     price: RequestUnits::from_micros(1_000_000),
//!     deadline: Deadline::after(now, Duration::from_secs(1)),
//!     is_above_share: false,
//! };
//! let mut wakeups = Wakeups::new();
//!
//! let first = queue.enter(&entry(Criticality::Sheddable), now, || "first", &mut wakeups);
//! let Entered::Permit(permit) = first else { panic!("there was room") };
//! let import = queue.enter(&entry(Criticality::Sheddable), now, || "import", &mut wakeups);
//! let page = queue.enter(&entry(Criticality::Critical), now, || "page", &mut wakeups);
//! assert!(matches!((import, page), (Entered::Queued(_), Entered::Queued(_))));
//!
//! // A millisecond later the first one has its answer, and the page goes before the import.
//! let (service_time, now) = (Duration::from_millis(1), now + Duration::from_millis(1));
//! let outcome = ServiceOutcome::Served { operation: Operation::Get, service_time };
//! queue.leave(permit, outcome, now, &mut wakeups);
//! let (name, admission) = wakeups.pop().expect("a request waited");
//! assert!(name == "page" && matches!(admission, Admission::Permit(_)));
//! // What is in `wakeups` is to be delivered; a permit in it is to be given back.
//! ```

mod class;
mod estimate;
mod flow;
mod pressure;
mod queue;

pub use class::Class;
pub use pressure::controller::{Changes, OverloadController, ShardCall};
pub use pressure::designated::DesignatedClass;
pub use pressure::episode::OverloadEpisode;
pub use pressure::fair_shares::ShareReport;
pub use pressure::pressure_controller::{PressureInput, TickInput};
pub use pressure::report::{ClassReport, OverloadReport, PriceReport, ShardReport};
pub use pressure::settings::{PressureSettings, TICK};
pub use queue::admission::{
    Admission, Entered, Entry, Permit, QueueTicket, ServiceOutcome, Shed, ShedReason, Wakeups,
};
pub use queue::admission_queue::AdmissionQueue;
pub use queue::codel::CodelSettings;
pub use queue::limit::LimitSettings;
pub use queue::settings::QueueSettings;
pub use queue::status::{QueueStatus, TierCounts, TierStatus};
