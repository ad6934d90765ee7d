//! The operations and sizes that are measured.

use umbo_types::Operation;

/// Bytes of the values that are stored, from none to a size that few values have.
pub(super) const LENGTHS: [usize; 7] = [0, 100, 1_000, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of the values of ranges, scans and batches: a small row, and one of ten times its size.
const ROW_LENGTHS: [usize; 2] = [100, 1_000];
/// Puts at the same time that a group commit can join: a few dozen clients are usual.
const GROUP: usize = 16;
/// The small get whose price stays.
pub(super) const SMALL_GET: CallKind = one(Operation::Get, ROW_LENGTHS[0]);

/// One operation of a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallKind {
    /// The operation.
    pub(super) operation: Operation,
    /// Keys or rows of a call.
    pub(super) rows: usize,
    /// Bytes of each value.
    pub(super) len: usize,
    /// Calls at the same time.
    pub(super) at_once: usize,
}

const fn one(operation: Operation, len: usize) -> CallKind {
    CallKind {
        operation,
        rows: 1,
        len,
        at_once: 1,
    }
}

/// Returns all steps; every third in this order is held out. Ranges and scans are of one chunk at most.
pub(super) fn steps() -> Vec<CallKind> {
    let mut steps: Vec<_> = LENGTHS.map(|len| one(Operation::Get, len)).into();
    let lists: [(Operation, &[usize]); 4] = [
        (Operation::MultiGet, &[1, 3, 10, 30, 100]),
        (Operation::Range, &[1, 3, 10, 30, 100, 200]),
        (Operation::Scan, &[1, 10, 100, 200]),
        (Operation::BatchWrite, &[10, 30, 100, 300, 1_000]),
    ];
    for (operation, counts) in lists {
        for len in ROW_LENGTHS {
            let step = one(operation, len);
            steps.extend(counts.iter().map(|&rows| CallKind { rows, ..step }));
        }
    }
    for at_once in [1, GROUP] {
        let puts = LENGTHS[1..].iter().map(|&len| one(Operation::Put, len));
        steps.extend(puts.map(|step| CallKind { at_once, ..step }));
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
