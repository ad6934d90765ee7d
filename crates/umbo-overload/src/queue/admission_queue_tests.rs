//! The queue as a story: what a request finds, and what it leaves to those behind it.

use umbo_types::{Criticality, Deadline, Operation, RequestUnits};

use super::*;
use crate::queue::admission::{Admission, Shed, ShedReason};
use crate::queue::limit::LimitSettings;

const MILLI: Duration = Duration::from_millis(1);
const LOW: Criticality = Criticality::Sheddable;
const USUAL: Criticality = Criticality::SheddablePlus;
const HIGH: Criticality = Criticality::Critical;
const TOP: Criticality = Criticality::CriticalPlus;

pub(super) fn fixed(permits: u32) -> QueueSettings {
    QueueSettings {
        limit: LimitSettings {
            min: permits,
            max: permits,
            initial: permits,
        },
        ..QueueSettings::default()
    }
}

/// A queue with a clock of its own, and names instead of wakers.
pub(super) struct Scene {
    pub(super) queue: AdmissionQueue<u32>,
    begun: Instant,
    at_ms: u64,
    pub(super) wakeups: Wakeups<u32>,
}

impl Scene {
    pub(super) fn new(settings: QueueSettings) -> Self {
        Self {
            queue: AdmissionQueue::new(settings),
            begun: Instant::now(),
            at_ms: 0,
            wakeups: Wakeups::new(),
        }
    }

    pub(super) fn now(&self) -> Instant {
        self.begun + Duration::from_millis(self.at_ms)
    }

    fn entry(&self, criticality: Criticality, caller: u64) -> Entry {
        Entry {
            criticality,
            caller,
            price: RequestUnits::from_micros(1_000_000),
            deadline: Deadline::after(self.now(), Duration::from_secs(1)),
            is_above_share: false,
        }
    }

    pub(super) fn enter(&mut self, name: u32, criticality: Criticality) -> Entered {
        let entry = self.entry(criticality, u64::from(name));
        self.queue
            .enter(&entry, self.now(), || name, &mut self.wakeups)
    }

    /// Enters, and has to wait.
    fn queue(&mut self, name: u32, criticality: Criticality) -> QueueTicket {
        match self.enter(name, criticality) {
            Entered::Queued(ticket) => ticket,
            other => panic!("{name} does not wait: {other:?}"),
        }
    }

    fn permit(&mut self, name: u32, criticality: Criticality) -> Permit {
        match self.enter(name, criticality) {
            Entered::Permit(permit) => permit,
            other => panic!("{name} has no permit: {other:?}"),
        }
    }

    pub(super) fn leave(&mut self, permit: Permit) {
        let outcome = ServiceOutcome::Served {
            operation: Operation::Get,
            service_time: MILLI,
        };
        self.queue
            .leave(permit, outcome, self.now(), &mut self.wakeups);
    }

    /// Lets time pass with a tick every few milliseconds.
    pub(super) fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.at_ms += 1;
            self.queue
                .tick(self.now(), Duration::ZERO, &mut self.wakeups);
        }
    }

    /// Returns who has got a permit since the last call; the permits are given back to nobody.
    fn served(&mut self) -> Vec<u32> {
        self.wakeups
            .drain(..)
            .filter_map(|(name, admission)| {
                matches!(admission, Admission::Permit(_)).then_some(name)
            })
            .collect()
    }

    fn shed(&mut self) -> Vec<(u32, ShedReason)> {
        let shed = |(name, admission)| match admission {
            Admission::Shed(Shed { reason, .. }) => Some((name, reason)),
            _ => None,
        };
        self.wakeups.drain(..).filter_map(shed).collect()
    }

    pub(super) fn status(&self) -> QueueStatus {
        self.queue.status(self.now())
    }
}

