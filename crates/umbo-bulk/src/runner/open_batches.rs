//! Batches on their way into the shards: of each shard one request at a time, in the order of the rows.
//!
//! Pure: starts no request and knows no time. While a shard commits a request, rows of later batches gather for its
//! next one, so commits are large and no shard waits for another. The invariants: of two rows of a shard the earlier
//! one is never in a later request, even after a refusal; and batches end in order, each once all its rows are done.

use std::collections::{BTreeMap, VecDeque};

use umbo_store::{Change, Mutation};
use umbo_types::ShardId;

use super::host::RowCounts;
use crate::limits::{BATCHES_MAX, OPEN_BYTES_MAX, REQUEST_BYTES_MAX, REQUEST_ROWS_MAX};

/// The progress of a run by a batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// By this number of rows of a part, including rows that are not applied.
    Rows(u64),
    /// To the end of a part.
    PartEnd(u16),
    /// To these bytes of the sorted runs.
    Runs(Vec<u64>),
}

impl Default for Advance {
    fn default() -> Self {
        Self::Rows(0)
    }
}

/// A batch as it is applied.
#[derive(Debug, Default)]
pub(super) struct Divided {
    pub(super) advance: Advance,
    /// Rows to apply.
    pub(super) by_shard: BTreeMap<ShardId, Vec<Mutation>>,
    /// Rows that have expired already.
    pub(super) skipped: u64,
    pub(super) rejected: RejectedRows,
}

/// Rows of a batch that are rejected.
#[derive(Debug, Default)]
pub(super) struct RejectedRows {
    /// Rows whose keys an operator has blocked.
    pub(super) blocked: u64,
    /// Rows that cannot be read, or whose quotas are too low.
    pub(super) unreadable: u64,
    /// Rows of the report about them, up to [`REJECTS_MAX`](crate::limits::REJECTS_MAX).
    pub(super) rows: Vec<Mutation>,
}

/// A batch whose rows are all done.
#[derive(Debug, Default)]
pub(super) struct EndedBatch {
    pub(super) advance: Advance,
    pub(super) skipped: u64,
    pub(super) rejected: RejectedRows,
    pub(super) counts: BTreeMap<ShardId, RowCounts>,
}

#[derive(Debug)]
struct OpenBatch {
    /// Rows that are not done.
    left: usize,
    /// Bytes of all rows.
    bytes: u64,
    ended: EndedBatch,
}

/// Rows of one batch for one shard.
#[derive(Debug)]
pub(super) struct ShardPiece {
    batch: u64,
    pub(super) mutations: Vec<Mutation>,
}

/// A piece with the judged answers to its rows.
#[derive(Debug, Default)]
pub(super) struct JudgedPiece {
    batch: u64,
    pub(super) counts: RowCounts,
    /// Rows that are to be written again.
    pub(super) left: Vec<Mutation>,
}

impl JudgedPiece {
    pub(super) fn of(piece: &ShardPiece) -> Self {
        Self {
            batch: piece.batch,
            ..Self::default()
        }
    }

    /// Returns a piece that has all its rows left.
    pub(super) fn left(piece: ShardPiece) -> Self {
        Self {
            batch: piece.batch,
            left: piece.mutations,
            ..Self::default()
        }
    }

    /// Returns whether any of its rows is done.
    pub(super) fn has_done_rows(&self) -> bool {
        self.counts.applied + self.counts.skipped > 0
    }
}

/// The rows of a shard.
#[derive(Debug, Default)]
struct ShardRows {
    waiting: VecDeque<ShardPiece>,
    /// Whether a request is under way.
    is_busy: bool,
}

/// The batches that are being applied.
#[derive(Debug, Default)]
pub(super) struct OpenBatches {
    by_shard: BTreeMap<ShardId, ShardRows>,
    open: VecDeque<OpenBatch>,
    /// Number of the first open batch.
    first: u64,
}

impl OpenBatches {
    /// Returns whether another batch may be pushed.
    pub(super) fn has_room(&self) -> bool {
        let bytes: u64 = self.open.iter().map(|batch| batch.bytes).sum();
        self.open.len() < BATCHES_MAX && bytes < OPEN_BYTES_MAX
    }

    /// Returns whether every batch has ended.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Adds a batch after all others.
    pub(super) fn push(&mut self, divided: Divided) {
        let batch = self.first + self.open.len() as u64;
        let (mut left, mut bytes) = (0, 0);
        for (shard, mutations) in divided.by_shard {
            left += mutations.len();
            bytes += mutations.iter().map(len_of).sum::<u64>();
            let of_shard = self.by_shard.entry(shard).or_default();
            of_shard.waiting.push_back(ShardPiece { batch, mutations });
        }
        let ended = EndedBatch {
            advance: divided.advance,
            skipped: divided.skipped,
            rejected: divided.rejected,
            counts: BTreeMap::new(),
        };
        self.open.push_back(OpenBatch { left, bytes, ended });
    }

