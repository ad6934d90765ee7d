//! Shedding for lag: by tier, then by share; never where the deadline allows it; and it ends.

use umbo_types::{Criticality, Deadline, RequestUnits};

use super::*;

const MILLI: Duration = Duration::from_millis(1);

/// Requests of many callers, and a runtime that is late while it is asked for more than it can do.
struct Scene {
    late: LateRuntime,
    control: LateRuntimeControl,
    now: Instant,
    left: u32,
    timeout: Duration,
}

impl Scene {
    fn new(timeout: Duration) -> Self {
        Self {
            late: LateRuntime::default(),
            control: LateRuntimeControl::default(),
            now: Instant::now(),
            left: 0,
            timeout,
        }
    }

    fn entry(&self, tier: usize, caller: u64, is_above_share: bool) -> Entry {
        Entry {
            criticality: Criticality::ALL[tier],
            caller: caller << 32,
            price: RequestUnits::from_micros(1_000_000),
            deadline: Deadline::after(self.now, self.timeout),
            is_above_share,
        }
    }

    fn sheds(&self, entry: &Entry) -> bool {
        self.late.sheds(entry, &CodelSettings::default(), self.now)
    }

    /// Passes so many intervals with a lag; a hundred requests end in each.
    fn pass(&mut self, intervals: u32, lag: Duration) -> PerTier<u64> {
        let mut shed = PerTier::default();
        for _ in 0..intervals * 20 {
            self.now += 5 * MILLI;
            self.left += 5;
            let settings = (&CodelSettings::default(), 0);
            let more = self
                .control
                .tick(&self.late, settings, lag, self.left, self.now);
            for (shed, more) in shed.iter_mut().zip(more) {
                *shed += more;
            }
        }
        shed
    }

    /// Returns how many of 64 callers of a tier are shed.
    fn shed_of(&self, tier: usize, is_above_share: bool) -> u64 {
        let entries = (0..64).map(|caller| self.entry(tier, caller, is_above_share));
        entries.filter(|entry| self.sheds(entry)).count() as u64
    }
}

#[test]
fn the_lowest_tier_goes_first_and_within_it_callers_above_their_share() {
    let mut scene = Scene::new(40 * MILLI);
    assert_eq!(scene.shed_of(0, true), 0);
    scene.pass(2, 10 * MILLI);
    let (above, others) = (scene.shed_of(0, true), scene.shed_of(0, false));
    assert!(above > 0 && others == 0, "{above} {others}");
    scene.pass(10, 10 * MILLI);
    assert_eq!(scene.shed_of(0, false), 64);
    scene.pass(40, 100 * MILLI);
    assert_eq!((scene.shed_of(2, false), scene.shed_of(3, true)), (64, 0));
    assert!(scene.control.lasted(scene.now).is_some());
}

#[test]
fn a_request_that_can_wait_as_long_is_not_shed() {
    let mut scene = Scene::new(Duration::from_secs(10));
    scene.pass(40, 100 * MILLI);
    assert_eq!(scene.shed_of(0, true), 0);
    scene.timeout = 500 * MILLI;
    assert_eq!(scene.shed_of(0, true), 64);
    let shed = scene.pass(1, 100 * MILLI);
    assert_eq!(shed, [64, 0, 0, 0]);
    assert!(scene.control.is_shedding());
}

#[test]
fn without_lag_it_is_over_and_a_moment_of_it_is_none() {
    let mut scene = Scene::new(40 * MILLI);
    scene.pass(40, 100 * MILLI);
    scene.pass(40, Duration::ZERO);
    assert_eq!(scene.shed_of(0, true), 0);
    assert!(scene.control.lasted(scene.now).is_none());
    for _ in 0..100 {
        scene.now += 5 * MILLI;
        let settings = (&CodelSettings::default(), 0);
        scene
            .control
            .tick(&scene.late, settings, 90 * MILLI, scene.left, scene.now);
        scene.pass(1, Duration::ZERO);
    }
    assert_eq!(scene.shed_of(0, true), 0);
}

#[test]
fn where_hardly_anything_is_asked_nothing_is_shed_for_lag() {
    let mut scene = Scene::new(40 * MILLI);
    for _ in 0..1_000 {
        scene.now += 5 * MILLI;
        let settings = (&CodelSettings::default(), 10);
        scene
            .control
            .tick(&scene.late, settings, 90 * MILLI, 0, scene.now);
    }
    assert_eq!(scene.shed_of(0, true), 0);
}
