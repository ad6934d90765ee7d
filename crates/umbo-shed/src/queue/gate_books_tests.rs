//! Slots are neither lost nor made: at random, and by threads that meet.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use proptest::prelude::*;
use umbo_types::{Criticality, Deadline};

use super::tests::{Scene, fixed};
use super::*;
use crate::queue::verdict::Verdict;

proptest! {
    /// Whatever happens in whatever order, slots are neither lost nor made, and nobody waits while
    /// there is room.
    #[test]
    fn slots_are_neither_lost_nor_made(slots in 1..5_u32, steps in prop::collection::vec((0..8_u8, 0..4_usize, 0..20_u64), 1..300)) {
        let mut scene = Scene::new(GateSettings { waiting_max: 12, ..fixed(slots) });
        let mut held: Vec<Grant> = Vec::new();
        let mut waiting: Vec<(u32, Ticket)> = Vec::new();
        for (name, (what, tier, number)) in steps.into_iter().enumerate() {
            let name = name as u32;
            match what {
                0..=3 => match scene.enter(name, Criticality::ALL[tier]) {
                    Entered::Slot(grant) => held.push(grant),
                    Entered::Queued(ticket) => waiting.push((name, ticket)),
                    Entered::Shed(_) | Entered::Expired => {}
                },
                4 | 5 if !held.is_empty() => {
                    let grant = held.swap_remove(number as usize % held.len());
                    scene.leave(grant);
                }
                6 if !waiting.is_empty() => {
                    let (name, ticket) = waiting.swap_remove(number as usize % waiting.len());
                    let now = scene.now();
                    prop_assert_eq!(scene.gate.cancel(ticket, now), Some(name));
                }
                _ => scene.pass(number),
            }
            for (name, verdict) in std::mem::take(&mut scene.woken) {
                let at = waiting.iter().position(|one| one.0 == name);
                waiting.swap_remove(at.expect("only who waits is woken, and once"));
                if let Verdict::Slot(grant) = verdict {
                    held.push(grant);
                }
            }
            let status = scene.status();
            prop_assert_eq!(status.in_flight as usize, held.len());
            prop_assert_eq!(status.waiting(), waiting.len());
            prop_assert!(status.in_flight <= slots);
            prop_assert!(waiting.is_empty() || status.in_flight == slots);
            prop_assert!(waiting.len() <= 12);
        }
    }
}

/// Threads that enter and leave as fast as they can: never more in flight than there are slots, and
/// nobody is left waiting at the end.
#[test]
fn threads_meet_at_the_gate() {
    const SLOTS: usize = 3;
    let gate: Gate<mpsc::SyncSender<Verdict>> = Gate::new(fixed(SLOTS as u32));
    let inside = AtomicUsize::new(0);
    let begun = Instant::now();
    let wake = |woken: Woken<mpsc::SyncSender<Verdict>>| {
        for (waiter, verdict) in woken {
            waiter.send(verdict).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (gate, inside, wake) = (&gate, &inside, &wake);
            scope.spawn(move || {
                for round in 0..20_000_u64 {
                    let entry = Entry {
                        criticality: Criticality::ALL[(thread + round) as usize % 4],
                        caller: thread,
                        price: RequestUnits::from_micros(1),
                        deadline: Deadline::after(begun, Duration::from_mins(10)),
                    };
                    let (sender, receiver) = mpsc::sync_channel(1);
                    let mut woken = Woken::new();
                    let entered = gate.enter(&entry, begun, || sender, &mut woken);
                    wake(std::mem::take(&mut woken));
                    let grant = match entered {
                        Entered::Slot(grant) => grant,
                        Entered::Queued(_) => match receiver.recv().unwrap() {
                            Verdict::Slot(grant) => grant,
                            other => panic!("{other:?}"),
                        },
                        other => panic!("{other:?}"),
                    };
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < SLOTS);
                    if round % 64 == 0 {
                        std::thread::yield_now();
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    gate.leave(grant, Outcome::Unknown, begun, &mut woken);
                    wake(woken);
                }
            });
        }
    });
    let status = gate.status(begun);
    assert_eq!((status.in_flight, status.waiting()), (0, 0));
    let tally = status.tiers.map(|tier| tier.tally);
    assert!(tally.iter().all(|tally| tally.queued == tally.served));
}