#[test]
fn there_are_as_many_slots_as_the_limit_says_and_the_next_one_waits() {
    let mut scene = Scene::new(fixed(2));
    let first = scene.permit(1, USUAL);
    let _second = scene.permit(2, USUAL);
    scene.queue(3, USUAL);
    assert_eq!((scene.status().in_flight, scene.status().waiting()), (2, 1));
    scene.leave(first);
    assert_eq!(scene.served(), [3]);
    assert_eq!((scene.status().in_flight, scene.status().waiting()), (2, 0));
}

#[test]
fn the_highest_tier_is_next_and_within_it_the_oldest_of_a_caller() {
    let mut scene = Scene::new(fixed(1));
    let mut permit = scene.permit(0, USUAL);
    for (name, criticality) in [(1, LOW), (2, USUAL), (3, TOP), (4, HIGH), (5, TOP)] {
        let mut entry = scene.entry(criticality, 7);
        entry.price = RequestUnits::from_micros(1);
        let now = scene.now();
        let entered = scene.queue.enter(&entry, now, || name, &mut scene.wakeups);
        assert!(matches!(entered, Entered::Queued(_)));
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        scene.leave(permit);
        let (name, admission) = scene.wakeups.pop().unwrap();
        order.push(name);
        let Admission::Permit(next) = admission else {
            panic!("{admission:?}")
        };
        permit = next;
    }
    assert_eq!(order, [3, 5, 4, 2, 1]);
}

#[test]
fn a_short_queue_is_no_overload_however_often_it_forms() {
    let mut scene = Scene::new(fixed(1));
    for round in 0..100 {
        let permit = scene.permit(0, USUAL);
        scene.queue(round, USUAL);
        scene.pass(4);
        scene.leave(permit);
        let (_, admission) = scene.wakeups.pop().unwrap();
        let Admission::Permit(permit) = admission else {
            panic!("{admission:?}")
        };
        scene.leave(permit);
    }
    assert_eq!(scene.status().tiers[USUAL as usize].counts.shed, [0; 5]);
}

#[test]
fn a_standing_queue_is_shed_after_an_interval_and_then_after_twice_the_target() {
    let mut scene = Scene::new(fixed(1));
    let _slot = scene.permit(0, LOW);
    // Its deadline is a second away: a tenth of that is its target.
    scene.queue(1, LOW);
    scene.pass(200);
    assert!(scene.status().tiers[LOW as usize].overloaded_for.is_none());
    scene.queue(2, LOW);
    scene.pass(2);
    assert_eq!(scene.shed(), [(1, ShedReason::Overload)]);
    // What came since waits no longer than twice the target.
    scene.pass(198);
    assert_eq!(scene.shed(), []);
    scene.pass(1);
    assert_eq!(scene.shed(), [(2, ShedReason::Overload)]);
    // Nobody has waited for that long: it is over.
    scene.pass(200);
    scene.queue(3, LOW);
    scene.pass(200);
    assert_eq!(scene.shed(), []);
    scene.pass(2);
    assert_eq!(scene.shed(), [(3, ShedReason::Overload)]);
}

#[test]
fn the_higher_a_tier_the_more_patience_it_has() {
    for (criticality, patience_ms) in [(LOW, 100), (USUAL, 300), (HIGH, 500), (TOP, 500)] {
        let mut scene = Scene::new(fixed(1));
        let _slot = scene.permit(0, USUAL);
        scene.queue(1, criticality);
        scene.pass(patience_ms + 100);
        assert_eq!(scene.shed(), [], "{criticality}");
        scene.pass(2);
        assert_eq!(scene.shed(), [(1, ShedReason::Overload)], "{criticality}");
    }
}

