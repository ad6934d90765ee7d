//! Slots are neither lost nor made: at random, and by threads that meet.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use proptest::prelude::*;
use umbo_types::{Criticality, Deadline, RequestUnits};

use super::tests::{Scene, fixed};
use super::*;
use crate::queue::admission::Admission;

proptest! {
    /// Whatever happens in whatever order, permits are neither lost nor made, and nobody waits while
    /// there is room.
    #[test]
    fn slots_are_neither_lost_nor_made(permits in 1..5_u32, steps in prop::collection::vec((0..8_u8, 0..4_usize, 0..20_u64), 1..300)) {
        let mut scene = Scene::new(QueueSettings { waiting_max: 12, ..fixed(permits) });
        let mut held: Vec<Permit> = Vec::new();
        let mut waiting: Vec<(u32, QueueTicket)> = Vec::new();
        for (name, (what, tier, number)) in steps.into_iter().enumerate() {
            let name = name as u32;
            match what {
                0..=3 => match scene.enter(name, Criticality::ALL[tier]) {
                    Entered::Permit(permit) => held.push(permit),
                    Entered::Queued(ticket) => waiting.push((name, ticket)),
                    Entered::Shed(_) | Entered::Expired => {}
                },
                4 | 5 if !held.is_empty() => {
                    let permit = held.swap_remove(number as usize % held.len());
                    scene.leave(permit);
                }
                6 if !waiting.is_empty() => {
                    let (name, ticket) = waiting.swap_remove(number as usize % waiting.len());
                    let now = scene.now();
                    prop_assert_eq!(scene.queue.cancel(ticket, now), Some(name));
                }
                _ => scene.pass(number),
            }
            for (name, admission) in std::mem::take(&mut scene.wakeups) {
                let at = waiting.iter().position(|one| one.0 == name);
                waiting.swap_remove(at.expect("only who waits is wakeups, and once"));
                if let Admission::Permit(permit) = admission {
                    held.push(permit);
                }
            }
            let status = scene.status();
            prop_assert_eq!(status.in_flight as usize, held.len());
            prop_assert_eq!(status.waiting(), waiting.len());
            prop_assert!(status.in_flight <= permits);
            prop_assert!(waiting.is_empty() || status.in_flight == permits);
            prop_assert!(waiting.len() <= 12);
        }
    }
}

/// Threads that enter and leave as fast as they can: never more in flight than there are permits, and
/// nobody is left waiting at the end.
#[test]
fn threads_meet_at_the_gate() {
    const SLOTS: usize = 3;
    let queue: AdmissionQueue<mpsc::SyncSender<Admission>> =
        AdmissionQueue::new(fixed(SLOTS as u32));
    let inside = AtomicUsize::new(0);
    let begun = Instant::now();
    let wake = |wakeups: Wakeups<mpsc::SyncSender<Admission>>| {
        for (waiter, admission) in wakeups {
            waiter.send(admission).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (queue, inside, wake) = (&queue, &inside, &wake);
            scope.spawn(move || {
                for round in 0..20_000_u64 {
                    let entry = Entry {
                        criticality: Criticality::ALL[(thread + round) as usize % 4],
                        caller: thread,
                        price: RequestUnits::from_micros(1),
                        deadline: Deadline::after(begun, Duration::from_mins(10)),
                        is_above_share: false,
                    };
                    let (sender, receiver) = mpsc::sync_channel(1);
                    let mut wakeups = Wakeups::new();
                    let entered = queue.enter(&entry, begun, || sender, &mut wakeups);
                    wake(std::mem::take(&mut wakeups));
                    let permit = match entered {
                        Entered::Permit(permit) => permit,
                        Entered::Queued(_) => match receiver.recv().unwrap() {
                            Admission::Permit(permit) => permit,
                            other => panic!("{other:?}"),
                        },
                        other => panic!("{other:?}"),
                    };
                    assert!(inside.fetch_add(1, Ordering::SeqCst) < SLOTS);
                    if round % 64 == 0 {
                        std::thread::yield_now();
                    }
                    inside.fetch_sub(1, Ordering::SeqCst);
                    queue.leave(permit, ServiceOutcome::Unknown, begun, &mut wakeups);
                    wake(wakeups);
                }
            });
        }
    });
    let status = queue.status(begun);
    assert_eq!((status.in_flight, status.waiting()), (0, 0));
    let counts = status.tiers.map(|tier| tier.counts);
    assert!(counts.iter().all(|counts| counts.queued == counts.served));
}