    /// Takes the next request of a shard that has none under way.
    pub(super) fn take(&mut self) -> Option<(ShardId, Vec<ShardPiece>)> {
        let mut shards = self.by_shard.iter_mut();
        let is_ready = |rows: &ShardRows| !rows.is_busy && !rows.waiting.is_empty();
        let (shard, of_shard) = shards.find(|(_, rows)| is_ready(rows))?;
        let (mut pieces, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while let Some(next) = of_shard.waiting.front() {
            rows += next.mutations.len();
            bytes += next.mutations.iter().map(len_of).sum::<u64>();
            if !pieces.is_empty() && (rows > REQUEST_ROWS_MAX || bytes > REQUEST_BYTES_MAX) {
                break;
            }
            pieces.extend(of_shard.waiting.pop_front());
        }
        of_shard.is_busy = true;
        Some((*shard, pieces))
    }

    /// Records the answers to the request of a shard. Rows that are left come before all others.
    pub(super) fn answered(&mut self, shard: ShardId, pieces: Vec<JudgedPiece>) {
        let of_shard = self.by_shard.entry(shard).or_default();
        of_shard.is_busy = false;
        for piece in pieces.into_iter().rev() {
            let at = usize::try_from(piece.batch - self.first).unwrap_or(usize::MAX);
            if let Some(batch) = self.open.get_mut(at) {
                let done = piece.counts.applied + piece.counts.skipped;
                batch.left -= usize::try_from(done).unwrap_or(usize::MAX);
                *batch.ended.counts.entry(shard).or_default() += piece.counts;
            }
            if !piece.left.is_empty() {
                of_shard.waiting.push_front(ShardPiece {
                    batch: piece.batch,
                    mutations: piece.left,
                });
            }
        }
    }

    /// Takes the first batch if it has ended.
    pub(super) fn pop_ended(&mut self) -> Option<EndedBatch> {
        self.open.front().filter(|batch| batch.left == 0)?;
        self.first += 1;
        self.open.pop_front().map(|batch| batch.ended)
    }
}

/// Returns the bytes of keys and value.
pub(super) fn len_of(mutation: &Mutation) -> u64 {
    let keys = mutation.key.partition.as_bytes().len() + mutation.key.sort.as_bytes().len();
    (keys + value_len(&mutation.change)) as u64
}

/// Returns the bytes of the value that a change stores.
pub(super) fn value_len(change: &Change) -> usize {
    match change {
        Change::Put { value, .. } => value.bytes.len(),
        Change::Delete | Change::Increment { .. } | Change::Upload(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use umbo_store::Condition;
    use umbo_types::Key;

    use super::*;

    fn row(number: u32) -> Mutation {
        Mutation {
            key: Key::new(format!("{number}"), "").unwrap(),
            change: Change::Delete,
            condition: Condition::Always,
        }
    }

    fn number(row: &Mutation) -> u32 {
        std::str::from_utf8(row.key.partition.as_bytes())
            .unwrap()
            .parse()
            .unwrap()
    }

    fn batch(rows: &[(u16, u32)]) -> Divided {
        let mut divided = Divided {
            advance: Advance::Rows(rows.len() as u64),
            ..Divided::default()
        };
        for &(shard, number) in rows {
            let of_shard = divided.by_shard.entry(ShardId(shard)).or_default();
            of_shard.push(row(number));
        }
        divided
    }

    fn len(ended: &EndedBatch) -> u64 {
        match ended.advance {
            Advance::Rows(rows) => rows,
            Advance::PartEnd(_) | Advance::Runs(_) => panic!("it has rows of a part"),
        }
    }

    fn numbers(pieces: &[ShardPiece]) -> Vec<u32> {
        let rows = pieces.iter().flat_map(|piece| &piece.mutations);
        rows.map(number).collect()
    }

    /// Answers a request whose rows from a number on are refused.
    fn answer(open: &mut OpenBatches, shard: ShardId, pieces: Vec<ShardPiece>, refused_from: u32) {
        let judged = pieces.into_iter().map(|piece| {
            let mut judged = JudgedPiece::of(&piece);
            for row in piece.mutations {
                if number(&row) >= refused_from {
                    judged.left.push(row);
                } else {
                    judged.counts.applied += 1;
                }
            }
            judged
        });
        let judged = judged.collect();
        open.answered(shard, judged);
    }

    #[test]
    fn a_shard_has_one_request_and_gathers_the_next() {
        let mut open = OpenBatches::default();
        open.push(batch(&[(0, 1), (1, 2)]));
        let (first, pieces) = open.take().unwrap();
        assert_eq!((first, numbers(&pieces)), (ShardId(0), vec![1]));
        open.push(batch(&[(0, 3)]));
        open.push(batch(&[(0, 4), (1, 5)]));
        let (second, other) = open.take().unwrap();
        assert_eq!((second, numbers(&other)), (ShardId(1), vec![2, 5]));
        assert!(open.take().is_none());
        answer(&mut open, first, pieces, 9);
        let (again, pieces) = open.take().unwrap();
        assert_eq!((again, numbers(&pieces)), (ShardId(0), vec![3, 4]));
    }

    #[test]
    fn large_values_leave_no_room_for_further_batches() {
        let mut open = OpenBatches::default();
        for number in 0..2 {
            assert!(open.has_room());
            let mut long = batch(&[(0, number)]);
            let bytes = vec![0; OPEN_BYTES_MAX as usize / 2];
            long.by_shard.values_mut().flatten().for_each(|row| {
                let value = umbo_types::Value::unbounded(bytes.clone(), "", "").unwrap();
                row.change = Change::Put {
                    value,
                    expires_at: None,
                };
            });
            open.push(long);
        }
        assert!(!open.has_room());
        let (shard, pieces) = open.take().unwrap();
        assert_eq!(pieces.len(), 1, "each in a request of its own");
        answer(&mut open, shard, pieces, 9);
        assert!(open.pop_ended().is_some() && open.has_room());
    }

    #[test]
    fn refused_rows_come_before_later_ones_and_hold_their_batch() {
        let mut open = OpenBatches::default();
        open.push(batch(&[(0, 1), (0, 5)]));
        open.push(batch(&[(0, 2), (1, 6)]));
        let (shard, pieces) = open.take().unwrap();
        let (other, of_other) = open.take().unwrap();
        open.push(batch(&[(0, 3)]));
        answer(&mut open, shard, pieces, 5);
        answer(&mut open, other, of_other, 9);
        assert!(open.pop_ended().is_none(), "row 5 of the first is left");
        let (shard, pieces) = open.take().unwrap();
        assert_eq!(numbers(&pieces), [5, 3]);
        answer(&mut open, shard, pieces, 9);
        let ended: Vec<u64> = std::iter::from_fn(|| open.pop_ended())
            .map(|batch| len(&batch))
            .collect();
        assert_eq!(ended, [2, 2, 1]);
        assert!(open.is_empty());
    }

    #[test]
    fn a_request_is_bounded_but_takes_any_one_piece() {
        let mut open = OpenBatches::default();
        let rows = |from: usize, count: usize| -> Vec<(u16, u32)> {
            (from..from + count).map(|row| (0, row as u32)).collect()
        };
        open.push(batch(&rows(0, REQUEST_ROWS_MAX - 1)));
        open.push(batch(&rows(10_000, 1)));
        open.push(batch(&rows(20_000, 1)));
        let (shard, pieces) = open.take().unwrap();
        assert_eq!(numbers(&pieces).len(), REQUEST_ROWS_MAX);
        answer(&mut open, shard, pieces, u32::MAX);
        assert_eq!(numbers(&open.take().unwrap().1), [20_000]);
    }

    /// However shards answer: rows of a shard take effect in order, and every batch ends, in order.
    #[test]
    fn rows_take_effect_in_order() {
        for seed in 0..300 {
            take_effect_in_order(&mut fastrand::Rng::with_seed(seed));
        }
    }

    fn take_effect_in_order(random: &mut fastrand::Rng) {
        let total = random.u32(1..60);
        let (mut open, mut next, mut refusals) = (OpenBatches::default(), 0, 40_i32);
        let mut under_way: Vec<(ShardId, Vec<ShardPiece>)> = Vec::new();
        let mut applied: BTreeMap<ShardId, Vec<u32>> = BTreeMap::new();
        let (mut ended_rows, mut counted) = (0, 0);
        while next < total || !open.is_empty() {
            while open.has_room() && next < total {
                let end = total.min(next + random.u32(1..6));
                let rows: Vec<_> = (next..end).map(|row| (random.u16(0..3), row)).collect();
                open.push(batch(&rows));
                next = end;
            }
            while let Some(request) = open.take() {
                assert!(under_way.iter().all(|other| other.0 != request.0));
                under_way.push(request);
            }
            if !under_way.is_empty() {
                let (shard, pieces) = under_way.swap_remove(random.usize(..under_way.len()));
                refusals -= 1;
                let refused_from = if refusals > 0 {
                    random.u32(..80)
                } else {
                    u32::MAX
                };
                let rows = numbers(&pieces).into_iter();
                let done = rows.filter(|row| *row < refused_from);
                applied.entry(shard).or_default().extend(done);
                answer(&mut open, shard, pieces, refused_from);
            }
            while let Some(ended) = open.pop_ended() {
                ended_rows += len(&ended);
                let counts = ended.counts.values();
                counted += counts.map(|counts| counts.applied).sum::<u64>();
                assert_eq!(ended_rows, counted);
            }
        }
        assert_eq!(ended_rows, u64::from(total));
        for rows in applied.values() {
            assert!(rows.is_sorted(), "{rows:?}");
        }
    }
}
