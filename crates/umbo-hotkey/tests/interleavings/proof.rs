//! Leaders, followers and writers in every order: the files of `coalesce`, compiled against
//! simulated locks and atomics.
//!
//! Nothing here is copied: the modules are the crate's own source. `world` is a pod in small with a
//! store of three keys, `program` what its tasks do, and this file runs programs under the
//! schedulers of shuttle, which picks who goes on at every lock and every atomic. A run that
//! violates a promise panics with the schedule that leads there.
//!
//! Promises: nobody waits for ever (shuttle reports a deadlock), nobody is told a value of another
//! key, nobody reads what is older than a write acknowledged before the read began, a leader asks
//! the store once, its failure is told to its own client and to its followers only, and nothing stays behind.

#[path = "proof/cases.rs"]
mod cases;
#[path = "../../src/coalesce/fetched.rs"]
mod fetched;
#[path = "../../src/coalesce/generation.rs"]
mod generation;
#[path = "../../src/coalesce/in_flight.rs"]
mod in_flight;
#[path = "../../src/coalesce/local_cache.rs"]
mod local_cache;
#[path = "proof/preemption.rs"]
mod preemption;
#[path = "proof/program.rs"]
mod program;
#[path = "../../src/coalesce/shared_reads.rs"]
mod shared_reads;
#[path = "../../src/coalesce/single_flight.rs"]
mod single_flight;
#[path = "proof/sync.rs"]
mod sync;
#[path = "proof/world.rs"]
mod world;

/// The crate's keys: they are plain data.
mod key {
    pub(crate) use umbo_hotkey::{KeyHasher, KeyKind, KeyRef, KeySeed, ReadKey};
}

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, FailurePersistence, Runner};

pub(crate) use self::cases::cases;
use self::preemption::PreemptionScheduler;
pub(crate) use self::program::Program;
pub(crate) use self::world::Tally;

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::Print;
    config
}

/// Runs `runs` random programs, each in one random interleaving.
pub(crate) fn random(seed: u64, runs: usize) -> Tally {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let sum = Arc::clone(&tally);
    let scheduler = RandomScheduler::new_from_seed(seed, runs);
    Runner::new(scheduler, config()).run(move || program::run(&Program::random(), &sum));
    total(&tally)
}

/// Runs `runs` random programs, each with up to `depth` changes of priority at the worst moments
/// (Burckhardt et al. 2010).
pub(crate) fn adversarial(seed: u64, runs: usize, depth: usize) -> Tally {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let sum = Arc::clone(&tally);
    let scheduler = PctScheduler::new_from_seed(seed, depth, runs);
    Runner::new(scheduler, config()).run(move || program::run(&Program::random(), &sum));
    total(&tally)
}

/// Runs one program in all its interleavings with at most `preemptions` preemptions, and says
/// whether `runs_max` runs were enough for that.
pub(crate) fn exhaustive(program: Program, preemptions: usize, runs_max: usize) -> (Tally, bool) {
    let tally = Arc::new(Mutex::new(Tally::default()));
    let sum = Arc::clone(&tally);
    let scheduler = PreemptionScheduler::new(preemptions, runs_max);
    let is_complete = Arc::clone(&scheduler.is_complete);
    Runner::new(scheduler, config()).run(move || program::run(&program, &sum));
    (total(&tally), is_complete.load(Relaxed))
}

fn total(tally: &Mutex<Tally>) -> Tally {
    *tally
        .lock()
        .expect("a run that failed has panicked already")
}