#[test]
fn an_overloaded_tier_serves_the_newest_first_and_keeps_few_waiting() {
    let mut scene = Scene::new(fixed(1));
    let permit = scene.permit(0, LOW);
    for milli in 0..200 {
        let (entry, now) = (scene.entry(LOW, 1), scene.now());
        let entered = scene.queue.enter(&entry, now, || milli, &mut scene.wakeups);
        assert!(matches!(entered, Entered::Queued(_)), "{milli}");
        scene.pass(1);
    }
    scene.pass(20);
    let overloaded = scene.status().tiers[LOW as usize].overloaded_for;
    assert!(overloaded.is_some_and(|lasted| lasted > 15 * MILLI));
    let mut shed = scene.shed();
    scene.leave(permit);
    assert_eq!(scene.served(), [199]);
    // The others go in the order in which they came, after twice the target.
    scene.pass(175);
    shed.extend(scene.shed());
    assert!(shed.len() >= 185 && shed.iter().map(|one| one.0).is_sorted());
    assert!(scene.status().waiting() <= 11);
    // A crowd of one caller finds sixteen places at most; what it is told is at least an interval.
    let mut told = None;
    for _ in 0..40 {
        let entry = scene.entry(LOW, 7);
        let now = scene.now();
        let entered = scene.queue.enter(&entry, now, || 1_000, &mut scene.wakeups);
        if let Entered::Shed(shed) = entered {
            told = Some(shed);
        }
    }
    assert_eq!(scene.status().waiting(), 16);
    let told = told.unwrap();
    assert_eq!((told.reason, told.criticality), (ShedReason::Overload, LOW));
    assert!(told.wait >= 100 * MILLI);
}

#[test]
fn as_many_as_there_are_slots_are_left_of_a_tier_while_one_below_waits() {
    let mut scene = Scene::new(QueueSettings {
        floor_percent: 0,
        ..fixed(2)
    });
    let permits = [scene.permit(0, USUAL), scene.permit(0, USUAL)];
    for at in 1..=5 {
        scene.queue(at, USUAL);
    }
    // One below that is too young to be shed.
    for at in 0..45 {
        _ = scene.enter(100 + at, LOW);
        scene.pass(10);
    }
    let of_usual = |shed: Vec<(u32, ShedReason)>| {
        let shed = shed.into_iter().map(|(waiter, _)| waiter);
        shed.filter(|&waiter| waiter < 100).collect::<Vec<_>>()
    };
    assert_eq!(of_usual(scene.shed()), [1, 2, 3]);
    // What comes free is theirs.
    for permit in permits {
        scene.leave(permit);
    }
    let served = scene.served();
    assert!(served == [5, 4], "{served:?}");
}

#[test]
fn lag_counts_as_if_all_had_waited_longer() {
    let mut scene = Scene::new(fixed(1));
    let _slot = scene.permit(0, LOW);
    scene.queue(1, LOW);
    for _ in 0..182 {
        scene.at_ms += 1;
        let (now, lag) = (scene.now(), 20 * MILLI);
        scene.queue.tick(now, lag, &mut scene.wakeups);
    }
    assert_eq!(scene.shed(), [(1, ShedReason::Overload)]);
    assert_eq!(scene.status().lag, 20 * MILLI);
}

#[test]
fn when_full_a_higher_tier_takes_the_place_of_the_newest_of_the_lowest() {
    let mut scene = Scene::new(QueueSettings {
        waiting_max: 3,
        ..fixed(1)
    });
    let _slot = scene.permit(0, USUAL);
    scene.queue(1, LOW);
    scene.queue(2, USUAL);
    scene.queue(3, LOW);
    assert!(matches!(
        scene.enter(4, LOW),
        Entered::Shed(Shed {
            reason: ShedReason::Length,
            ..
        })
    ));
    scene.queue(5, HIGH);
    assert_eq!(scene.shed(), [(3, ShedReason::Displaced)]);
    scene.queue(6, TOP);
    assert_eq!(scene.shed(), [(1, ShedReason::Displaced)]);
    // Never the reverse.
    assert!(matches!(scene.enter(7, LOW), Entered::Shed(_)));
    assert!(matches!(scene.enter(8, USUAL), Entered::Shed(_)));
    scene.queue(9, HIGH);
    assert_eq!(scene.shed(), [(2, ShedReason::Displaced)]);
    assert!(matches!(scene.enter(10, HIGH), Entered::Shed(_)));
}

