//! What happens next: events in the order of their instants, and of their entry where those are equal.
//!
//! The second key makes a run repeatable: a heap alone gives back equal instants in any order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events to come, each with its instant in nanoseconds since the beginning.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    entered: u64,
}

#[derive(Debug)]
struct Entry<E> {
    /// Instant, then number of entry.
    order: (u64, u64),
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

impl<E> Agenda<E> {
    /// Makes an empty agenda.
    pub(crate) const fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            entered: 0,
        }
    }

    /// Enters an event. One in the past comes next.
    pub(crate) fn enter(&mut self, at_ns: u64, event: E) {
        let order = (at_ns, self.entered);
        self.entered += 1;
        self.heap.push(Reverse(Entry { order, event }));
    }

    /// Takes the next event with its instant; none where nothing more will happen.
    pub(crate) fn next(&mut self) -> Option<(u64, E)> {
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.order.0, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_instant_and_then_as_they_were_entered() {
        let mut agenda = Agenda::new();
        for (at_ns, name) in [(5, 'd'), (1, 'a'), (5, 'e'), (1, 'b'), (3, 'c'), (5, 'f')] {
            agenda.enter(at_ns, name);
        }
        let mut order = String::new();
        let mut last_ns = 0;
        while let Some((at_ns, name)) = agenda.next() {
            assert!(at_ns >= last_ns);
            last_ns = at_ns;
            order.push(name);
        }
        assert_eq!(order, "abcdef");
    }
}
