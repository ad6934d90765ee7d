//! The ladder: operations and sizes that are measured, and what the cost model counts of each.

use umbo_types::Operation;

/// Bytes of the values that are stored, from none to a size that few values have.
pub(super) const LENGTHS: [usize; 7] = [0, 100, 1_000, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of the values of ranges, scans and batches: a small row, and one of ten times its size.
const ROW_LENGTHS: [usize; 2] = [100, 1_000];
/// Puts at the same time that a group commit can join: a few dozen clients are usual.
pub(super) const GROUP: usize = 16;

/// One operation of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LadderStep {
    /// The operation.
    pub(super) operation: Operation,
    /// Bytes of each value.
    pub(super) len: usize,
    /// Keys or rows of a call.
    pub(super) rows: usize,
    /// Calls at the same time.
    pub(super) at_once: usize,
}

impl LadderStep {
    /// Returns its name for people.
    pub(super) fn name(&self) -> String {
        let operation = self.operation.as_str();
        let rows = if self.rows > 1 || !matches!(self.operation, Operation::Get | Operation::Put) {
            format!(" {} ×", self.rows)
        } else {
            String::new()
        };
        let together = if self.at_once > 1 {
            format!(", {} at once", self.at_once)
        } else {
            String::new()
        };
        format!("{operation}{rows} {} B{together}", self.len)
    }

    /// Returns whether this is the small get whose price stays.
    pub(super) fn is_small_get(&self) -> bool {
        self.operation == Operation::Get && self.len == ROW_LENGTHS[0]
    }
}

/// Returns all steps; every third in this order is held out.
pub(super) fn steps() -> Vec<LadderStep> {
    let step = |operation, len, rows, at_once| LadderStep {
        operation,
        len,
        rows,
        at_once,
    };
    let mut steps: Vec<_> = LENGTHS
        .iter()
        .map(|&len| step(Operation::Get, len, 1, 1))
        .collect();
    let lists: [(Operation, &[usize]); 4] = [
        (Operation::MultiGet, &[1, 3, 10, 30, 100]),
        (Operation::Range, &[1, 3, 10, 30, 100, 300, 1_000]),
        (Operation::Scan, &[1, 10, 100, 1_000]),
        (Operation::BatchWrite, &[10, 30, 100, 300, 1_000]),
    ];
    for (operation, counts) in lists {
        for len in ROW_LENGTHS {
            let of_count = |&rows: &usize| step(operation, len, rows, 1);
            steps.extend(counts.iter().map(of_count));
        }
    }
    for at_once in [1, GROUP] {
        let puts = &LENGTHS[1..];
        steps.extend(
            puts.iter()
                .map(|&len| step(Operation::Put, len, 1, at_once)),
        );
    }
    steps
}

/// Returns the rows of a length that are stored: more than the largest call reads and than a small cache holds, in
/// some 35 MB together.
pub(super) fn rows_of(len: usize) -> usize {
    match len {
        0..=1_024 => 4_000,
        1_025..=16_384 => 400,
        _ => 64,
    }
}