#[test]
fn who_would_be_shed_is_turned_away_beforehand_and_nobody_else() {
    let mut settings = fixed(1);
    settings.waiting_max = 2;
    let mut scene = Scene::new(settings);
    let turned_away = |scene: &Scene, caller, criticality| {
        let entry = scene.entry(criticality, caller);
        scene.queue.turn_away(&entry, scene.now())
    };
    assert_eq!(turned_away(&scene, 9, LOW), None);
    let permit = scene.permit(0, USUAL);
    assert_eq!(turned_away(&scene, 9, LOW), None, "it would wait");
    scene.queue(1, USUAL);
    scene.queue(2, USUAL);
    // A lower tier, and another caller of the same; each counts as shed.
    for criticality in [LOW, USUAL] {
        let shed = turned_away(&scene, 9, criticality).unwrap();
        assert_eq!(
            (shed.reason, shed.criticality),
            (ShedReason::Length, criticality)
        );
        let counts = scene.status().tiers[criticality as usize].counts;
        assert_eq!(counts.shed[ShedReason::Length as usize], 1);
        assert!(matches!(scene.enter(9, criticality), Entered::Shed(_)));
    }
    // A higher one takes the place of somebody, and one that is late is nobody's to shed.
    assert_eq!(turned_away(&scene, 9, HIGH), None);
    let mut late = scene.entry(LOW, 9);
    late.deadline = Deadline::at(scene.now());
    assert_eq!(scene.queue.turn_away(&late, scene.now()), None);
    scene.leave(permit);
    assert_eq!(scene.served().len(), 1);
}

#[test]
fn when_full_of_one_tier_whoever_has_least_waiting_gets_in() {
    let mut scene = Scene::new(QueueSettings {
        waiting_max: 20,
        ..fixed(1)
    });
    let _slot = scene.permit(0, USUAL);
    let enter = |scene: &mut Scene, name: u32, caller: u64| {
        let (entry, now) = (scene.entry(USUAL, caller), scene.now());
        scene.queue.enter(&entry, now, || name, &mut scene.wakeups)
    };
    for name in 0..20 {
        assert!(matches!(enter(&mut scene, name, 1), Entered::Queued(_)));
    }
    assert!(matches!(enter(&mut scene, 20, 1), Entered::Shed(_)));
    assert!(matches!(enter(&mut scene, 21, 2), Entered::Queued(_)));
    assert_eq!(scene.shed(), [(19, ShedReason::Length)]);
    assert_eq!(scene.status().waiting(), 20);
}

#[test]
fn work_is_bounded_and_what_is_too_large_waits_alone() {
    let mut scene = Scene::new(QueueSettings {
        work_max: RequestUnits::from_micros(10_000_000),
        ..fixed(1)
    });
    let permit = scene.permit(0, USUAL);
    let priced = |scene: &mut Scene, name: u32, units: u64| {
        let mut entry = scene.entry(USUAL, 1);
        entry.price = RequestUnits::from_micros(units * 1_000_000);
        let now = scene.now();
        scene.queue.enter(&entry, now, || name, &mut scene.wakeups)
    };
    assert!(matches!(priced(&mut scene, 1, 6), Entered::Queued(_)));
    assert!(matches!(
        priced(&mut scene, 2, 5),
        Entered::Shed(Shed {
            reason: ShedReason::Work,
            ..
        })
    ));
    assert!(matches!(priced(&mut scene, 3, 4), Entered::Queued(_)));
    assert_eq!(scene.status().work, RequestUnits::from_micros(10_000_000));
    scene.leave(permit);
    let (_, Admission::Permit(permit)) = scene.wakeups.pop().unwrap() else {
        panic!("no permit")
    };
    scene.leave(permit);
    scene.wakeups.clear();
    assert_eq!(scene.status().waiting(), 0);
    assert!(matches!(priced(&mut scene, 4, 1_000), Entered::Queued(_)));
    assert!(matches!(priced(&mut scene, 5, 1), Entered::Shed(_)));
}

