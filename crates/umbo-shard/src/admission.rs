//! What a node takes on at the same time: requests that wait for the store, and their memory.
//!
//! The second line of defence behind the queues of the dispatchers. Each tier may use a share of
//! the room, the highest all of it, so that a flood of lower ones never keeps out what matters.
//! Whoever gets no place is answered at once. The guards give back on drop, so that no exit forgets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::sync::Semaphore;
use umbo_types::Criticality;

use crate::limits::NodeLimits;

/// Bytes of one permit for a long message.
const PERMIT_LEN: usize = 1 << 10;

/// The room of a node.
#[derive(Debug)]
pub(crate) struct Admission {
    in_flight: Counted,
    memory: Counted,
    /// For messages that are longer than the window, while they arrive and wait.
    long_messages: Arc<Semaphore>,
}

#[derive(Debug)]
struct Counted {
    used: AtomicUsize,
    max: usize,
}

impl Admission {
    pub(crate) fn new(limits: &NodeLimits) -> Self {
        let half = limits.request_memory_max / 2;
        Self {
            in_flight: Counted::new(limits.in_flight_max),
            memory: Counted::new(half),
            long_messages: Arc::new(Semaphore::new(half / PERMIT_LEN)),
        }
    }

    /// Takes a place for one request; none where its tier has used up its share.
    pub(crate) fn admit(self: &Arc<Self>, tier: Criticality) -> Option<Place> {
        self.in_flight.take(1, tier).then(|| Place {
            admission: Arc::clone(self),
        })
    }

    /// Takes room for the bytes of a frame; none where its tier has used up its share.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize, tier: Criticality) -> Option<Held> {
        self.memory.take(bytes, tier).then(|| Held {
            admission: Arc::clone(self),
            bytes,
        })
    }

    /// Returns where a message of `len` bytes waits for room to arrive in, and how many permits it
    /// needs.
    pub(crate) fn long_message(&self, len: usize) -> (Arc<Semaphore>, u32) {
        let permits = len.div_ceil(PERMIT_LEN) as u32;
        (Arc::clone(&self.long_messages), permits)
    }

    /// Returns the requests that wait for the store.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.used.load(Relaxed)
    }

    /// Returns the bytes that they hold.
    pub(crate) fn memory(&self) -> usize {
        self.memory.used.load(Relaxed)
    }
}

impl Counted {
    const fn new(max: usize) -> Self {
        Self {
            used: AtomicUsize::new(0),
            max,
        }
    }

    fn take(&self, wanted: usize, tier: Criticality) -> bool {
        let max = share(self.max, tier);
        let taken = self.used.fetch_update(Relaxed, Relaxed, |used| {
            used.checked_add(wanted).filter(|&sum| sum <= max)
        });
        taken.is_ok()
    }

    fn give_back(&self, taken: usize) {
        self.used.fetch_sub(taken, Relaxed);
    }
}

/// What a tier may use together with the tiers below it.
const fn share(max: usize, tier: Criticality) -> usize {
    match tier {
        Criticality::Sheddable => max / 2,
        Criticality::SheddablePlus => max / 4 * 3,
        Criticality::Critical => max / 8 * 7,
        Criticality::CriticalPlus => max,
    }
}

/// A request that waits for the store.
#[derive(Debug)]
pub(crate) struct Place {
    admission: Arc<Admission>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.admission.in_flight.give_back(1);
    }
}

/// Bytes of a frame of which something waits for the store.
#[derive(Debug)]
pub(crate) struct Held {
    admission: Arc<Admission>,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.admission.memory.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(in_flight_max: usize) -> Arc<Admission> {
        Arc::new(Admission::new(&NodeLimits {
            in_flight_max,
            ..NodeLimits::default()
        }))
    }

    #[test]
    fn each_tier_leaves_room_for_those_above_it() {
        let admission = admission(16);
        let mut places = Vec::new();
        for (tier, most) in Criticality::ALL.into_iter().zip([8, 12, 14, 16]) {
            while let Some(place) = admission.admit(tier) {
                places.push(place);
            }
            assert_eq!(places.len(), most, "{tier}");
        }
    }

    #[test]
    fn what_is_dropped_makes_room() {
        let admission = admission(4);
        let tier = Criticality::Sheddable;
        let places: Vec<_> = (0..2).filter_map(|_| admission.admit(tier)).collect();
        assert!(places.len() == 2 && admission.admit(tier).is_none());
        drop(places);
        assert_eq!(admission.in_flight(), 0);
        assert!(admission.admit(tier).is_some());
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        let admission = admission(4);
        let half = NodeLimits::default().request_memory_max / 2;
        let all = admission.hold(half, Criticality::CriticalPlus);
        assert!(all.is_some() && admission.hold(1, Criticality::CriticalPlus).is_none());
        drop(all);
        assert!(
            admission
                .hold(usize::MAX, Criticality::CriticalPlus)
                .is_none()
        );
        assert_eq!(admission.memory(), 0);
    }
}
