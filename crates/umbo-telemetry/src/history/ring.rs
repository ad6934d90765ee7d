//! Values of one series at one resolution, for a bounded number of steps.
//!
//! Values are kept in chunks of [`CHUNK`] steps. A chunk of equal values takes the place of one, so that a
//! series that stands still, or is absent, costs next to nothing. A step without a value is NaN.

use std::collections::VecDeque;

/// Steps of a chunk: a minute of seconds, ten minutes of ten seconds.
pub(crate) const CHUNK: u64 = 60;
/// Stands for no value.
const NONE: f32 = f32::NAN;

#[derive(Debug, Clone)]
enum RingBlock {
    Same(f32),
    Each(Box<[f32]>),
}

impl RingBlock {
    fn of(values: &[f32]) -> Self {
        let first = values.first().copied().unwrap_or(NONE);
        let is_same = values
            .iter()
            .all(|value| value.to_bits() == first.to_bits());
        if is_same {
            Self::Same(first)
        } else {
            Self::Each(values.into())
        }
    }

    fn get(&self, at: usize) -> f32 {
        match self {
            Self::Same(value) => *value,
            Self::Each(values) => values.get(at).copied().unwrap_or(NONE),
        }
    }
}

/// The ring. Steps are numbered from the Unix epoch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ring {
    /// Number of the first chunk that is kept.
    first: u64,
    closed: VecDeque<RingBlock>,
    /// Values of the chunk after the closed ones, from its beginning.
    open: Vec<f32>,
}

impl Ring {
    /// Returns the step after the newest value, or `None` without values.
    pub(crate) fn end(&self) -> Option<u64> {
        let is_empty = self.closed.is_empty() && self.open.is_empty();
        let end = self.open_begin() + self.open.len() as u64;
        (!is_empty).then_some(end)
    }

    /// Sets the value of a step that is later than all others, and forgets those more than `kept` steps older.
    /// An earlier step is left as it is.
    pub(crate) fn push(&mut self, step: u64, value: f32, kept: u64) {
        match self.end() {
            Some(end) if step < end => return,
            Some(end) if step - end < kept => {}
            Some(_) | None => self.begin_at(step),
        }
        while self.open_begin() + CHUNK <= step {
            self.open.resize(CHUNK as usize, NONE);
            self.close();
        }
        let at = (step - self.open_begin()) as usize;
        self.open.resize(at, NONE);
        // One bit pattern for all steps without a value.
        self.open.push(if value.is_nan() { NONE } else { value });
        if self.open.len() as u64 == CHUNK {
            self.close();
        }
        let oldest = (step + 1).saturating_sub(kept) / CHUNK;
        while self.first < oldest && self.closed.pop_front().is_some() {
            self.first += 1;
        }
    }

    /// Returns the value of a step.
    pub(crate) fn get(&self, step: u64) -> Option<f32> {
        let chunk = (step / CHUNK).checked_sub(self.first)? as usize;
        let at = (step % CHUNK) as usize;
        let value = match self.closed.get(chunk) {
            Some(chunk) => chunk.get(at),
            None if chunk == self.closed.len() => self.open.get(at).copied()?,
            None => return None,
        };
        (!value.is_nan()).then_some(value)
    }

    /// Forgets the values from a step on.
    pub(crate) fn truncate(&mut self, step: u64) {
        if step / CHUNK < self.first {
            *self = Self::default();
            return;
        }
        while self.open_begin() > step {
            let Some(chunk) = self.closed.pop_back() else {
                return;
            };
            self.open = (0..CHUNK as usize).map(|at| chunk.get(at)).collect();
        }
        let keep = (step - self.open_begin()) as usize;
        self.open.truncate(keep);
    }

    /// Returns the bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let chunks = self.closed.iter().map(|chunk| match chunk {
            RingBlock::Same(_) => 0,
            RingBlock::Each(values) => size_of_val(&**values),
        });
        chunks.sum::<usize>()
            + self.closed.capacity() * size_of::<RingBlock>()
            + self.open.capacity() * size_of::<f32>()
    }

    fn open_begin(&self) -> u64 {
        (self.first + self.closed.len() as u64) * CHUNK
    }

    fn begin_at(&mut self, step: u64) {
        *self = Self {
            first: step / CHUNK,
            ..Self::default()
        };
    }

    fn close(&mut self) {
        self.closed.push_back(RingBlock::of(&self.open));
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const KEPT: u64 = 200;

    proptest! {
        #[test]
        fn a_ring_is_a_map_of_its_last_steps(
            calls in prop::collection::vec((0_u64..90, 0_u8..3, prop::bool::weighted(0.05)), 0..300),
        ) {
            let mut ring = Ring::default();
            let mut twin = BTreeMap::<u64, f32>::new();
            let (mut step, mut newest) = (1_000, 0);
            for (forward, value, is_back) in calls {
                if is_back {
                    step -= forward.min(step);
                    ring.truncate(step);
                    twin.retain(|&at, _| at < step);
                    continue;
                }
                // Most steps follow one another.
                step += if forward < 60 { 1 } else { (forward - 59) * 9 };
                let value = if value == 2 { f32::NAN } else { f32::from(value) };
                if ring.end().is_none_or(|end| step >= end) {
                    ring.push(step, value, KEPT);
                    twin.insert(step, value);
                }
                newest = newest.max(step);
                for at in newest + 1 - KEPT..step + 3 {
                    let expected = twin.get(&at).copied().filter(|value| !value.is_nan());
                    prop_assert_eq!(ring.get(at), expected, "step {}", at);
                }
                prop_assert!(ring.closed.len() as u64 <= KEPT / CHUNK + 2);
            }
        }
    }

    #[test]
    fn a_series_that_stands_still_takes_next_to_nothing() {
        let (mut still, mut moving) = (Ring::default(), Ring::default());
        for step in 0_u16..8_640 {
            still.push(step.into(), 7.0, 8_640);
            moving.push(step.into(), step.into(), 8_640);
        }
        assert!(still.heap_bytes() < 5_000, "{}", still.heap_bytes());
        assert!((34_560..41_000).contains(&moving.heap_bytes()));
    }
}