#[test]
fn who_has_expired_gets_no_slot() {
    let mut scene = Scene::new(fixed(1));
    let mut entry = scene.entry(TOP, 1);
    entry.deadline = Deadline::at(scene.now());
    let now = scene.now();
    let entered = scene.queue.enter(&entry, now, || 1, &mut scene.wakeups);
    assert_eq!(entered, Entered::Expired);

    let permit = scene.permit(0, USUAL);
    entry.deadline = Deadline::at(now + 3 * MILLI);
    let entered = scene.queue.enter(&entry, now, || 1, &mut scene.wakeups);
    assert!(matches!(entered, Entered::Queued(_)));
    scene.queue(2, LOW);
    scene.at_ms += 3;
    scene.leave(permit);
    assert_eq!(scene.wakeups[0], (1, Admission::Expired));
    assert!(matches!(scene.wakeups[1], (2, Admission::Permit(_))));
    assert_eq!(scene.status().tiers[TOP as usize].counts.expired, 1);
}

#[test]
fn who_cancels_is_forgotten_and_its_place_is_not_confused_with_the_next() {
    let mut scene = Scene::new(fixed(1));
    let permit = scene.permit(0, USUAL);
    let ticket = scene.queue(1, USUAL);
    let now = scene.now();
    assert_eq!(scene.queue.cancel(ticket, now), Some(1));
    let other = scene.queue(2, USUAL);
    assert_eq!(scene.queue.cancel(ticket, now), None);
    scene.leave(permit);
    assert_eq!(scene.served(), [2]);
    assert_eq!(scene.queue.cancel(other, now), None);
}

/// Ten times the capacity in each tier for two seconds, one permit of a millisecond.
#[test]
fn a_starved_tier_keeps_its_floor_and_a_higher_one_is_not_shed_for_a_lower() {
    let mut scene = Scene::new(fixed(1));
    let mut permit = Some(scene.permit(0, USUAL));
    let (mut served, mut by_floor, mut shed) = ([0; 4], [0; 4], [0; 4]);
    for milli in 0..2_000 {
        // The two higher ones alone leave 40 of 100 to the others.
        for (criticality, each) in [(LOW, 1), (USUAL, 1), (HIGH, 2), (TOP, 4)] {
            if milli % each == 0 {
                let name = criticality as u32;
                if let Entered::Shed(told) = scene.enter(name, criticality) {
                    shed[told.criticality as usize] += 1;
                }
            }
        }
        scene.pass(1);
        if let Some(permit) = permit.take() {
            scene.leave(permit);
        }
        for (name, admission) in std::mem::take(&mut scene.wakeups) {
            match admission {
                Admission::Permit(issued) => {
                    served[name as usize] += 1;
                    by_floor[name as usize] += u32::from(issued.is_by_floor());
                    permit = Some(issued);
                }
                Admission::Shed(_) => shed[name as usize] += 1,
                Admission::Expired => panic!("expired"),
            }
        }
    }
    assert_eq!(
        shed[TOP as usize] + shed[HIGH as usize],
        0,
        "{served:?} {shed:?}"
    );
    assert!((180..=220).contains(&served[LOW as usize]), "{served:?}");
    assert_eq!(served[LOW as usize], by_floor[LOW as usize]);
    assert!(shed[LOW as usize] > 1_400 && shed[USUAL as usize] > 1_400);
}

#[test]
fn gates_share_nothing() {
    let mut stalled = Scene::new(fixed(1));
    let mut other = Scene::new(fixed(1));
    let _kept = stalled.permit(0, USUAL);
    for name in 0..100 {
        stalled.queue(name, TOP);
    }
    let permit = other.permit(0, LOW);
    other.leave(permit);
    assert_eq!(other.status().in_flight, 0);
}
