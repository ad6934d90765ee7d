//! Admission of requests to a node: the number of requests that wait for the store, their memory, and the
//! memory of requests that have arrived and are not begun.
//!
//! The second line of defence behind the queues of the dispatchers. Each tier may use a share of the limits,
//! the highest tier all of them, so that a flood of lower tiers cannot block higher ones. A request that is
//! not admitted is answered at once. The guards release on drop, so that no exit path can forget it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use umbo_types::Criticality;

use crate::limits::NodeLimits;

/// The admission limits of a node, and their use.
#[derive(Debug)]
pub(crate) struct NodeAdmission {
    in_flight: BoundedCounter,
    memory: BoundedCounter,
    /// Bytes of partial large requests, and of requests on connections that read no answers.
    arrived: BoundedCounter,
}

#[derive(Debug)]
struct BoundedCounter {
    used: AtomicUsize,
    max: usize,
}

impl NodeAdmission {
    pub(crate) fn new(limits: &NodeLimits) -> Self {
        let half = limits.request_memory_max / 2;
        Self {
            in_flight: BoundedCounter::new(limits.in_flight_max),
            memory: BoundedCounter::new(half),
            arrived: BoundedCounter::new(half),
        }
    }

    /// Admits one request, or returns `None` if its tier has used up its share.
    pub(crate) fn admit(self: &Arc<Self>, tier: Criticality) -> Option<AdmittedRequest> {
        self.in_flight.take(1, tier).then(|| AdmittedRequest {
            admission: Arc::clone(self),
        })
    }

    /// Reserves memory for a frame, or returns `None` if its tier has used up its share.
    pub(crate) fn hold(self: &Arc<Self>, bytes: usize, tier: Criticality) -> Option<FrameMemory> {
        self.memory.take(bytes, tier).then(|| FrameMemory {
            admission: Arc::clone(self),
            bytes,
        })
    }

    /// Makes an empty reservation for bytes that arrive and cannot be begun at once.
    pub(crate) fn arrived(self: &Arc<Self>) -> ArrivalMemory {
        ArrivalMemory {
            admission: Arc::clone(self),
            bytes: 0,
        }
    }

    /// Returns the requests that wait for the store.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.used.load(Relaxed)
    }

    /// Returns the bytes of these requests, and the bytes that have arrived and are not begun.
    pub(crate) fn memory(&self) -> usize {
        self.memory.used.load(Relaxed) + self.arrived.used.load(Relaxed)
    }
}

impl BoundedCounter {
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

/// Returns the share of the limit for a tier and all tiers below it.
const fn share(max: usize, tier: Criticality) -> usize {
    match tier {
        Criticality::Sheddable => max / 2,
        Criticality::SheddablePlus => max / 4 * 3,
        Criticality::Critical => max / 8 * 7,
        Criticality::CriticalPlus => max,
    }
}

/// An admitted request, which waits for the store.
#[derive(Debug)]
pub(crate) struct AdmittedRequest {
    admission: Arc<NodeAdmission>,
}

impl Drop for AdmittedRequest {
    fn drop(&mut self) {
        self.admission.in_flight.give_back(1);
    }
}

/// Memory of a frame with requests that wait for the store.
#[derive(Debug)]
pub(crate) struct FrameMemory {
    admission: Arc<NodeAdmission>,
    bytes: usize,
}

impl Drop for FrameMemory {
    fn drop(&mut self) {
        self.admission.memory.give_back(self.bytes);
    }
}

/// Memory of bytes that have arrived and are not begun.
#[derive(Debug)]
pub(crate) struct ArrivalMemory {
    admission: Arc<NodeAdmission>,
    bytes: usize,
}

impl ArrivalMemory {
    /// Reserves more bytes. Returns false, and reserves nothing, if the node has no room.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let arrived = &self.admission.arrived;
        let is_taken = arrived.take(bytes, Criticality::CriticalPlus);
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Splits off the reservation of at most `bytes` bytes.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self {
            admission: Arc::clone(&self.admission),
            bytes,
        }
    }
}

impl Drop for ArrivalMemory {
    fn drop(&mut self) {
        self.admission.arrived.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(in_flight_max: usize) -> Arc<NodeAdmission> {
        Arc::new(NodeAdmission::new(&NodeLimits {
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
    #[test]
    fn what_arrives_has_a_room_of_its_own() {
        let admission = admission(4);
        let half = NodeLimits::default().request_memory_max / 2;
        let mut arrived = admission.arrived();
        assert!(arrived.grow(half - 1) && !arrived.grow(2) && arrived.grow(1));
        assert_eq!(admission.memory(), half);
        drop(arrived.split(10));
        assert_eq!(admission.memory(), half - 10);
        assert!(admission.hold(half, Criticality::CriticalPlus).is_some());
        drop(arrived);
        assert_eq!(admission.memory(), 0);
    }
}
