//! Overload: the right work is shed early, and the rest stays fast.
//!
//! Owns the two answers of a dispatcher to a store that cannot keep up. The **pressure** of a shard says how overloaded
//! it is for a class of work. It multiplies the price of the designated class, in the quota system. The **queue** of a
//! shard limits the requests in flight, and the limit adapts. Behind the limit, requests wait with a controlled delay,
//! and the queue sheds the rest.
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
//! // The store answers within 2 ms for twenty seconds, and then within 12 ms for five.
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
//! // No caller is above its share: the lowest tier pays more, and critical requests do not.
//! let times = |tier| overload.multiplier(shard, tier, caller).as_f64();
//! assert!(times(Criticality::Sheddable) > 1.5);
//! assert_eq!(times(Criticality::Critical), 1.0);
//! ```
//!
//! # The queue
//!
//! One [`AdmissionQueue`] for each shard; its type parameter wakes a waiting request. A request enters with its tier, a
//! hash of its caller, its estimate and its deadline. It gives its permit back with the service time, and the limit
//! learns from that. One task calls [`AdmissionQueue::tick`] every few milliseconds.
//!
//! ```
//! use std::time::{Duration, Instant};
//! use umbo_overload::{Admission, AdmissionQueue, Entered, Entry, LimitSettings};
//! use umbo_overload::{QueueSettings, ServiceOutcome, Wakeups};
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
//! // The admissions in `wakeups` are to be delivered; a permit among them is to be given back.
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
